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
	KindLine                  // the actor stands in line for Key
	KindLock                  // the actor became the holder of Key with Token
	KindConnected             // the actor's session, tagged with Key and Token, had its first answer
	KindHeld                  // the actor looked, and its lock was still its own
	KindRead                  // a read was answered
	KindPause                 // a process was stopped
	KindExpired               // the actor's lock was taken away: etcd removed it, or its time was over
	KindResume                // a process goes on
	KindSent                  // a statement is on its way, and its answer may take
	KindStep                  // a write was answered inside a transaction that is still open
	KindCommit                // a commit, or a write outside a block, was acknowledged
	KindRefused               // a statement was refused: Code and Text say why
	KindFailed                // a statement failed for another reason
	KindReleased              // the actor gave its lock back
	KindCrash                 // a process was killed
	KindFault                 // something was broken, but for pauses and crashes
	KindHeal                  // and mended
	KindRenewed               // etcd was replaced: no number that was got before means anything
	KindRows                  // what stands in the database at the end
	KindWrong                 // what of it is wrong
)

var kindNames = [...]string{
	"note", "line", "lock", "connected", "held", "read", "pause", "expired", "resume", "sent",
	"step", "commit", "refused", "failed", "released", "crash", "fault", "heal", "renewed", "rows", "wrong",
}

func (k Kind) String() string {
	if k < 0 || int(k) >= len(kindNames) {
		return "unknown"
	}
	return kindNames[k]
}

// MarshalText puts the kind's name into JSON.
func (k Kind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// The lanes of a history that are no worker's.
const (
	LaneEtcd     = "etcd"
	LaneProxy    = "proxy" // the names of Gates begin so
	LanePostgres = "PostgreSQL"
)

// A Hold is a lock and the number that its holder got with it.
type Hold struct {
	Key   string        `json:"key"`
	Token fencing.Token `json:"token"`
}

// An Event is something that happened on a stage.
type Event struct {
	At    time.Duration `json:"at_ns"`           // since the first event
	Actor string        `json:"actor,omitempty"` // whose lane it belongs to: a worker, a proxy, LaneEtcd, LanePostgres
	Via   string        `json:"via,omitempty"`   // the proxy that the actor's session goes through
	Kind  Kind          `json:"kind"`
	Key   string        `json:"key,omitempty"`
	Token fencing.Token `json:"token,omitempty"`
	Also  []Hold        `json:"also,omitempty"` // further locks that the actor presents
	Text  string        `json:"text"`
	Code  fencing.Code  `json:"code,omitempty"`  // SQLSTATE of a refusal or failure
	Story string        `json:"story,omitempty"` // what was refused or failed; Text is the answer then
}

// holds are all the locks that an event speaks of.
func (e Event) holds() []Hold {
	if e.Key == "" {
		return e.Also
	}
	return append([]Hold{{e.Key, e.Token}}, e.Also...)
}

// A History is what happened, in the order in which it was recorded. Safe for
// concurrent use.
type History struct {
	changed chan struct{}

	mu     sync.Mutex
	begin  time.Time // when the first event was recorded
	events []Event
}

// NewHistory begins a history.
func NewHistory() *History { return &History{changed: make(chan struct{}, 1)} }

// Record adds an event and sets its time.
func (h *History) Record(e Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	if h.begin.IsZero() {
		h.begin = now
	}
	e.At = now.Sub(h.begin)
	h.events = append(h.events, e)
	select {
	case h.changed <- struct{}{}:
	default:
	}
}

// Changed is sent to after an event was recorded, once for any number of
// them. It is for one reader.
func (h *History) Changed() <-chan struct{} { return h.changed }

// Events is a copy of what was recorded, from the n-th event on.
func (h *History) Events(n int) []Event {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]Event(nil), h.events[n:]...)
}
