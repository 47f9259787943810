package check

import (
	"fmt"

	"github.com/fenceproxy/fenceproxy/testharness/history"
)

// exact looks whether each write that was acknowledged is in the tables, once
// and as it was acknowledged; each that was refused or taken back isn't there;
// each without an answer is there whole or not at all; and nothing else is
// there. It needs no clock.
func (f *facts) exact() Verdict {
	v := Verdict{Invariant: Exact}
	wrong := func(key, text string, piece ...fmt.Stringer) {
		v.Violations = append(v.Violations, Violation{Invariant: Exact, Key: key, Text: text, Piece: piece})
	}
	for i := range f.Ops {
		op := &f.Ops[i]
		if op.Kind != history.KindWrite {
			continue
		}
		v.Judged++
		for _, id := range op.Undone {
			if r, ok := f.there[id]; ok {
				wrong(r.Key, "a row is there that was taken back", op, r)
			}
		}
		f.exactOp(op, wrong)
	}
	for _, r := range f.twice {
		wrong(r.Key, "a row is there twice", f.rowAndWriter(r)...)
	}
	for _, key := range f.keys {
		for _, r := range f.rows[key] {
			if f.writer[r.ID] == nil {
				wrong(key, "a row is there that nobody wrote", r)
			}
		}
		f.exactNumbers(key, wrong)
	}
	return v
}

func (f *facts) exactOp(op *history.Op, wrong func(key, text string, piece ...fmt.Stringer)) {
	found := 0
	for _, want := range op.Rows {
		got, ok := f.there[want.ID]
		switch {
		case ok && op.Outcome == history.OutcomeRefused:
			wrong(want.Key, "a row of a refused write is there", op, got)
			return
		case !ok && op.Outcome == history.OutcomeOK:
			wrong(want.Key, fmt.Sprintf("row %d of an acknowledged write is not there", want.ID), op)
			return
		case ok && (got.Key != want.Key || got.Token != want.Token || want.N != 0 && got.N != want.N):
			wrong(want.Key, fmt.Sprintf("what was acknowledged is %s", want), op, got)
			return
		case ok:
			found++
		}
	}
	if found > 0 && found < len(op.Rows) {
		wrong(op.Rows[0].Key, fmt.Sprintf("%d of the %d rows of one transaction are there", found, len(op.Rows)), op)
	}
}

// exactNumbers looks whether a key's rows are numbered from 1 to its counter.
func (f *facts) exactNumbers(key string, wrong func(key, text string, piece ...fmt.Stringer)) {
	byNumber, counter := map[int64]history.Row{}, f.Tables.Counters[key]
	for _, r := range f.rows[key] {
		if r.N == 0 {
			continue
		}
		if other, ok := byNumber[r.N]; ok {
			wrong(key, fmt.Sprintf("two rows have number %d: an update was lost", r.N), append(f.rowAndWriter(other), f.rowAndWriter(r)...)...)
		}
		byNumber[r.N] = r
		if r.N > counter {
			wrong(key, fmt.Sprintf("a row has number %d, and the counter is %d", r.N, counter), f.rowAndWriter(r)...)
		}
	}
	if got := int64(len(byNumber)); got != counter {
		wrong(key, fmt.Sprintf("the counter is %d, and %d rows are numbered", counter, got))
	}
}
