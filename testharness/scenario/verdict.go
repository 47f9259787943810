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
	// answer before (invariant I2 of the protocol). A story sees to it that
	// what is acknowledged then was not carried out earlier: it sends it
	// afterwards, or to a process that has stopped.
	StaleCommits int `json:"stale_commits"`
	// ForgedCommits counts the commits that were acknowledged under a number
	// that nobody ever got with the lock.
	ForgedCommits int `json:"forged_commits"`
	// Unfounded counts the refusals for a higher token (LF001, LF005) of those whose
	// numbers they had got with their locks, when no session had had an answer
	// under a higher one: rightful holders, or former ones whom nobody followed.
	Unfounded  int         `json:"unfounded"`
	Rejections []Rejection `json:"rejections"`
	Rows       []string    `json:"rows"`
	Wrong      []string    `json:"wrong"` // what of it should not be so
	Events     []Event     `json:"events"`
}

// Damaged says whether something happened that a lock is there to prevent.
func (v Verdict) Damaged() bool {
	return v.StaleCommits > 0 || v.ForgedCommits > 0 || len(v.Wrong) > 0
}

// Judge reads the history of a run from its beginning.
func Judge(arm Arm, events []Event) Verdict {
	v := Verdict{Arm: arm, Rejections: []Rejection{}, Rows: []string{}, Wrong: []string{}, Events: events}
	at := newFront()
	for _, e := range events {
		at.advance(e)
		switch e.Kind {
		case KindCommit:
			switch {
			case at.forged(e):
				v.ForgedCommits++
			case at.stale(e) != 0:
				v.StaleCommits++
			}
		case KindRefused:
			if slices.Contains(tookOver, e.Code) && len(e.holds()) > 0 && !at.forged(e) && at.stale(e) == 0 {
				v.Unfounded++
			}
			v.Rejections = append(v.Rejections, Rejection{e.Actor, e.Key, e.Token, e.Code, e.Code.Name(), e.Text})
		case KindRows:
			v.Rows = append(v.Rows, e.Text)
		case KindWrong:
			v.Wrong = append(v.Wrong, e.Text)
		}
	}
	return v
}

// A front is how far a history has come: which numbers were got with locks,
// and the highest of them, for each key, that a session had an answer under.
// Numbers that nobody got don't count: nobody is behind a lie.
type front struct {
	granted map[Hold]bool
	highest map[string]fencing.Token
}

func newFront() *front {
	return &front{granted: map[Hold]bool{}, highest: map[string]fencing.Token{}}
}

// advance takes the next event in.
func (f *front) advance(e Event) {
	switch e.Kind {
	case KindLock:
		f.granted[Hold{e.Key, e.Token}] = true
	case KindConnected:
		for _, h := range e.holds() {
			if f.granted[h] {
				f.highest[h.Key] = max(f.highest[h.Key], h.Token)
			}
		}
	case KindRenewed:
		*f = *newFront()
	}
}

// forged says whether the event shows a number that nobody got. An event that
// shows none is no lie.
func (f *front) forged(e Event) bool {
	return slices.ContainsFunc(e.holds(), func(h Hold) bool { return !f.granted[h] })
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
