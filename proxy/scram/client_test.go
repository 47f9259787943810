package scram_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/fenceproxy/fenceproxy/proxy/scram"
)

const both = "SCRAM-SHA-256-PLUS\x00SCRAM-SHA-256\x00\x00"

func TestClient_Initial(t *testing.T) {
	tests := []struct {
		name    string
		offered string
		binding []byte
		want    string // what the message begins with
		err     error
	}{
		{"plain", "SCRAM-SHA-256\x00\x00", nil, "SCRAM-SHA-256\x00\x00\x00\x00\x20n,,n=,r=", nil},
		{"both, no TLS", both, nil, "SCRAM-SHA-256\x00\x00\x00\x00\x20n,,n=,r=", nil},
		{"both, TLS", both, binding, "SCRAM-SHA-256-PLUS\x00\x00\x00\x00\x35p=tls-server-end-point,,n=,r=", nil},
		{"plain, TLS", "SCRAM-SHA-256\x00\x00", binding, "SCRAM-SHA-256\x00\x00\x00\x00\x20y,,n=,r=", nil},
		{"others too", "OAUTHBEARER\x00SCRAM-SHA-256\x00\x00", nil, "SCRAM-SHA-256\x00\x00\x00\x00\x20n,,n=,r=", nil},
		{"only PLUS, no TLS", "SCRAM-SHA-256-PLUS\x00\x00", nil, "", scram.ErrMechanism},
		{"others only", "OAUTHBEARER\x00\x00", nil, "", scram.ErrMechanism},
		{"none", "\x00", nil, "", scram.ErrMechanism},
		{"empty", "", nil, "", scram.ErrMalformed},
		{"no end", "SCRAM-SHA-256\x00", nil, "", scram.ErrMalformed},
		{"no NUL", "SCRAM-SHA-256", nil, "", scram.ErrMalformed},
		{"more behind the end", "SCRAM-SHA-256\x00\x00x", nil, "", scram.ErrMalformed},
		{"too long", strings.Repeat("x\x00", scram.MaxServerMessage/2) + "\x00", nil, "", scram.ErrMalformed},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got, err := scram.NewPasswordClient(password, test.binding).Initial([]byte(test.offered))
			if !errors.Is(err, test.err) || !strings.HasPrefix(string(got), test.want) {
				t.Errorf("got %q, %v, want %q, %v", got, err, test.want, test.err)
			}
		})
	}
}

func TestClient_Continue(t *testing.T) {
	secret, key := derive(t, password)
	const good = "r=oursTHEIRS,s=c2l4dGVlbiBieXRlcyBvaw==,i=2"
	tests := []struct {
		name, message string
		key, password error
	}{
		{"good", good, nil, nil},
		{"empty", "", scram.ErrMalformed, scram.ErrMalformed},
		{"NUL", good + "\x00", scram.ErrMalformed, scram.ErrMalformed},
		{"cut short", "r=oursTHEIRS,s=c2l4dGVlbiBieXRlcyBvaw==", scram.ErrMalformed, scram.ErrMalformed},
		{"order", "s=c2l4dGVlbiBieXRlcyBvaw==,r=oursTHEIRS,i=2", scram.ErrMalformed, scram.ErrMalformed},
		{"mandatory extension", "m=x," + good, scram.ErrMalformed, scram.ErrMalformed},
		{"garbage behind", good + ",x=y", scram.ErrMalformed, scram.ErrMalformed},
		{"nonce not ours", "r=outsTHEIRS,s=c2l4dGVlbiBieXRlcyBvaw==,i=2", scram.ErrNonce, scram.ErrNonce},
		{"nonce not theirs", "r=ours,s=c2l4dGVlbiBieXRlcyBvaw==,i=2", scram.ErrNonce, scram.ErrNonce},
		{"nonce too short", "r=our,s=c2l4dGVlbiBieXRlcyBvaw==,i=2", scram.ErrNonce, scram.ErrNonce},
		{"nonce unprintable", "r=oursTHEIR\x7f,s=c2l4dGVlbiBieXRlcyBvaw==,i=2", scram.ErrNonce, scram.ErrNonce},
		{"salt not base64", "r=oursTHEIRS,s=c2l4dGVlbiBieXRlcyBvaw=,i=2", scram.ErrMalformed, scram.ErrMalformed},
		{"salt with a line break", "r=oursTHEIRS,s=c2l4dGVlbiBieXRlcyBv\naw==,i=2", scram.ErrMalformed, scram.ErrMalformed},
		{"no salt", "r=oursTHEIRS,s=,i=2", scram.ErrMalformed, scram.ErrMalformed},
		{"another salt", "r=oursTHEIRS,s=c2l4dGVlbiBieXRlcw==,i=2", scram.ErrSecretChanged, nil},
		{"another count", "r=oursTHEIRS,s=c2l4dGVlbiBieXRlcyBvaw==,i=3", scram.ErrSecretChanged, nil},
		{"no count", "r=oursTHEIRS,s=c2l4dGVlbiBieXRlcyBvaw==,i=", scram.ErrIterations, scram.ErrIterations},
		{"count 0", "r=oursTHEIRS,s=c2l4dGVlbiBieXRlcyBvaw==,i=0", scram.ErrIterations, scram.ErrIterations},
		{"count below", "r=oursTHEIRS,s=c2l4dGVlbiBieXRlcyBvaw==,i=-2", scram.ErrIterations, scram.ErrIterations},
		{"count for ever", "r=oursTHEIRS,s=c2l4dGVlbiBieXRlcyBvaw==,i=2147483647", scram.ErrSecretChanged, scram.ErrIterations},
		{"count beyond 32 bits", "r=oursTHEIRS,s=c2l4dGVlbiBieXRlcyBvaw==,i=4294967298", scram.ErrIterations, scram.ErrIterations},
		{"count beyond 64 bits", "r=oursTHEIRS,s=c2l4dGVlbiBieXRlcyBvaw==,i=18446744073709551618", scram.ErrIterations, scram.ErrIterations},
		{"nonce without end", "r=ours" + strings.Repeat("x", scram.MaxServerMessage) + ",s=c2l4dGVlbiBieXRlcyBvaw==,i=2", scram.ErrMalformed, scram.ErrMalformed},
	}
	for _, test := range tests {
		for name, end := range map[string]struct {
			client *scram.Client
			want   error
		}{
			"key":      {scram.NewKeyClient(secret, key, nil), test.key},
			"password": {scram.NewPasswordClient(password, nil), test.password},
		} {
			t.Run(test.name+" "+name, func(t *testing.T) {
				end.client.SetNonce("", "ours")
				if _, err := end.client.Initial([]byte(both)); err != nil {
					t.Fatal(err)
				}
				got, err := end.client.Continue([]byte(test.message))
				if !errors.Is(err, end.want) || (err == nil) != (got != nil) {
					t.Fatalf("got %q, %v, want error %v", got, err, end.want)
				}
				if err == nil {
					return
				}
				if _, err := end.client.Continue([]byte(good)); !errors.Is(err, scram.ErrOrder) {
					t.Errorf("got %v for a second try, want %v", err, scram.ErrOrder)
				}
			})
		}
	}
}

func TestClient_Final(t *testing.T) {
	secret, key := derive(t, password)
	tests := []struct {
		name, message string
		want          error
	}{
		{"good", "", nil},
		{"no signature", "v=", scram.ErrMalformed},
		{"zeros", "v=" + strings.Repeat("A", 43) + "=", scram.ErrSignature},
		{"short", "v=" + strings.Repeat("A", 42) + "==", scram.ErrMalformed},
		{"long", "v=" + strings.Repeat("A", 44), scram.ErrMalformed},
		{"garbage behind", "v=" + strings.Repeat("A", 43) + "=,x=y", scram.ErrMalformed},
		{"refused", "e=invalid-proof", scram.ErrRefused},
		{"refused without a word", "e", scram.ErrRefused},
		{"something else", "x=y", scram.ErrMalformed},
		{"NUL", "\x00", scram.ErrMalformed},
		{"too long", "v=" + strings.Repeat("A", scram.MaxServerMessage), scram.ErrMalformed},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			client := scram.NewKeyClient(secret, key, nil)
			server := scram.NewServer("alice", &secret, scram.NewMock(nil, 0), nil)
			initial, _ := client.Initial(server.Mechanisms())
			challenge, _ := server.Step(initial)
			proof, err := client.Continue(challenge)
			if err != nil {
				t.Fatal(err)
			}
			final, err := server.Step(proof)
			if err != nil {
				t.Fatal(err)
			}
			if test.message != "" {
				final = []byte(test.message)
			}
			if err := client.Final(final); !errors.Is(err, test.want) || client.Verified() != (test.want == nil) {
				t.Errorf("got %v, verified %v, want %v", err, client.Verified(), test.want)
			}
		})
	}
}

func TestClient_OutOfTurn(t *testing.T) {
	secret, key := derive(t, password)
	for name, act := range map[string]func(c *scram.Client) error{
		"a challenge at once":      func(c *scram.Client) error { _, err := c.Continue([]byte("r=x")); return err },
		"a signature at once":      func(c *scram.Client) error { return c.Final([]byte("v=x")) },
		"an offer twice":           func(c *scram.Client) error { c.Initial([]byte(both)); _, err := c.Initial([]byte(both)); return err },
		"a signature before proof": func(c *scram.Client) error { c.Initial([]byte(both)); return c.Final([]byte("v=x")) },
	} {
		t.Run(name, func(t *testing.T) {
			client := scram.NewKeyClient(secret, key, nil)
			if err := act(client); !errors.Is(err, scram.ErrOrder) || client.Verified() {
				t.Errorf("got %v, verified %v, want %v", err, client.Verified(), scram.ErrOrder)
			}
		})
	}
}
