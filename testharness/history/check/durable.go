package check

import (
	"fmt"
	"sort"

	"github.com/fenceproxy/fenceproxy/fencing"
	"github.com/fenceproxy/fenceproxy/testharness/history"
)

// durable looks whether each mark, at the end and whenever the marks were looked
// at, is at least as high as every claim that had been acknowledged by then, as
// every mark that was seen before, and as the token of every write that is there.
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
		f.durableSeen(key, &v)
		f.durableRows(key, &v)
	}
	f.forgotten(&v)
	return v
}

// durableSeen looks whether a mark that was seen is lower at a later look,
// whatever the claim that raised it was answered. It needs no clock but the order
// of the looks.
func (f *facts) durableSeen(key string, v *Verdict) {
	var highest history.MarksSeen
	for _, seen := range f.looks() {
		mark, before := seen.Marks[key], highest.Marks[key]
		if before != 0 {
			v.Judged++
		}
		if mark < before {
			v.Violations = append(v.Violations, Violation{Invariant: Durable, Key: key,
				Text: fmt.Sprintf("the mark was %d %s, and %d %s", before, when(highest.Asked), mark, when(seen.Asked))})
			continue
		}
		highest = seen
	}
}

// durableRows looks whether the mark at the end is as high as the token of every
// row that is there: each was checked against the mark that there was then. It
// needs no clock.
func (f *facts) durableRows(key string, v *Verdict) {
	var highest history.Row
	for _, r := range f.rows[key] {
		if r.Token > highest.Token {
			highest = r
		}
	}
	if highest.Token == 0 {
		return
	}
	v.Judged++
	if mark := f.Tables.Marks[key]; mark < highest.Token {
		v.Violations = append(v.Violations, Violation{Invariant: Durable, Key: key, Piece: f.rowAndWriter(highest),
			Text: fmt.Sprintf("the mark at the end is %d, and a write of token %d is there", mark, highest.Token)})
	}
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
