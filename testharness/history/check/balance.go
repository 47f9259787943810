package check

import (
	"fmt"

	"github.com/fenceproxy/fenceproxy/testharness/history"
)

// balance looks whether each account holds what it was opened with and what the
// transfers brought that are in the tables. That both tokens of a transfer were
// current is what order, barrier and read say, of each of its rows. It needs no
// clock.
func (f *facts) balance() Verdict {
	v := Verdict{Invariant: Balance}
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
		if f.committed(op) {
			want[op.Move.From] -= op.Move.Amount
			want[op.Move.To] += op.Move.Amount
		}
	}
	for _, key := range f.keys {
		if got := f.Tables.Balances[key]; got != want[key] {
			v.Violations = append(v.Violations, Violation{Invariant: Balance, Key: key,
				Text: fmt.Sprintf("the account holds %d, and with all transfers that are there it should hold %d", got, want[key])})
		}
	}
	return v
}
