package scenario

import (
	"sync"
	"time"

	"github.com/fenceproxy/fenceproxy/fencing"
)

// Kind says what an Event is about.
type Kind int

// The kinds of events, in about the order that a story has them.
const (
	KindNote      Kind = iota // the story explains itself
	KindLock                  // the actor became the holder of Key with Token
	KindConnected             // the actor's session, tagged with Key and Token, had its first answer
	KindHeld                  // the actor looked, and its lock was still its own
	KindRead                  // a read was answered
	KindPause                 // the actor's process was stopped
	KindExpired               // etcd removed the actor's lock
	KindResume                // the actor's process goes on
	KindStep                  // a write was answered inside a transaction that is still open
	KindCommit                // a commit, or a write outside a block, was acknowledged
	KindRefused               // a statement was refused: Code and Text say why
	KindFailed                // a statement failed for another reason
	KindRows                  // what stands in the database at the end
)

var kindNames = [...]string{
	"note", "lock", "connected", "held", "read", "pause", "expired", "resume",
	"step", "commit", "refused", "failed", "rows",
}

func (k Kind) String() string {
	if k < 0 || int(k) >= len(kindNames) {
		return "unknown"
	}
	return kindNames[k]
}

// MarshalText puts the kind's name into JSON.
func (k Kind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// An Event is something that happened on a stage.
type Event struct {
	At    time.Duration `json:"at_ns"` // since the history began
	Actor string        `json:"actor,omitempty"`
	Kind  Kind          `json:"kind"`
	Key   string        `json:"key,omitempty"`
	Token fencing.Token `json:"token,omitempty"`
	Text  string        `json:"text"`
	Code  fencing.Code  `json:"code,omitempty"`  // SQLSTATE of a refusal or failure
	Story string        `json:"story,omitempty"` // what was refused or failed; Text is the answer then
}

// A History is what happened, in the order in which it was recorded. Safe for
// concurrent use.
type History struct {
	// Observe, if set, is told each event as it is recorded.
	Observe func(Event)

	begin time.Time

	mu     sync.Mutex
	events []Event
}

// NewHistory begins a history now.
func NewHistory() *History { return &History{begin: time.Now()} }

// Record adds an event and sets its time.
func (h *History) Record(e Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	e.At = time.Since(h.begin)
	h.events = append(h.events, e)
	if h.Observe != nil {
		h.Observe(e)
	}
}

// Events is a copy of what was recorded so far.
func (h *History) Events() []Event {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]Event(nil), h.events...)
}

// A Rejection is a statement that was refused with one of our codes.
type Rejection struct {
	Actor   string        `json:"actor"`
	Key     string        `json:"key"`
	Token   fencing.Token `json:"token"`
	Code    fencing.Code  `json:"code"`
	Name    string        `json:"name"`
	Message string        `json:"message"`
}

// A Verdict is what a history amounts to.
type Verdict struct {
	// StaleCommits counts the commits that were acknowledged under a token
	// although a session with a higher token for the same key had had an
	// answer before (invariant I2 of the protocol).
	StaleCommits int         `json:"stale_commits"`
	Rejections   []Rejection `json:"rejections"`
	Rows         []string    `json:"rows"`
	Events       []Event     `json:"events"`
}

// Judge reads a history from its beginning.
func Judge(events []Event) Verdict {
	v := Verdict{Rejections: []Rejection{}, Rows: []string{}, Events: events}
	highest := map[string]fencing.Token{}
	for _, e := range events {
		switch e.Kind {
		case KindConnected:
			highest[e.Key] = max(highest[e.Key], e.Token)
		case KindCommit:
			if e.Token < highest[e.Key] {
				v.StaleCommits++
			}
		case KindRefused:
			v.Rejections = append(v.Rejections, Rejection{e.Actor, e.Key, e.Token, e.Code, e.Code.Name(), e.Text})
		case KindRows:
			v.Rows = append(v.Rows, e.Text)
		}
	}
	return v
}
