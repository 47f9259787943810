package scram

import (
	"crypto/hmac"
	"crypto/pbkdf2"
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
)

// KeySize is the size of every key and signature, in bytes.
const KeySize = sha256.Size

const (
	// DefaultIterations is what PostgreSQL makes secrets with
	// (SCRAM_SHA_256_DEFAULT_ITERATIONS in scram-common.h).
	DefaultIterations = 4096
	// MaxIterations bounds the work that a password costs here, about half a
	// second of CPU: the count comes from the server, who may be hostile
	// (CVE-2026-6669).
	MaxIterations = 1_000_000
)

// A Key is a ClientKey, a StoredKey, a ServerKey or a signature. It hides
// itself from fmt.
type Key [KeySize]byte

func (Key) String() string   { return "scram.Key(hidden)" }
func (Key) GoString() string { return "scram.Key(hidden)" }

// Derive computes the Secret and the ClientKey of a password as PostgreSQL
// does, salt being raw bytes. It costs iterations hashes; a count outside 1
// to MaxIterations is ErrIterations.
func Derive(password, salt string, iterations int) (Secret, Key, error) {
	if iterations < 1 || iterations > MaxIterations {
		return Secret{}, Key{}, fmt.Errorf("%w: %d", ErrIterations, iterations)
	}
	salted, err := pbkdf2.Key(sha256.New, prepare(password), []byte(salt), iterations, KeySize)
	if err != nil {
		return Secret{}, Key{}, fmt.Errorf("derive SCRAM keys: %w", err)
	}
	client := mac(Key(salted), "Client Key")
	return Secret{
		Iterations: iterations,
		Salt:       salt,
		StoredKey:  client.hash(),
		ServerKey:  mac(Key(salted), "Server Key"),
	}, client, nil
}

func mac(key Key, text string) Key {
	h := hmac.New(sha256.New, key[:])
	h.Write([]byte(text))
	return Key(h.Sum(nil))
}

// hash makes a StoredKey of a ClientKey.
func (k Key) hash() Key { return sha256.Sum256(k[:]) }

// xor makes a proof of a ClientKey and its signature, and the reverse.
func (k Key) xor(other Key) Key {
	var out Key
	subtle.XORBytes(out[:], k[:], other[:])
	return out
}

// equal takes the same time whatever the keys are.
func (k Key) equal(other Key) bool { return subtle.ConstantTimeCompare(k[:], other[:]) == 1 }
