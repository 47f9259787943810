package scram_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/fenceproxy/fenceproxy/proxy/scram"
)

// challenge returns the server's first message for user, less the nonce.
func challenge(t *testing.T, user string, secret *scram.Secret, mock *scram.Mock) string {
	t.Helper()
	reply, err := scram.NewServer(user, secret, mock, nil).Step([]byte(initial(plain, "n,,n=,r=abc")))
	if err != nil {
		t.Fatal(err)
	}
	form := regexp.MustCompile(`^r=abc[A-Za-z0-9+/]{24},(s=[A-Za-z0-9+/]{22}==,i=4096)$`)
	found := form.FindStringSubmatch(string(reply))
	if found == nil {
		t.Fatalf("got %q, want the form %s", reply, form)
	}
	return found[1]
}

func TestMock_Indistinguishable(t *testing.T) {
	mock := scram.NewMock([]byte("a key that several proxies share"), 0)
	secret, _, err := scram.Derive(password, salt, 4096)
	if err != nil {
		t.Fatal(err)
	}
	challenge(t, "alice", &secret, mock) // has the same form
	nobody := challenge(t, "nobody", nil, mock)
	if got := challenge(t, "nobody", nil, mock); got != nobody {
		t.Errorf("got %q the second time, want %q", got, nobody)
	}
	if got := challenge(t, "nobody", nil, scram.NewMock([]byte("a key that several proxies share"), 0)); got != nobody {
		t.Errorf("got %q from another proxy, want %q", got, nobody)
	}
	if got := challenge(t, "somebody", nil, mock); got == nobody {
		t.Error("two users have one salt")
	}
	for name, other := range map[string]*scram.Mock{"random": scram.NewMock(nil, 0), "another": scram.NewMock([]byte("k"), 0)} {
		if got := challenge(t, "nobody", nil, other); got == nobody {
			t.Errorf("the salt doesn't depend on the %s key", name)
		}
	}
	if a, b := challenge(t, "x", nil, scram.NewMock(nil, 0)), challenge(t, "x", nil, scram.NewMock(nil, 0)); a == b {
		t.Error("two random keys are one")
	}
	if got := challengeOf(t, scram.NewMock(nil, 600)); !strings.HasSuffix(got, ",i=600") {
		t.Errorf("got %q, want 600 iterations", got)
	}
}

func challengeOf(t *testing.T, mock *scram.Mock) string {
	t.Helper()
	reply, err := scram.NewServer("nobody", nil, mock, nil).Step([]byte(initial(plain, "n,,n=,r=abc")))
	if err != nil {
		t.Fatal(err)
	}
	return string(reply)
}

// TestMock_WholeExchange plays every conversation with an unknown user and
// with a user whose password is another: they must hear the same.
func TestMock_WholeExchange(t *testing.T) {
	secret, _, err := scram.Derive("another", "another salt 16b", 1)
	if err != nil {
		t.Fatal(err)
	}
	mock := scram.NewMock(nil, 1)
	for _, binding := range [][]byte{nil, binding} {
		for _, c := range conversations() {
			known, unknown := &script{binding: binding}, &script{binding: binding}
			known.withServer(scram.NewServer("alice", &secret, mock, binding), c.says)
			unknown.withServer(scram.NewServer("alice", nil, mock, binding), c.says)
			salts := regexp.MustCompile(`s=[A-Za-z0-9+/]{22}==`)
			got := salts.ReplaceAllString(strings.Join(unknown.heard, "\n"), "s=…")
			want := salts.ReplaceAllString(strings.Join(known.heard, "\n"), "s=…")
			if got != want {
				t.Errorf("%q\ngot\n%s\nwant\n%s", c.says, got, want)
			}
		}
	}
}
