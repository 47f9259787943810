package scram_test

import (
	"encoding/base64"
	"errors"
	"strings"
	"testing"

	"github.com/fenceproxy/fenceproxy/proxy/scram"
)

func TestParseSecret(t *testing.T) {
	key := strings.Repeat("A", 43) + "="
	good := "SCRAM-SHA-256$4096:c2FsdA==$" + key + ":" + key
	tests := []struct {
		name, text string
		want       error
	}{
		{"good", good, nil},
		{"most iterations", "SCRAM-SHA-256$2147483647:c2FsdA==$" + key + ":" + key, nil},
		{"empty", "", scram.ErrMalformedSecret},
		{"MD5", "md5" + strings.Repeat("0", 32), scram.ErrMalformedSecret},
		{"plain", "pencil", scram.ErrMalformedSecret},
		{"another hash", "SCRAM-SHA-1$4096:c2FsdA==$" + key + ":" + key, scram.ErrMalformedSecret},
		{"lower case", "scram-sha-256$4096:c2FsdA==$" + key + ":" + key, scram.ErrMalformedSecret},
		{"scheme only", "SCRAM-SHA-256", scram.ErrMalformedSecret},
		{"no iterations", "SCRAM-SHA-256$:c2FsdA==$" + key + ":" + key, scram.ErrIterations},
		{"iterations 0", "SCRAM-SHA-256$0:c2FsdA==$" + key + ":" + key, scram.ErrIterations},
		{"iterations signed", "SCRAM-SHA-256$+1:c2FsdA==$" + key + ":" + key, scram.ErrIterations},
		{"iterations below", "SCRAM-SHA-256$-1:c2FsdA==$" + key + ":" + key, scram.ErrIterations},
		{"one iteration too many", "SCRAM-SHA-256$2147483648:c2FsdA==$" + key + ":" + key, scram.ErrIterations},
		{"iterations past 64 bits", "SCRAM-SHA-256$18446744073709551617:c2FsdA==$" + key + ":" + key, scram.ErrIterations},
		{"iterations not decimal", "SCRAM-SHA-256$0x10:c2FsdA==$" + key + ":" + key, scram.ErrIterations},
		{"no salt", "SCRAM-SHA-256$4096:$" + key + ":" + key, scram.ErrMalformedSecret},
		{"salt not padded", "SCRAM-SHA-256$4096:c2FsdA$" + key + ":" + key, scram.ErrMalformedSecret},
		{"salt with a line break", "SCRAM-SHA-256$4096:c2Fs\ndA==$" + key + ":" + key, scram.ErrMalformedSecret},
		{"stored key short", "SCRAM-SHA-256$4096:c2FsdA==$AAAA:" + key, scram.ErrMalformedSecret},
		{"server key short", "SCRAM-SHA-256$4096:c2FsdA==$" + key + ":AAAA", scram.ErrMalformedSecret},
		{"server key missing", "SCRAM-SHA-256$4096:c2FsdA==$" + key, scram.ErrMalformedSecret},
		{"33 bytes", "SCRAM-SHA-256$4096:c2FsdA==$" + key + ":" + strings.Repeat("A", 44), scram.ErrMalformedSecret},
		{"key with a line break", "SCRAM-SHA-256$4096:c2FsdA==$" + key + ":" + strings.Repeat("A", 42) + "\n=", scram.ErrMalformedSecret},
		{"tail", good + " ", scram.ErrMalformedSecret},
		{"another field", good + ":" + key, scram.ErrMalformedSecret},
		{"NUL", good + "\x00", scram.ErrMalformedSecret},
		{"longest", "SCRAM-SHA-256$4096:" + strings.Repeat("AAAA", 100) + "$" + key + ":" + key, nil},
		{"too long", "SCRAM-SHA-256$4096:" + strings.Repeat("AAAA", 101) + "$" + key + ":" + key, scram.ErrMalformedSecret},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got, err := scram.ParseSecret(test.text)
			if !errors.Is(err, test.want) {
				t.Fatalf("got %v, want %v", err, test.want)
			}
			if err != nil && !errors.Is(err, scram.ErrMalformedSecret) {
				t.Errorf("got %v, want it to be %v too", err, scram.ErrMalformedSecret)
			}
			if err == nil && got.Encode() != test.text {
				t.Errorf("got %s, want %s", got.Encode(), test.text)
			}
			if err != nil && got != (scram.Secret{}) {
				t.Error("got part of a secret")
			}
			if err != nil && strings.Contains(err.Error(), key) {
				t.Errorf("the error quotes the secret: %v", err)
			}
		})
	}
}

func TestDerive_Iterations(t *testing.T) {
	for _, n := range []int{-1, 0, scram.MaxIterations + 1, 1 << 31} {
		if _, _, err := scram.Derive(password, salt, n); !errors.Is(err, scram.ErrIterations) {
			t.Errorf("%d: got %v, want %v", n, err, scram.ErrIterations)
		}
	}
}

func TestPrepare(t *testing.T) {
	tests := []struct{ name, password, want string }{
		{"ASCII", "pencil", "pencil"},
		{"empty", "", ""},
		{"control characters stay", "a\tb\x7f", "a\tb\x7f"},
		{"compatibility", "\u2168", "IX"},
		{"composed", "a\u0308", "ä"},
		{"soft hyphen", "I\u00adX", "IX"},
		{"space", "a\u00a0b", "a b"},
		{"zero width space", "a\u200bb", "a b"},
		{"nothing left", "\u00ad\u200d", "\u00ad\u200d"},
		{"prohibited", "\u2168\u0340", "\u2168\u0340"},
		{"control character beside", "\u2168\x07", "\u2168\x07"},
		{"unassigned in Unicode 3.2", "\u2168\U0001f600", "\u2168\U0001f600"},
		{"not UTF-8", "\u2168\xff", "\u2168\xff"},
		{"overlong", "\u2168\xc0\x80", "\u2168\xc0\x80"},
		{"surrogate", "\u2168\xed\xa0\x80", "\u2168\xed\xa0\x80"},
		{"right to left", "\u0627\u06441\ufefb", "\u0627\u06441\u0644\u0627"},
		{"right to left, then a digit", "\ufefb1", "\ufefb1"},
		{"a digit, then right to left", "1\ufefb", "1\ufefb"},
		{"right to left and left to right", "\ufefbx\ufefb", "\ufefbx\ufefb"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if got := scram.Prepare(test.password); got != test.want {
				t.Errorf("got %+q, want %+q", got, test.want)
			}
		})
	}
}

// TestParseSecret_TrailingBits: PostgreSQL takes base64 whose last bits are
// not zero, and so do we.
func TestParseSecret_TrailingBits(t *testing.T) {
	key := strings.Repeat("A", 42) + "B="
	got, err := scram.ParseSecret("SCRAM-SHA-256$1:c2FsdB==$" + key + ":" + key)
	if err != nil || got.Salt != "salt" || got.StoredKey != (scram.Key{}) {
		t.Errorf("got salt %q, %v, want salt and zeros", got.Salt, err)
	}
	if text := base64.StdEncoding.EncodeToString(make([]byte, scram.KeySize)); !strings.HasSuffix(got.Encode(), text) {
		t.Error("not encoded in the usual form")
	}
}
