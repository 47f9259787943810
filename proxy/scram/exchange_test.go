package scram_test

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/fenceproxy/fenceproxy/proxy/scram"
)

const (
	password = "pencil"
	salt     = "sixteen bytes ok"
)

var binding = []byte("a hash of the certificate 32 lon")

// derive returns the secret and the key of a password, cheaply.
func derive(t testing.TB, password string) (scram.Secret, scram.Key) {
	t.Helper()
	secret, key, err := scram.Derive(password, salt, 2)
	if err != nil {
		t.Fatal(err)
	}
	return secret, key
}

// A tamper changes the messages of an exchange on their way, counted from 0.
type tamper func(step int, message []byte) []byte

// exchange plays a login of client with server to its end. The first error of
// the server is an *Error.
func exchange(client *scram.Client, server *scram.Server, tampers ...tamper) error {
	pass := func(step int, message []byte) []byte {
		for _, t := range tampers {
			message = t(step, message)
		}
		return message
	}
	message, err := client.Initial(server.Mechanisms())
	if err != nil {
		return fmt.Errorf("initial: %w", err)
	}
	challenge, err := server.Step(pass(0, message))
	if err != nil {
		return fmt.Errorf("first: %w", err)
	}
	if message, err = client.Continue(pass(1, challenge)); err != nil {
		return fmt.Errorf("continue: %w", err)
	}
	final, err := server.Step(pass(2, message))
	if err != nil {
		return fmt.Errorf("proof: %w", err)
	}
	return client.Final(pass(3, final))
}

func TestExchange_RFC7677(t *testing.T) {
	raw, _ := base64.StdEncoding.DecodeString("W22ZaJ0SNY7soEsUEjb6gQ==")
	secret, key, err := scram.Derive(password, string(raw), 4096)
	if err != nil {
		t.Fatal(err)
	}
	for name, client := range map[string]*scram.Client{
		"password": scram.NewPasswordClient(password, nil),
		"key":      scram.NewKeyClient(secret, key, nil),
	} {
		t.Run(name, func(t *testing.T) {
			server := scram.NewServer("user", &secret, scram.NewMock(nil, 0), nil)
			server.SetNonce(`%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0`)
			client.SetNonce("user", "rOprNGfwEbeRWgbNEkqO")

			initial, err := client.Initial(server.Mechanisms())
			if got, want := string(initial), "SCRAM-SHA-256\x00\x00\x00\x00\x20n,,n=user,r=rOprNGfwEbeRWgbNEkqO"; err != nil || got != want {
				t.Fatalf("got %q, %v, want %q", got, err, want)
			}
			challenge, err := server.Step(initial)
			if got, want := string(challenge), `r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096`; err != nil || got != want {
				t.Fatalf("got %q, %v, want %q", got, err, want)
			}
			proof, err := client.Continue(challenge)
			if got, want := string(proof), `c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=`; err != nil || got != want {
				t.Fatalf("got %q, %v, want %q", got, err, want)
			}
			final, err := server.Step(proof)
			if got, want := string(final), `v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=`; err != nil || got != want {
				t.Fatalf("got %q, %v, want %q", got, err, want)
			}
			if client.Verified() {
				t.Error("verified before the server's signature")
			}
			if err := client.Final(final); err != nil || !client.Verified() || !server.Done() {
				t.Errorf("got %v, %v, %v, want both sides content", err, client.Verified(), server.Done())
			}
			if got, ok := server.ClientKey(); !ok || got != key {
				t.Error("the key that the server recovered is not the client's")
			}
		})
	}
}

func TestExchange_PassThrough(t *testing.T) {
	secret, _ := derive(t, password)
	mock := scram.NewMock(nil, 0)
	for _, channel := range []struct {
		name                    string
		client, in, out, server []byte // bindings of the four ends
	}{
		{"no TLS", nil, nil, nil, nil},
		{"TLS in front", binding, binding, nil, nil},
		{"TLS behind", nil, nil, binding, binding},
		{"a client without binding", nil, binding, nil, nil},
		{"a proxy without binding", binding, nil, nil, nil},
	} {
		t.Run(channel.name, func(t *testing.T) {
			front := scram.NewServer("alice", &secret, mock, channel.in)
			client := scram.NewPasswordClient(password, channel.client)
			if err := exchange(client, front); err != nil {
				t.Fatal(err)
			}
			if got, want := client.Bound(), channel.client != nil && channel.in != nil; got != want {
				t.Errorf("got bound %v, want %v", got, want)
			}
			key, ok := front.ClientKey()
			if !ok {
				t.Fatal("no key after a proof")
			}
			back := scram.NewKeyClient(secret, key, channel.out)
			if err := exchange(back, scram.NewServer("alice", &secret, mock, channel.server)); err != nil {
				t.Fatal(err)
			}
			again, key, ok := client.Keys()
			if !ok || again != secret {
				t.Fatal("the client's keys are not the secret's")
			}
			if err := exchange(scram.NewKeyClient(again, key, nil), scram.NewServer("alice", &secret, mock, nil)); err != nil {
				t.Errorf("log in again by the keys of the last time: %v", err)
			}
		})
	}
}

func TestExchange_Refusals(t *testing.T) {
	secret, key := derive(t, password)
	other, otherKey := derive(t, "another")
	resalted := other
	resalted.Salt = "another salt"
	harder := secret
	harder.Iterations++
	impostor := secret // knows the client's side only
	impostor.ServerKey = other.ServerKey
	plain := func() *scram.Client { return scram.NewPasswordClient(password, nil) }
	tests := []struct {
		name    string
		client  *scram.Client
		secret  *scram.Secret
		binding []byte
		want    error
	}{
		{"wrong password", scram.NewPasswordClient("pencil ", nil), &secret, nil, scram.PasswordFailed("alice")},
		{"unknown user", plain(), nil, nil, scram.PasswordFailed("alice")},
		{"wrong key", scram.NewKeyClient(other, otherKey, nil), &secret, nil, scram.PasswordFailed("alice")},
		{"key of another secret", scram.NewKeyClient(secret, otherKey, nil), &secret, nil, scram.ErrSecretChanged},
		{"no key at all", scram.NewKeyClient(secret, scram.Key{}, nil), &secret, nil, scram.ErrSecretChanged},
		{"another salt", scram.NewKeyClient(secret, key, nil), &resalted, nil, scram.ErrSecretChanged},
		{"another count", scram.NewKeyClient(secret, key, nil), &harder, nil, scram.ErrSecretChanged},
		{"user dropped", scram.NewKeyClient(secret, key, nil), nil, nil, scram.ErrSecretChanged},
		{"impostor", scram.NewKeyClient(secret, key, nil), &impostor, nil, scram.ErrSignature},
		{"impostor, password", plain(), &impostor, nil, scram.ErrSignature},
		{"another certificate", scram.NewPasswordClient(password, []byte("A hash of the certificate 32 lon")), &secret, binding,
			&scram.Error{Code: "28000", Message: "SCRAM channel binding check failed"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			server := scram.NewServer("alice", test.secret, scram.NewMock(nil, 2), test.binding)
			err := exchange(test.client, server)
			var got, want *scram.Error
			if errors.As(test.want, &want) {
				if !errors.As(err, &got) || *got != *want {
					t.Errorf("got %v, want %v", err, want)
				}
			} else if !errors.Is(err, test.want) {
				t.Errorf("got %v, want %v", err, test.want)
			}
			if test.client.Verified() {
				t.Error("the client is content")
			}
			if _, _, ok := test.client.Keys(); ok {
				t.Error("the client gave its keys out")
			}
			if _, ok := server.ClientKey(); ok && want != nil {
				t.Error("the server gave a key out")
			}
		})
	}
}

// TestExchange_OfferTakenOut has somebody in between who takes the PLUS
// mechanism out of the offer.
func TestExchange_OfferTakenOut(t *testing.T) {
	secret, _ := derive(t, password)
	client := scram.NewPasswordClient(password, binding)
	message, err := client.Initial([]byte("SCRAM-SHA-256\x00\x00"))
	if err != nil {
		t.Fatal(err)
	}
	if client.Bound() {
		t.Error("the client thinks that it is bound")
	}
	_, err = scram.NewServer("alice", &secret, scram.NewMock(nil, 0), binding).Step(message)
	var got *scram.Error
	if !errors.As(err, &got) || got.Code != "28000" || got.Message != "SCRAM channel binding negotiation error" {
		t.Errorf("got %v, want the downgrade noticed", err)
	}
}

func TestServer_Doomed(t *testing.T) {
	secret, _ := derive(t, password)
	server := scram.NewServer("alice", &secret, scram.NewMock(nil, 0), nil)
	server.Doom()
	var got *scram.Error
	if err := exchange(scram.NewPasswordClient(password, nil), server); !errors.As(err, &got) || got.Code != "28P01" {
		t.Errorf("got %v, want a doomed exchange to fail", err)
	}
}

func TestKeys_Hidden(t *testing.T) {
	secret, key := derive(t, password)
	server := scram.NewServer("alice", &secret, scram.NewMock(nil, 0), nil)
	if err := exchange(scram.NewPasswordClient(password, nil), server); err != nil {
		t.Fatal(err)
	}
	entry := scram.Entry{User: "alice", Password: password, Secret: secret}
	for _, format := range []string{"%v", "%+v", "%#v", "%s", "%q"} {
		for _, value := range []any{secret, &secret, key, &key, entry, &entry} {
			got := fmt.Sprintf(format, value)
			for _, part := range []string{password, salt, fmt.Sprint(key[0], " ", key[1]), secret.Encode()} {
				if strings.Contains(got, part) {
					t.Errorf("%s of %T shows %q", format, value, part)
				}
			}
		}
	}
}
