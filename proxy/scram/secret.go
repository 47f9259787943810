package scram

import (
	"encoding/base64"
	"fmt"
	"math"
	"strconv"
	"strings"
)

const (
	// MaxSecretLength bounds the text of a secret, in bytes
	// (MAX_ENCRYPTED_PASSWORD_LEN in crypt.h).
	MaxSecretLength = 512

	secretScheme = "SCRAM-SHA-256"
)

// A Secret is what PostgreSQL stores of a role's password: enough to verify a
// client, not to be one. Two Secrets may be compared with ==.
type Secret struct {
	Iterations int
	Salt       string // raw bytes
	StoredKey  Key
	ServerKey  Key
}

// ParseSecret reads the form of pg_authid.rolpassword,
//
//	SCRAM-SHA-256$<iterations>:<salt>$<StoredKey>:<ServerKey>
//
// (parse_scram_secret in auth-scram.c). Anything else is ErrMalformedSecret,
// and ErrIterations too for a count outside 1 to 2³¹−1. Errors don't quote the
// text.
func ParseSecret(text string) (Secret, error) {
	if len(text) > MaxSecretLength {
		return Secret{}, fmt.Errorf("%w: longer than %d bytes", ErrMalformedSecret, MaxSecretLength)
	}
	rest, ok := strings.CutPrefix(text, secretScheme+"$")
	if !ok {
		return Secret{}, fmt.Errorf("%w: it does not begin with %s$", ErrMalformedSecret, secretScheme)
	}
	iterations, rest, _ := strings.Cut(rest, ":")
	salt, rest, _ := strings.Cut(rest, "$")
	storedKey, serverKey, _ := strings.Cut(rest, ":")

	var s Secret
	var err error
	if s.Iterations, err = parseIterations(iterations); err != nil {
		return Secret{}, fmt.Errorf("%w: %w", ErrMalformedSecret, err)
	}
	raw, ok := decode(salt)
	if !ok || len(raw) == 0 {
		return Secret{}, fmt.Errorf("%w: bad salt", ErrMalformedSecret)
	}
	s.Salt = string(raw)
	if s.StoredKey, ok = decodeKey(storedKey); !ok {
		return Secret{}, fmt.Errorf("%w: bad StoredKey", ErrMalformedSecret)
	}
	if s.ServerKey, ok = decodeKey(serverKey); !ok {
		return Secret{}, fmt.Errorf("%w: bad ServerKey", ErrMalformedSecret)
	}
	return s, nil
}

// Encode returns the form that ParseSecret reads.
func (s Secret) Encode() string {
	return fmt.Sprintf("%s$%d:%s$%s:%s", secretScheme, s.Iterations, encode(s.Salt), encode(string(s.StoredKey[:])), encode(string(s.ServerKey[:])))
}

// String hides the keys, from which a password can be guessed.
func (s Secret) String() string   { return "scram.Secret(hidden)" }
func (s Secret) GoString() string { return s.String() }

// parseIterations reads a count as PostgreSQL writes it: digits only.
func parseIterations(digits string) (int, error) {
	if digits == "" || strings.Trim(digits, "0123456789") != "" {
		return 0, fmt.Errorf("%w: it is not a number", ErrIterations)
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || n < 1 || n > math.MaxInt32 {
		return 0, fmt.Errorf("%w: it is not from 1 to %d", ErrIterations, math.MaxInt32)
	}
	return int(n), nil
}

func encode(raw string) string { return base64.StdEncoding.EncodeToString([]byte(raw)) }

// decode reads base64 as PostgreSQL does (pg_b64_decode in base64.c): padded
// and, other than Go's decoder, without line breaks.
func decode(text string) ([]byte, bool) {
	if strings.ContainsAny(text, "\r\n") {
		return nil, false
	}
	raw, err := base64.StdEncoding.DecodeString(text)
	return raw, err == nil
}

func decodeKey(text string) (Key, bool) {
	raw, ok := decode(text)
	if !ok || len(raw) != KeySize {
		return Key{}, false
	}
	return Key(raw), true
}
