package live

import (
	"strings"
	"time"
	"unicode/utf8"

	"github.com/fenceproxy/fenceproxy/fencing"
)

// A Kind is what an Event tells of.
type Kind uint8

const (
	// SessionStarted: a client has logged in.
	SessionStarted Kind = iota
	// SessionEnded: What is why, and Code the SQLSTATE if there is one.
	SessionEnded
	// Claimed: a claim raised a mark or found it raised; What is its outcome.
	Claimed
	// ClaimRefused: a claim failed.
	ClaimRefused
	// StatementRefused: a client was sent a refusal; What is where it came from.
	StatementRefused
	// SessionEvicted: a higher claim ends a session; What is what that was doing.
	SessionEvicted
	// BackendEnded: a claim ended what blocked it in PostgreSQL; What is which.
	BackendEnded
)

var kindNames = [...]string{
	"session started", "session ended", "claim", "claim refused", "statement refused", "session evicted", "backend ended",
}

func (k Kind) String() string { return kindNames[k] }

// An Event is one thing that has happened. What it says nothing of is zero.
type Event struct {
	Number uint64 // counts the events of this proxy, from 1
	At     time.Time
	Kind   Kind

	Session                     uint64 // the number that the log has
	PID                         uint32 // of its process in PostgreSQL
	User, Database, Application string
	Remote                      string // the client's address

	Key    string
	Token  fencing.Token // that the session or claim presented
	Higher fencing.Token // that it was superseded by

	Code                  string // SQLSTATE
	Message, Detail, Hint string // as the client was told
	What                  string

	Evicted, Ended int           // by a claim: sessions of this proxy, backends in PostgreSQL
	Took           time.Duration // a claim or a session
}

// maxText is how much of a text an Event keeps, in bytes.
const maxText = 1 << 10

// bounded returns the event with texts of bounded length.
func (e Event) bounded() Event {
	for _, text := range [...]*string{&e.Message, &e.Detail, &e.Hint, &e.What} {
		*text = cut(*text)
	}
	return e
}

// cut returns a copy of the beginning of a long text, which it doesn't keep alive.
func cut(text string) string {
	if len(text) <= maxText {
		return text
	}
	n := maxText
	for n > 0 && !utf8.RuneStart(text[n]) {
		n--
	}
	return strings.Clone(text[:n]) + "…"
}
