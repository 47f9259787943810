package scram_test

import (
	"encoding/base64"
	"errors"
	"strings"
	"testing"

	"github.com/fenceproxy/fenceproxy/proxy/scram"
)

// TestServer_AfterFailure: one exchange is one try.
func TestServer_AfterFailure(t *testing.T) {
	secret, _ := derive(t, password)
	for name, wrong := range map[string]func(right string) string{
		"wrong proof":     func(right string) string { return right[:len(right)-44] + strings.Repeat("A", 43) + "=" },
		"wrong nonce":     func(right string) string { return strings.Replace(right, "r=", "r=x", 1) },
		"malformed":       func(string) string { return "x" },
		"over the length": func(right string) string { return right + strings.Repeat("x", scram.MaxClientMessage) },
	} {
		t.Run(name, func(t *testing.T) {
			server := scram.NewServer("alice", &secret, scram.NewMock(nil, 0), nil)
			client := scram.NewPasswordClient(password, nil)
			message, err := client.Initial(server.Mechanisms())
			if err != nil {
				t.Fatal(err)
			}
			reply, err := server.Step(message)
			if err != nil {
				t.Fatal(err)
			}
			right, err := client.Continue(reply)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := server.Step([]byte(wrong(string(right)))); err == nil {
				t.Fatal("got no error")
			}
			var got *scram.Error
			if _, err := server.Step(right); !errors.As(err, &got) || got.Code != "XX000" || server.Done() {
				t.Errorf("got %v for a second try, want the exchange to have ended", err)
			}
		})
	}
}

// TestServer_OneBitOff turns each bit of a right proof, and of the signature
// that answers it.
func TestServer_OneBitOff(t *testing.T) {
	secret, key := derive(t, password)
	for bit := range 8 * scram.KeySize {
		server := scram.NewServer("alice", &secret, scram.NewMock(nil, 0), nil)
		err := exchange(scram.NewKeyClient(secret, key, nil), server, flip(2, bit))
		var got *scram.Error
		if !errors.As(err, &got) || *got != *scram.PasswordFailed("alice") || server.Done() {
			t.Fatalf("bit %d of the proof: got %v, want it refused", bit, err)
		}
		client := scram.NewKeyClient(secret, key, nil)
		err = exchange(client, scram.NewServer("alice", &secret, scram.NewMock(nil, 0), nil), flip(3, bit))
		if !errors.Is(err, scram.ErrSignature) || client.Verified() {
			t.Fatalf("bit %d of the signature: got %v, want it refused", bit, err)
		}
	}
}

// flip turns one bit of the key at the end of a step's message.
func flip(at, bit int) tamper {
	return func(step int, message []byte) []byte {
		if step != at {
			return message
		}
		head := message[:len(message)-44]
		raw, _ := base64.StdEncoding.DecodeString(string(message[len(head):]))
		raw[bit/8] ^= 1 << (bit % 8)
		return base64.StdEncoding.AppendEncode(head, raw)
	}
}

func TestServer_AfterDone(t *testing.T) {
	secret, _ := derive(t, password)
	server := scram.NewServer("alice", &secret, scram.NewMock(nil, 0), nil)
	if err := exchange(scram.NewPasswordClient(password, nil), server); err != nil {
		t.Fatal(err)
	}
	if _, err := server.Step([]byte("n,,n=,r=abc")); err == nil || server.Done() {
		t.Errorf("got %v, want an exchange that has ended to take nothing", err)
	}
}

func TestServer_Nonces(t *testing.T) {
	secret, _ := derive(t, password)
	seen := map[string]bool{}
	for range 100 {
		reply, err := scram.NewServer("alice", &secret, scram.NewMock(nil, 0), nil).Step([]byte(initial(plain, "n,,n=,r=abc")))
		if err != nil || seen[string(reply)] {
			t.Fatalf("got %q, %v, want another nonce each time", reply, err)
		}
		seen[string(reply)] = true
	}
}
