package scenario

import (
	"slices"

	"github.com/fenceproxy/fenceproxy/fencing"
)

// A Rejection is a statement that was refused with one of our codes.
type Rejection struct {
	Actor   string        `json:"actor"`
	Key     string        `json:"key"`
	Token   fencing.Token `json:"token"`
	Code    fencing.Code  `json:"code"`
	Name    string        `json:"name"`
	Message string        `json:"message"`
}

// A Verdict is what the history of one run amounts to.
type Verdict struct {
	Arm Arm `json:"arm"`
	// StaleCommits counts the commits that were acknowledged under a token
	// although a session with a higher token for the same key had had an
	// answer before (invariant I2 of the protocol).
	StaleCommits int `json:"stale_commits"`
	// ForgedCommits counts the commits that were acknowledged under a number
	// that nobody ever got with the lock.
	ForgedCommits int         `json:"forged_commits"`
	Rejections    []Rejection `json:"rejections"`
	Rows          []string    `json:"rows"`
	Wrong         []string    `json:"wrong"` // what of it should not be so
	Events        []Event     `json:"events"`
}

// Damaged says whether something happened that a lock is there to prevent.
func (v Verdict) Damaged() bool {
	return v.StaleCommits > 0 || v.ForgedCommits > 0 || len(v.Wrong) > 0
}

// Judge reads the history of a run from its beginning.
func Judge(arm Arm, events []Event) Verdict {
	v := Verdict{Arm: arm, Rejections: []Rejection{}, Rows: []string{}, Wrong: []string{}, Events: events}
	granted := grants(events)
	at := newFront(granted)
	for _, e := range events {
		switch e.Kind {
		case KindConnected:
			at.advance(e)
		case KindCommit:
			switch {
			case !granted.all(e):
				v.ForgedCommits++
			case at.stale(e) != 0:
				v.StaleCommits++
			}
		case KindRefused:
			v.Rejections = append(v.Rejections, Rejection{e.Actor, e.Key, e.Token, e.Code, e.Code.Name(), e.Text})
		case KindRows:
			v.Rows = append(v.Rows, e.Text)
		case KindWrong:
			v.Wrong = append(v.Wrong, e.Text)
		}
	}
	return v
}

// granted is every number that somebody got together with a lock.
type granted map[Hold]bool

func grants(events []Event) granted {
	g := granted{}
	for _, e := range events {
		if e.Kind == KindLock {
			g[Hold{e.Key, e.Token}] = true
		}
	}
	return g
}

// all says whether what the event presents was all granted. An event that
// presents nothing is nobody's lie.
func (g granted) all(e Event) bool {
	return !slices.ContainsFunc(e.holds(), func(h Hold) bool { return !g[h] })
}

// A front is how far the sessions that had an answer have come, for each key.
// Numbers that were never granted don't count: nobody is behind a lie.
type front struct {
	granted granted
	highest map[string]fencing.Token
}

func newFront(g granted) *front { return &front{g, map[string]fencing.Token{}} }

func (f *front) advance(e Event) {
	for _, h := range e.holds() {
		if f.granted[h] {
			f.highest[h.Key] = max(f.highest[h.Key], h.Token)
		}
	}
}

// stale returns the token that one of the event's is behind, or 0.
func (f *front) stale(e Event) fencing.Token {
	for _, h := range e.holds() {
		if h.Token < f.highest[h.Key] {
			return f.highest[h.Key]
		}
	}
	return 0
}
