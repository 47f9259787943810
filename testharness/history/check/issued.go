package check

import (
	"fmt"
	"slices"
	"sort"

	"github.com/fenceproxy/fenceproxy/fencing"
	"github.com/fenceproxy/fenceproxy/testharness/history"
)

// durable looks whether each mark, at the end and whenever the marks were looked
// at, is at least as high as every claim that had been acknowledged by then.
// Where nobody looked at the marks at the end (nil, which an empty map is not)
// there was no fencing, and nothing to judge.
func (f *facts) durable() Verdict {
	v := Verdict{Invariant: Durable}
	if f.Tables.Marks == nil {
		return v
	}
	for _, key := range f.keys {
		for _, op := range f.claims[key] {
			if op.Outcome != history.OutcomeOK {
				continue
			}
			v.Judged++
			if mark := f.Tables.Marks[key]; mark < op.Token(key) {
				v.Violations = append(v.Violations, Violation{Invariant: Durable, Key: key,
					Text: fmt.Sprintf("the mark at the end is %d, and a claim of %d was acknowledged", mark, op.Token(key)), Piece: []fmt.Stringer{op}})
			}
		}
		f.durableThen(key, &v)
	}
	f.forgotten(&v)
	return v
}

// forgotten looks for sessions whose claim was acknowledged, and whose token the
// database didn't know later (LF002, where a higher claim is LF001): its mark was
// lower again then. It needs no clock.
func (f *facts) forgotten(v *Verdict) {
	for i := range f.Ops {
		op := &f.Ops[i]
		if !op.Claimed {
			continue
		}
		v.Judged++
		if op.Outcome == history.OutcomeRefused && op.Code == fencing.CodeNotHolder {
			v.Violations = append(v.Violations, Violation{Invariant: Durable, Key: op.Tag[0].Key, Piece: []fmt.Stringer{op},
				Text: "a session's claim was acknowledged, and its mark was gone or lower later"})
		}
	}
}

// durableThen is durable for the marks that were seen during the run. It needs
// the one clock of the machine.
func (f *facts) durableThen(key string, v *Verdict) {
	walls := f.walls(key)
	for _, seen := range f.Marks {
		n := sort.Search(len(walls), func(i int) bool { return walls[i].claim.Return >= seen.Asked })
		if n == 0 {
			continue
		}
		v.Judged++
		highest := walls[n-1].highest
		if mark := seen.Marks[key]; mark < highest.Token(key) {
			v.Violations = append(v.Violations, Violation{Invariant: Durable, Key: key, Piece: []fmt.Stringer{highest},
				Text: fmt.Sprintf("the mark was %d at %.6f, and a claim of %d had been acknowledged", mark, seconds(seen.Asked), highest.Token(key))})
		}
	}
}

// issued looks whether every token that was accepted had been its lock's
// holder's by etcd's own history, and at a moment when it was claimed; and whether
// every mark, whenever the marks were looked at, and the token of every row is a
// holder's. That a token was a holder's at all needs no clock. When it was is known by bounds of
// the one clock; what lies between them is not held against anybody.
func (f *facts) issued() Verdict {
	v := Verdict{Invariant: Issued}
	for _, key := range f.keys {
		for _, op := range f.claims[key] {
			if op.Outcome != history.OutcomeOK {
				continue
			}
			v.Judged++
			if found := f.accepted(fencing.Pair{Key: key, Token: op.Token(key)}, op); found != nil {
				v.Violations = append(v.Violations, *found)
			}
		}
		f.issuedMarks(key, &v)
		f.issuedRows(key, &v)
	}
	return v
}

func (f *facts) issuedMarks(key string, v *Verdict) {
	for _, marks := range append(slices.Clone(f.Marks), history.MarksSeen{Asked: history.Never, Marks: f.Tables.Marks}) {
		mark := marks.Marks[key]
		if mark == 0 {
			continue
		}
		v.Judged++
		if f.held(key, mark) {
			continue
		}
		when := "at the end"
		if marks.Asked != history.Never {
			when = fmt.Sprintf("at %.6f", seconds(marks.Asked))
		}
		v.Violations = append(v.Violations, Violation{Invariant: Issued, Key: key,
			Text: fmt.Sprintf("the mark %s, %d, never was a holder's token", when, mark)})
	}
}

// issuedRows says of each token that was no holder's the first row that has it.
func (f *facts) issuedRows(key string, v *Verdict) {
	known := map[fencing.Token]bool{}
	for _, r := range f.rows[key] {
		v.Judged++
		if known[r.Token] {
			continue
		}
		known[r.Token] = true
		if !f.held(key, r.Token) {
			v.Violations = append(v.Violations, Violation{Invariant: Issued, Key: key, Piece: f.rowAndWriter(r),
				Text: fmt.Sprintf("a write of token %d is there, which never was a holder's", r.Token)})
		}
	}
}

// accepted returns what is wrong with an acknowledged claim.
func (f *facts) accepted(p fencing.Pair, op *history.Op) *Violation {
	t, ok := f.holding[p]
	switch {
	case !ok:
		return &Violation{Invariant: Issued, Key: p.Key, Piece: []fmt.Stringer{op},
			Text: fmt.Sprintf("a claim of %d was acknowledged, which never was a holder's token", p.Token)}
	case op.Return < t.From.Lo:
		return &Violation{Invariant: Issued, Key: p.Key, Piece: []fmt.Stringer{op, &t},
			Text: fmt.Sprintf("a claim of %d was acknowledged before its client held the lock", p.Token)}
	case f.first[p] > t.To.Hi:
		// A token that was claimed in time goes on when the lock is lost.
		return &Violation{Invariant: Issued, Key: p.Key, Piece: []fmt.Stringer{&t, op},
			Text: fmt.Sprintf("a claim of %d was acknowledged, which was claimed for the first time when the lock was lost", p.Token)}
	}
	return nil
}
