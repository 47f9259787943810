package history

import (
	"cmp"
	"fmt"
	"slices"
	"sort"
	"strings"

	"github.com/fenceproxy/fenceproxy/fencing"
)

// A Span is when something happened that was only seen from afar: not before
// Lo, and not after Hi.
type Span struct {
	Lo Moment `json:"lo"`
	Hi Moment `json:"hi"`
}

// A LockEvent is a change of one client's place in line for a lock, by etcd's
// own history.
type LockEvent struct {
	Key      string        `json:"key"`   // the resource key
	Place    string        `json:"place"` // the etcd key
	Token    fencing.Token `json:"token"` // its create revision
	Gone     bool          `json:"gone,omitempty"`
	Revision int64         `json:"revision"`
	When     Span          `json:"when"`
}

func (e *LockEvent) String() string {
	if e.Gone {
		return fmt.Sprintf("etcd: token %d of %s was gone at revision %d", e.Token, e.Key, e.Revision)
	}
	return fmt.Sprintf("etcd: token %d of %s got in line", e.Token, e.Key)
}

// A Glance is a linearizable read of etcd's revision: what is above it happened
// after Asked, and what isn't above it before Answered.
type Glance struct {
	Revision int64  `json:"revision"`
	Asked    Moment `json:"asked"`
	Answered Moment `json:"answered"`
}

// A Tenure is the time for which one client held a lock.
type Tenure struct {
	Key   string
	Place string
	Token fencing.Token
	From  Span
	To    Span // Lo is Never if it never ended
}

func (t *Tenure) String() string {
	if t.To.Lo == Never {
		return fmt.Sprintf("etcd: token %d held %s to the end", t.Token, t.Key)
	}
	return fmt.Sprintf("etcd: token %d held %s, and was gone later", t.Token, t.Key)
}

// Tenures works out who held which lock when: of the places in line that are
// there, the one with the lowest create revision.
func Tenures(events []LockEvent) map[string][]Tenure {
	ordered := slices.Clone(events)
	slices.SortStableFunc(ordered, func(a, b LockEvent) int { return int(a.Revision - b.Revision) })
	lines := map[string][]LockEvent{} // those in line, by create revision
	tenures := map[string][]Tenure{}
	for _, e := range ordered {
		line := lines[e.Key]
		at := slices.IndexFunc(line, func(p LockEvent) bool { return p.Token == e.Token })
		switch {
		case !e.Gone && at < 0:
			// A new place is always behind all others.
			line = append(line, e)
			if len(line) == 1 {
				tenures[e.Key] = append(tenures[e.Key], begin(e, e.When))
			}
		case e.Gone && at >= 0:
			line = slices.Delete(line, at, at+1)
			if at > 0 {
				break
			}
			all := tenures[e.Key]
			all[len(all)-1].To = e.When
			if len(line) > 0 {
				tenures[e.Key] = append(all, begin(line[0], e.When))
			}
		}
		lines[e.Key] = line
	}
	return tenures
}

func begin(e LockEvent, from Span) Tenure {
	return Tenure{Key: e.Key, Place: e.Place, Token: e.Token, From: from, To: Span{Never, Never}}
}

// Bound narrows down when events happened by what glances saw. An event that
// no glance was before keeps its Lo.
func Bound(events []LockEvent, glances []Glance) {
	byRevision := slices.Clone(glances)
	slices.SortFunc(byRevision, func(a, b Glance) int { return cmp.Compare(a.Revision, b.Revision) })
	n := len(byRevision)
	lo, hi := make([]Moment, n+1), make([]Moment, n+1) // of the glances below i, and from i on
	hi[n] = Never
	for i, g := range byRevision {
		lo[i+1] = max(lo[i], g.Asked)
	}
	for i := n - 1; i >= 0; i-- {
		hi[i] = min(hi[i+1], byRevision[i].Answered)
	}
	for i := range events {
		e := &events[i]
		at := sort.Search(n, func(j int) bool { return byRevision[j].Revision >= e.Revision })
		e.When.Lo, e.When.Hi = max(e.When.Lo, lo[at]), min(e.When.Hi, hi[at])
	}
}

// A Fault is something that was broken for a while.
type Fault struct {
	Kind   string `json:"kind"`
	Target string `json:"target"`
	// Worker says that only a worker was harmed, and nothing that others use.
	Worker bool   `json:"worker,omitempty"`
	Begin  Moment `json:"begin"`
	End    Moment `json:"end"`
	Text   string `json:"text,omitempty"` // what went wrong with it
}

func (f *Fault) String() string { return "fault: " + strings.TrimSpace(f.Kind+" "+f.Target) }

// A Holding answers whether and when a token was its lock's holder's.
type Holding map[fencing.Pair]Tenure

// Holdings makes a Holding of tenures.
func Holdings(tenures map[string][]Tenure) Holding {
	h := Holding{}
	for key, all := range tenures {
		for _, t := range all {
			h[fencing.Pair{Key: key, Token: t.Token}] = t
		}
	}
	return h
}
