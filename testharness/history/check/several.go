package check

import (
	"fmt"

	"github.com/fenceproxy/fenceproxy/testharness/history"
)

// several looks whether each account holds what it was opened with and what the
// transfers brought that are in the tables, and whether order and barrier have
// anything to say of a transaction under several locks, of which one was lost
// then. The balances need no clock.
func (f *facts) several(others ...Verdict) Verdict {
	v := Verdict{Invariant: Several}
	for _, other := range others {
		for _, found := range other.Violations {
			// What they find ends in the row that is out of its order.
			late, ok := found.Piece[len(found.Piece)-1].(history.Row)
			if op := f.writer[late.ID]; ok && op != nil && len(op.Tag) > 1 {
				found.Invariant = Several
				v.Violations = append(v.Violations, found)
			}
		}
	}
	want := map[string]int64{}
	for key := range f.Tables.Balances {
		want[key] = f.Tables.Opening
	}
	for i := range f.Ops {
		op := &f.Ops[i]
		if op.Kind != history.KindWrite || op.Move == nil {
			continue
		}
		v.Judged++
		// Accounts that are there no more held something too.
		for _, key := range []string{op.Move.From, op.Move.To} {
			if _, ok := want[key]; !ok {
				want[key] = f.Tables.Opening
			}
		}
		if f.committed(op) {
			want[op.Move.From] -= op.Move.Amount
			want[op.Move.To] += op.Move.Amount
		}
	}
	for _, key := range f.keys {
		if got := f.Tables.Balances[key]; got != want[key] {
			v.Violations = append(v.Violations, Violation{Invariant: Several, Key: key,
				Text: fmt.Sprintf("the account holds %d, and with all transfers that are there it should hold %d", got, want[key])})
		}
	}
	return v
}
