package live

import (
	"sort"
	"sync"
	"time"
)

// The events that a Journal keeps.
const (
	// DefaultRecent is how many claims, refusals and evictions, for readers who
	// follow.
	DefaultRecent = 1000
	// DefaultSessions is how many begins and ends of sessions; others aren't pushed
	// out by clients that come and go.
	DefaultSessions = 500
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
	sessions ring
	refusals ring
	changed  chan struct{} // closed at the next event; nil: nobody waits for it
}

// NewJournal returns an empty Journal of the default lengths.
func NewJournal() *Journal {
	return &Journal{recent: ring{most: DefaultRecent}, sessions: ring{most: DefaultSessions}, refusals: ring{most: DefaultRefusals}}
}

// Add takes an event, and gives it its number and its time.
func (j *Journal) Add(e Event) {
	e = e.bounded()
	j.mu.Lock()
	defer j.mu.Unlock()
	j.last++
	e.Number, e.At = j.last, time.Now()
	switch e.Kind {
	case SessionStarted, SessionEnded:
		j.sessions.add(e)
	case StatementRefused:
		j.refusals.add(e)
		j.recent.add(e)
	default:
		j.recent.add(e)
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
	events = merge(j.recent.after(number), j.sessions.after(number))
	return events, j.last - number - uint64(len(events))
}

// merge puts events in the order of their numbers.
func merge(a, b []Event) []Event {
	if len(a) == 0 || len(b) == 0 {
		return append(a, b...)
	}
	all := make([]Event, 0, len(a)+len(b))
	for len(a) > 0 && len(b) > 0 {
		next := &a
		if b[0].Number < a[0].Number {
			next = &b
		}
		all = append(all, (*next)[0])
		*next = (*next)[1:]
	}
	return append(append(all, a...), b...)
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
	all := j.refusals.after(0)
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

// after returns a copy of those that followed the one with a number, the oldest
// first. It copies no more than these, for whoever adds an event waits for it.
func (r *ring) after(number uint64) []Event {
	at := func(i int) *Event { return &r.events[(r.next+i)%len(r.events)] }
	from := sort.Search(len(r.events), func(i int) bool { return at(i).Number > number })
	events := make([]Event, 0, len(r.events)-from)
	for i := from; i < len(r.events); i++ {
		events = append(events, *at(i))
	}
	return events
}
