package history

import (
	"fmt"
	"strings"

	"github.com/fenceproxy/fenceproxy/fencing"
)

// Kind is what an operation is.
type Kind uint8

// The kinds of operations.
const (
	// KindAcquire takes a lock in etcd. Tag is the lock, its token known once
	// the answer is OutcomeOK.
	KindAcquire Kind = iota + 1
	// KindClaim presents Tag to the database.
	KindClaim
	// KindRead reads one key: Seen.
	KindRead
	// KindWrite is one transaction that writes Rows, and moves money if Move
	// says so.
	KindWrite
	// KindRelease gives a lock back.
	KindRelease
)

var kindNames = names[Kind]{KindAcquire: "acquire", KindClaim: "claim", KindRead: "read", KindWrite: "write", KindRelease: "release"}

func (k Kind) String() string { return kindNames.of(k) }

// MarshalText puts the kind's name into JSON.
func (k Kind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText reads a kind's name.
func (k *Kind) UnmarshalText(text []byte) error { return kindNames.parse(k, text, "kind") }

// Outcome is how an operation ended, as far as its caller knows.
type Outcome uint8

// The outcomes.
const (
	// OutcomeUnknown: no answer came, so that it may or may not have happened,
	// or may happen still.
	OutcomeUnknown Outcome = iota
	// OutcomeOK: it was acknowledged.
	OutcomeOK
	// OutcomeRefused: it was answered with an error, Code, and must have left
	// nothing behind. Without a Code it never left its client.
	OutcomeRefused
)

var outcomeNames = names[Outcome]{OutcomeUnknown: "unknown", OutcomeOK: "ok", OutcomeRefused: "refused"}

func (o Outcome) String() string { return outcomeNames.of(o) }

// MarshalText puts the outcome's name into JSON.
func (o Outcome) MarshalText() ([]byte, error) { return []byte(o.String()), nil }

// UnmarshalText reads an outcome's name.
func (o *Outcome) UnmarshalText(text []byte) error { return outcomeNames.parse(o, text, "outcome") }

// names are the words of a small enumeration.
type names[T ~uint8] map[T]string

func (n names[T]) of(v T) string {
	if name, ok := n[v]; ok {
		return name
	}
	return fmt.Sprintf("unknown(%d)", uint8(v))
}

func (n names[T]) parse(to *T, text []byte, what string) error {
	for v, name := range n {
		if name == string(text) {
			*to = v
			return nil
		}
	}
	return fmt.Errorf("no %s is called %q", what, text)
}

// A Row is one row that was written under a lock. N is the place in its key's
// order of commits: what the key's counter was raised to in the same
// transaction. It is 0 for a row that was written without the counter, whose
// row lock would hide a race.
type Row struct {
	ID    int64         `json:"id"`
	Key   string        `json:"key"`
	Token fencing.Token `json:"token"`
	N     int64         `json:"n,omitempty"`
}

func (r Row) String() string {
	if r.N == 0 {
		return fmt.Sprintf("row %d of %s, token %d", r.ID, r.Key, r.Token)
	}
	return fmt.Sprintf("row %d of %s, token %d, number %d", r.ID, r.Key, r.Token, r.N)
}

// A Move is money that changes accounts, which are named as the keys that
// protect them.
type Move struct {
	From   string `json:"from"`
	To     string `json:"to"`
	Amount int64  `json:"amount"`
}

// Seen is what a read of one key under one token found: the counter, and the
// rows whose tokens are lower, but not below Floor. Those are told apart from any
// other set of rows by how many they are, their sum and their exclusive or. A
// Floor keeps a read from being about all that ever was; it is 0 for one that is.
type Seen struct {
	N     int64         `json:"n"`
	Floor fencing.Token `json:"floor,omitempty"`
	Count int64         `json:"count"`
	Sum   int64         `json:"sum"`
	Xor   int64         `json:"xor"`
}

// With returns what is seen when a row is there too.
func (s Seen) With(id int64) Seen {
	s.Count, s.Sum, s.Xor = s.Count+1, s.Sum+id, s.Xor^id
	return s
}

// An Op is one operation of a worker. Worker and Seq together name it.
type Op struct {
	Worker  string         `json:"worker"`
	Seq     int64          `json:"seq"`
	Kind    Kind           `json:"kind"`
	Form    string         `json:"form,omitempty"`    // how it was done: "copy", "startup"
	Tag     []fencing.Pair `json:"tag,omitempty"`     // the locks that it presents
	Lie     bool           `json:"lie,omitempty"`     // the token is no holder's, on purpose
	Retag   bool           `json:"retag,omitempty"`   // the session presented others before
	Claimed bool           `json:"claimed,omitempty"` // the tag is the session's, and was acknowledged in it
	Rows    []Row          `json:"rows,omitempty"`
	Undone  []int64        `json:"undone,omitempty"` // rows that it wrote and took back
	Move    *Move          `json:"move,omitempty"`
	Key     string         `json:"key,omitempty"`   // of those locks, the one that a read is of
	First   bool           `json:"first,omitempty"` // the first read after a claim
	Seen    *Seen          `json:"seen,omitempty"`
	Via     string         `json:"via,omitempty"`    // which way to the database it took
	Opened  Moment         `json:"opened,omitempty"` // when that was opened, if it was before
	Invoke  Moment         `json:"invoke"`
	Return  Moment         `json:"return,omitempty"` // of the answer, or when it was given up
	Outcome Outcome        `json:"outcome,omitempty"`
	Code    fencing.Code   `json:"code,omitempty"`
	Text    string         `json:"text,omitempty"`
}

// Ended is the last moment at which the operation can have taken effect.
func (o *Op) Ended() Moment {
	if o.Outcome == OutcomeUnknown {
		return Never
	}
	return o.Return
}

// Unsent reports whether the operation never left its client.
func (o *Op) Unsent() bool { return o.Outcome == OutcomeRefused && o.Code == "" }

// Asks reports whether the operation asks the database, and not etcd.
func (o *Op) Asks() bool { return o.Kind != KindAcquire && o.Kind != KindRelease }

// Token is the token that the operation presents for a key, 0 for none.
func (o *Op) Token(key string) fencing.Token { return fencing.Tag(o.Tag).Token(key) }

func (o *Op) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s", o.Worker, o.Kind)
	if o.Form != "" {
		fmt.Fprintf(&b, " (%s)", o.Form)
	}
	fmt.Fprintf(&b, " %s", fencing.Tag(o.Tag))
	switch {
	case len(o.Rows) == 1:
		fmt.Fprintf(&b, ": row %d", o.Rows[0].ID)
	case len(o.Rows) > 1:
		fmt.Fprintf(&b, ": rows %d to %d", o.Rows[0].ID, o.Rows[len(o.Rows)-1].ID)
	}
	if o.Move != nil {
		fmt.Fprintf(&b, ", %d from %s to %s", o.Move.Amount, o.Move.From, o.Move.To)
	}
	if o.Seen != nil {
		fmt.Fprintf(&b, ": the counter of %s at %d, %d rows under lower tokens", o.Key, o.Seen.N, o.Seen.Count)
	}
	fmt.Fprintf(&b, " → %s", o.Outcome)
	if o.Outcome != OutcomeOK && (o.Code != "" || o.Text != "") {
		fmt.Fprintf(&b, " %s %s", o.Code, o.Text)
	}
	return b.String()
}

// Lost reports whether an error's SQLSTATE tells nothing of what was done before
// it: one of classes 08 (connection exception) and 57P (the server shuts down,
// has crashed, or starts up).
func Lost(code string) bool { return strings.HasPrefix(code, "08") || strings.HasPrefix(code, "57P") }
