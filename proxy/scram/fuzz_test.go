package scram_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/fenceproxy/fenceproxy/proxy/scram"
)

// FuzzServer says three things to a Server of a role whose password the
// fuzzer doesn't know, so it must never be content; and to one of a user who
// doesn't exist, which must say the same.
func FuzzServer(f *testing.F) {
	for _, c := range conversations() {
		says := append(c.says, "", "")
		f.Add([]byte(says[0]), []byte(says[1]), []byte(says[2]), true)
	}
	secret, _ := derive(f, "not the fuzzer's")
	mock := scram.NewMock(nil, secret.Iterations)
	secret.Salt = mock.Salt("alice")
	f.Fuzz(func(t *testing.T, a, b, c []byte, secure bool) {
		binding := binding
		if !secure {
			binding = nil
		}
		known, unknown := scram.NewServer("alice", &secret, mock, binding), scram.NewServer("alice", nil, mock, binding)
		known.SetNonce("theirs")
		unknown.SetNonce("theirs")
		failed := false
		for _, message := range [][]byte{a, b, c} {
			message = bytes.ReplaceAll(message, []byte("%NONCE"), []byte("abctheirs"))
			got, err := known.Step(message)
			other, otherErr := unknown.Step(message)
			if known.Done() || unknown.Done() {
				t.Fatal("content without a proof")
			}
			if _, ok := known.ClientKey(); ok {
				t.Fatal("a key without a proof")
			}
			if !bytes.Equal(got, other) || len(got) > scram.MaxClientMessage+scram.MaxSecretLength {
				t.Fatalf("got %q for a user, %q for nobody", got, other)
			}
			if err == nil != (otherErr == nil) || err != nil && err.Error() != otherErr.Error() {
				t.Fatalf("got %v for a user, %v for nobody", err, otherErr)
			}
			if err == nil {
				if failed {
					t.Fatal("went on after a failure")
				}
				continue
			}
			failed = true
			var e *scram.Error
			if !errors.As(err, &e) || e.Code == "" || e.Message == "" || got != nil {
				t.Fatalf("got %q, %v, want an error to be told", got, err)
			}
			if text := e.Message + e.Detail; len(text) > 300 || strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r > '~' }) {
				t.Fatalf("unprintable or long: %q", text)
			}
		}
	})
}

// FuzzClient says three things to a Client, which must never be content: the
// fuzzer doesn't know the role's ServerKey.
func FuzzClient(f *testing.F) {
	f.Add([]byte(both), []byte("r=oursTHEIRS,s=c2l4dGVlbiBieXRlcyBvaw==,i=2"), []byte("v="+strings.Repeat("A", 43)+"="), uint8(0))
	f.Add([]byte(both), []byte("r=oursTHEIRS,s=c2l4dGVlbiBieXRlcyBvaw==,i=2,x=y"), []byte("e=invalid-proof"), uint8(3))
	f.Add([]byte("SCRAM-SHA-256\x00\x00"), []byte("r=ours,s=,i=4294967297"), []byte("e"), uint8(1))
	f.Add([]byte("OAUTHBEARER\x00"), []byte("m=x,r=ours"), []byte("v=\x00"), uint8(2))
	secret, key := derive(f, "not the fuzzer's")
	f.Fuzz(func(t *testing.T, offer, first, final []byte, kind uint8) {
		if _, count, ok := bytes.Cut(first, []byte(",i=")); ok && len(count) > 3 {
			kind |= 1 // no hashing for ever here
		}
		var binding []byte
		if kind&2 != 0 {
			binding = []byte("a hash")
		}
		client := scram.NewPasswordClient("the fuzzer's", binding)
		if kind&1 != 0 {
			client = scram.NewKeyClient(secret, key, binding)
		}
		client.SetNonce("", "ours")
		message, err := client.Initial(offer)
		check(t, message, err)
		if client.Bound() && (binding == nil || err != nil) {
			t.Fatal("bound to nothing")
		}
		message, err = client.Continue(first)
		check(t, message, err)
		if err == nil && !bytes.HasPrefix(first, []byte("r=ours")) {
			t.Fatal("proved something to a stranger")
		}
		if err := client.Final(final); err == nil && kind&1 != 0 || (err == nil) != client.Verified() {
			t.Fatal("content without a signature")
		}
	})
}

func check(t *testing.T, message []byte, err error) {
	t.Helper()
	if (err == nil) != (message != nil) || len(message) > 2*scram.MaxServerMessage {
		t.Fatalf("got %q, %v, want a message or an error", message, err)
	}
}

// FuzzUserlist writes what it has read and reads it again.
func FuzzUserlist(f *testing.F) {
	secret, _ := derive(f, password)
	for _, text := range []string{
		`"alice" "` + secret.Encode() + `"`, "; x\n\"a\"\t\"\"\"\" x\r\n", `"a" "md5` + strings.Repeat("0", 32) + `"`, `"a" ""`, `"a`, `"a" "b""`, "\"a\" \"\x00\"", `"" ""`,
	} {
		f.Add(text, "alice")
	}
	f.Fuzz(func(t *testing.T, text, user string) {
		list, err := scram.ParseUserlist(text)
		if err != nil {
			if !errors.Is(err, scram.ErrUserlist) || list != nil {
				t.Fatalf("got %v, %v", list, err)
			}
			return
		}
		entry, ok := list.Lookup(user)
		if !ok {
			return
		}
		if entry.User != user || user == "" || entry.Line < 1 || entry.Line > 1+strings.Count(text, "\n") {
			t.Fatalf("got %v for %q", entry, user)
		}
		value := entry.Password
		switch entry.Kind {
		case scram.KindSCRAM:
			value = entry.Secret.Encode()
		case scram.KindMD5:
			value = "md5" + strings.Repeat("0", 32)
		}
		quote := func(s string) string { return `"` + strings.ReplaceAll(s, `"`, `""`) + `"` }
		again, err := scram.ParseUserlist(quote(user) + " " + quote(value))
		if err != nil {
			t.Fatal(err)
		}
		entry.Line = 1
		if got, _ := again.Lookup(user); got != entry {
			t.Fatalf("got %v, want %v", got, entry)
		}
	})
}

func FuzzParseSecret(f *testing.F) {
	secret, _ := derive(f, password)
	f.Add(secret.Encode())
	f.Add("SCRAM-SHA-256$2147483648:AA==$:")
	f.Fuzz(func(t *testing.T, text string) {
		secret, err := scram.ParseSecret(text)
		if err != nil {
			if !errors.Is(err, scram.ErrMalformedSecret) || secret != (scram.Secret{}) {
				t.Fatalf("got %v, %v", secret, err)
			}
			return
		}
		if again, err := scram.ParseSecret(secret.Encode()); err != nil || again != secret {
			t.Fatalf("got %v, %v from %q", again, err, secret.Encode())
		}
	})
}
