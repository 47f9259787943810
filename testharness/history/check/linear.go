package check

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/anishathalye/porcupine"

	"github.com/fenceproxy/fenceproxy/fencing"
	"github.com/fenceproxy/fenceproxy/testharness/history"
)

// linear looks whether all of a key's operations, the refused ones too, can be
// put into one order in which each of them makes sense: a claim raises the mark
// to its token, a write needs the mark to be its token, and what is refused as
// stale finds a higher mark. Porcupine looks for the order, in one window of the
// history after the other.
func (f *facts) linear(limits Limits) Verdict {
	v := Verdict{Invariant: Linear}
	for _, key := range f.keys {
		steps := f.steps(key, limits)
		v.Judged += len(steps)
		for _, w := range windows(steps) {
			switch porcupine.CheckOperationsTimeout(w.model(), w.operations(), limits.Search) {
			case porcupine.Ok:
			case porcupine.Illegal:
				w.shrink(limits)
				v.Violations = append(v.Violations, w.violation(key, "no order of these operations makes sense"))
			case porcupine.Unknown:
				undecided := w.violation(key, fmt.Sprintf("whether these operations have an order was not decided within %v", limits.Search))
				undecided.Undecided = true
				v.Violations = append(v.Violations, undecided)
			}
		}
	}
	return v
}

// A state is what stands in the database for one key.
type state struct {
	mark fencing.Token
	n    int64 // the counter
}

// effect is what a step does to the state, or says of it.
type effect uint8

const (
	effectClaim      effect = iota + 1 // raises the mark to the token, which is not below it
	effectClaimMaybe                   // the same, or nothing where the mark is higher: nobody was told
	effectStale                        // finds the mark above the token
	effectWrite                        // finds the mark at the token, and counts from first to last
	effectRead                         // finds the counter at last
)

// A step is an operation, as far as it concerns one key.
type step struct {
	op          *history.Op
	effect      effect
	token       fencing.Token
	first, last int64
	ended       history.Moment // Never for one without an answer, which need not take effect
	settled     history.Moment // from when on it can't any more
}

// keepsState reports whether a step leaves the state as it was.
func (s *step) keepsState() bool { return s.effect == effectStale || s.effect == effectRead }

// apply is the sequential specification.
func (s *step) apply(now state) (bool, state) {
	switch s.effect {
	case effectClaim:
		return s.token >= now.mark, state{s.token, now.n}
	case effectClaimMaybe:
		return true, state{max(s.token, now.mark), now.n}
	case effectStale:
		return now.mark > s.token, now
	case effectWrite:
		if s.last == 0 {
			return now.mark == s.token, now
		}
		return now.mark == s.token && s.first == now.n+1, state{now.mark, s.last}
	case effectRead:
		return now.n == s.last, now
	default:
		return false, now
	}
}

// steps are a key's operations that say something of its state, by Invoke.
func (f *facts) steps(key string, limits Limits) []*step {
	var out []*step
	for i := range f.Ops {
		op := &f.Ops[i]
		token := op.Token(key)
		if token == 0 {
			continue
		}
		if s := f.step(op, key, token, limits); s != nil {
			out = append(out, s)
		}
	}
	slices.SortStableFunc(out, func(a, b *step) int { return cmp.Compare(a.op.Invoke, b.op.Invoke) })
	// The first of a token's claims that may still be carried out stands for all.
	maybe := map[fencing.Token]*step{}
	return slices.DeleteFunc(out, func(s *step) bool {
		if s.effect != effectClaimMaybe {
			return false
		}
		first := maybe[s.token]
		if first == nil {
			maybe[s.token] = s
			return false
		}
		first.settled = max(first.settled, s.settled)
		return true
	})
}

// step is nil for an operation that says nothing: a refusal for another reason
// than a higher mark, and a write without an answer that isn't there.
func (f *facts) step(op *history.Op, key string, token fencing.Token, limits Limits) *step {
	s := &step{op: op, token: token, ended: op.Ended(), settled: op.Ended()}
	ok := op.Outcome == history.OutcomeOK
	switch {
	case op.Kind == history.KindClaim && !ok && f.mayRaise(op, fencing.Pair{Key: key, Token: token}, limits):
		s.effect, s.ended, s.settled = effectClaimMaybe, history.Never, f.settled(op, limits)
	case op.Outcome == history.OutcomeRefused:
		// Of several locks it isn't known which of them was lost.
		if op.Code != fencing.CodeStale || len(op.Tag) > 1 || !op.Asks() {
			return nil
		}
		s.effect = effectStale
	case op.Kind == history.KindClaim && ok:
		s.effect = effectClaim
	case op.Kind == history.KindRead && ok && op.Seen != nil && op.Key == key:
		s.effect, s.last = effectRead, op.Seen.N
	case op.Kind == history.KindWrite && (ok || f.committed(op)):
		s.effect = effectWrite
		for _, r := range op.Rows {
			n := f.there[r.ID].N
			if r.Key != key || n == 0 {
				continue
			}
			if s.first == 0 || n < s.first {
				s.first = n
			}
			s.last = max(s.last, n)
		}
	default:
		return nil
	}
	return s
}
