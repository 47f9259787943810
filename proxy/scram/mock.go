package scram

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
)

// saltSize is the size of the salts that PostgreSQL makes
// (SCRAM_DEFAULT_SALT_LEN in scram-common.h).
const saltSize = 16

// A Mock makes up secrets for users who have none, so that a client can't
// tell them from users whose password it got wrong: a user's salt and
// iteration count are the same each time. One Mock may serve any number of
// exchanges at once.
type Mock struct {
	key        [KeySize]byte
	iterations int
}

// NewMock returns a Mock for a process, or, if all of them give the same key,
// for several proxies behind one address; no key makes one up. The key must
// stay unknown to clients: who has it can tell mock salts from real ones.
// iterations is what the database's secrets have, 0 for DefaultIterations.
func NewMock(key []byte, iterations int) *Mock {
	m := &Mock{iterations: iterations}
	if iterations <= 0 {
		m.iterations = DefaultIterations
	}
	if len(key) == 0 {
		rand.Read(m.key[:]) // never fails (crypto/rand)
		return m
	}
	m.key = sha256.Sum256(key)
	return m
}

// Salt returns the salt of user, 16 raw bytes.
func (m *Mock) Salt(user string) string {
	h := hmac.New(sha256.New, m.key[:])
	h.Write([]byte(user))
	return string(h.Sum(nil)[:saltSize])
}

// secret returns a Secret that nobody knows a key of: its keys are no
// hashes. PostgreSQL: mock_scram_secret in auth-scram.c.
func (m *Mock) secret(user string) Secret {
	return Secret{Iterations: m.iterations, Salt: m.Salt(user)}
}
