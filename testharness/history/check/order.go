package check

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/fenceproxy/fenceproxy/testharness/history"
)

// order looks whether the tokens of a key's rows ever fall, in the order in
// which their transactions committed by the key's own counter. It needs no clock.
func (f *facts) order() Verdict {
	v := Verdict{Invariant: Order}
	for _, key := range f.keys {
		counted := slices.Clone(f.rows[key])
		counted = slices.DeleteFunc(counted, func(r history.Row) bool { return r.N == 0 })
		slices.SortFunc(counted, func(a, b history.Row) int { return cmp.Compare(a.N, b.N) })
		for i := 1; i < len(counted); i++ {
			v.Judged++
			before, after := counted[i-1], counted[i]
			if after.Token < before.Token {
				v.Violations = append(v.Violations, Violation{Invariant: Order, Key: key,
					Text:  fmt.Sprintf("a row of token %d was committed after one of token %d", after.Token, before.Token),
					Piece: append(f.rowAndWriter(before), f.rowAndWriter(after)...)})
			}
		}
	}
	return v
}

// rowAndWriter is how a row is shown: by the operation that wrote it, where
// there is one.
func (f *facts) rowAndWriter(r history.Row) []fmt.Stringer {
	if op := f.writer[r.ID]; op != nil {
		return []fmt.Stringer{op, r}
	}
	return []fmt.Stringer{r}
}
