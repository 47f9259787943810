package live

import (
	"sync"
	"time"
)

// The events that a Journal keeps.
const (
	// DefaultRecent is how many of all kinds, for readers who follow.
	DefaultRecent = 1000
	// DefaultRefusals is how many refused statements; other events don't push
	// them out.
	DefaultRefusals = 1000
)

// A Journal keeps the last events. Whoever adds one never waits for a reader: each
// reader remembers how far it has come, and hears how many it missed.
type Journal struct {
	mu       sync.Mutex
	last     uint64 // number of the last event
	recent   ring
	refusals ring
	changed  chan struct{} // closed at the next event; nil: nobody waits for it
}

// NewJournal returns an empty Journal of the default lengths.
func NewJournal() *Journal {
	return &Journal{recent: ring{most: DefaultRecent}, refusals: ring{most: DefaultRefusals}}
}

// Add takes an event, and gives it its number and its time.
func (j *Journal) Add(e Event) {
	e = e.bounded()
	j.mu.Lock()
	defer j.mu.Unlock()
	j.last++
	e.Number, e.At = j.last, time.Now()
	j.recent.add(e)
	if e.Kind == StatementRefused {
		j.refusals.add(e)
	}
	if j.changed != nil {
		close(j.changed)
		j.changed = nil
	}
}

// After returns the events that followed the one with a number, the oldest first,
// and how many more there were that are kept no longer. After 0 are all.
func (j *Journal) After(number uint64) (events []Event, missed uint64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if number >= j.last {
		return nil, 0
	}
	all := j.recent.all()
	oldest := all[0].Number
	if number+1 < oldest {
		return all, oldest - number - 1
	}
	return all[number+1-oldest:], 0
}

// Changed returns what is closed at the next event. To follow without a gap, take
// it first, then After, then wait for it.
func (j *Journal) Changed() <-chan struct{} {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.changed == nil {
		j.changed = make(chan struct{})
	}
	return j.changed
}

// Refusals returns the last refused statements, the newest first.
func (j *Journal) Refusals() []Event {
	j.mu.Lock()
	defer j.mu.Unlock()
	all := j.refusals.all()
	for i, k := 0, len(all)-1; i < k; i, k = i+1, k-1 {
		all[i], all[k] = all[k], all[i]
	}
	return all
}

// A ring holds the last events, up to most. It grows as they come.
type ring struct {
	events []Event
	most   int
	next   int // where the next one goes when it is full
}

func (r *ring) add(e Event) {
	if len(r.events) < r.most {
		r.events = append(r.events, e)
		return
	}
	r.events[r.next] = e
	r.next = (r.next + 1) % r.most
}

// all returns a copy, the oldest first.
func (r *ring) all() []Event {
	return append(append(make([]Event, 0, len(r.events)), r.events[r.next:]...), r.events[:r.next]...)
}
