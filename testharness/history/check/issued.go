package check

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/fenceproxy/fenceproxy/fencing"
	"github.com/fenceproxy/fenceproxy/testharness/history"
)

// issued looks whether every token that was accepted had been its lock's
// holder's by etcd's own history, and at a moment when it was claimed; and whether
// every mark, whenever the marks were looked at, and the token of every row is a
// holder's that was presented. That it was a holder's, and presented, at all needs
// no clock. When it was the holder's is known by bounds of the one clock; what lies
// between them is not held against anybody.
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

// issuedMarks is for marks. Nobody but who presents a token raises a mark to it.
func (f *facts) issuedMarks(key string, v *Verdict) {
	for _, marks := range f.looks() {
		mark := marks.Marks[key]
		if mark == 0 {
			continue
		}
		v.Judged++
		p := fencing.Pair{Key: key, Token: mark}
		t, held := f.holding[p]
		switch {
		case !held:
			v.Violations = append(v.Violations, Violation{Invariant: Issued, Key: key,
				Text: fmt.Sprintf("the mark %s, %d, never was a holder's token", when(marks.Asked), mark)})
		case !f.shown[p]:
			v.Violations = append(v.Violations, Violation{Invariant: Issued, Key: key, Piece: []fmt.Stringer{&t},
				Text: fmt.Sprintf("the mark %s, %d, is a token that nobody presented", when(marks.Asked), mark)})
		}
	}
}

// looks are all looks at the marks, in their order: the last one is that at the
// end, where there was one.
func (f *facts) looks() []history.MarksSeen {
	all := slices.SortedStableFunc(slices.Values(f.Marks), func(a, b history.MarksSeen) int { return cmp.Compare(a.Asked, b.Asked) })
	if f.Tables.Marks == nil {
		return all
	}
	return append(all, history.MarksSeen{Asked: history.Never, Marks: f.Tables.Marks})
}

// when says when the marks were looked at.
func when(asked history.Moment) string {
	if asked == history.Never {
		return "at the end"
	}
	return fmt.Sprintf("at %.6f", seconds(asked))
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
