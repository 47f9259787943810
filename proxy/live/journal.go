package live

import (
	"cmp"
	"slices"
	"sort"
	"sync"
	"time"
)

// The events that a Journal keeps: of each sort so many, so that none pushes out
// another. A worker that is refused again and again leaves what it was superseded by.
const (
	// DefaultRecent is how many accepted claims and evictions.
	DefaultRecent = 1000
	// DefaultRefusals is how many refused statements, and as many refused claims.
	DefaultRefusals = 1000
	// DefaultSessions is how many begins and ends of sessions.
	DefaultSessions = 500
)

// A Journal keeps the last events. Whoever adds one never waits for a reader: each
// reader remembers how far it has come, and hears how many it missed.
type Journal struct {
	mu       sync.Mutex
	last     uint64 // number of the last event
	recent   ring
	refusals ring
	claims   ring // refused ones
	sessions ring
	changed  chan struct{} // closed at the next event; nil: nobody waits for it
}

// NewJournal returns an empty Journal of the default lengths.
func NewJournal() *Journal {
	return &Journal{
		recent: ring{most: DefaultRecent}, refusals: ring{most: DefaultRefusals},
		claims: ring{most: DefaultRefusals}, sessions: ring{most: DefaultSessions},
	}
}

// of is where events of a kind are kept.
func (j *Journal) of(k Kind) *ring {
	switch k {
	case SessionStarted, SessionEnded:
		return &j.sessions
	case StatementRefused:
		return &j.refusals
	case ClaimRefused:
		return &j.claims
	default:
		return &j.recent
	}
}

// Add takes an event, and gives it its number and its time.
func (j *Journal) Add(e Event) {
	e = e.bounded()
	j.mu.Lock()
	defer j.mu.Unlock()
	j.last++
	e.Number, e.At = j.last, time.Now()
	j.of(e.Kind).add(e)
	if j.changed != nil {
		close(j.changed)
		j.changed = nil
	}
}

// After returns the events that followed the one with a number, the oldest first,
// and how many more there were that are kept no longer. After 0 are all.
func (j *Journal) After(number uint64) (events []Event, missed uint64) {
	events, last := j.copyAfter(number)
	if number >= last {
		return nil, 0
	}
	slices.SortFunc(events, func(a, b Event) int { return cmp.Compare(a.Number, b.Number) })
	return events, last - number - uint64(len(events))
}

// copyAfter returns the events in the order of their sorts, and the number of the last
// one of all.
func (j *Journal) copyAfter(number uint64) (events []Event, last uint64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, r := range []*ring{&j.recent, &j.refusals, &j.claims, &j.sessions} {
		events = r.appendAfter(events, number)
	}
	return events, j.last
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
	all := j.refusals.appendAfter(nil, 0)
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

// appendAfter adds copies of those that followed the one with a number, the oldest
// first. It copies no more than these, for whoever adds an event waits for it.
func (r *ring) appendAfter(events []Event, number uint64) []Event {
	at := func(i int) *Event { return &r.events[(r.next+i)%len(r.events)] }
	for i := sort.Search(len(r.events), func(i int) bool { return at(i).Number > number }); i < len(r.events); i++ {
		events = append(events, *at(i))
	}
	return events
}
