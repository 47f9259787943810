package check

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/anishathalye/porcupine"

	"github.com/fenceproxy/fenceproxy/testharness/history"
)

// A window is a part of one key's history whose state before is known, so that
// it can be judged by itself.
type window struct {
	before state
	steps  []*step
}

// windows cuts a key's steps behind each acknowledged and counted write that
// nothing overlaps: what it was answered says what the state is there. Steps
// without an answer may take effect after a cut, if they still can: one whose
// token is above the mark there, or its numbers above the counter, hasn't yet, and
// any other has, or never will.
func windows(steps []*step) []window {
	var out []window
	now := window{}
	var open []*step // without an answer, and not judged yet
	var busy history.Moment
	for i, s := range steps {
		if s.ended == history.Never {
			open = append(open, s)
			continue
		}
		now.steps = append(now.steps, s)
		alone := s.op.Invoke > busy && (i+1 == len(steps) || nextInvoke(steps[i+1:]) > s.ended)
		busy = max(busy, s.ended)
		if !alone || s.effect != effectWrite || s.last == 0 || s.op.Outcome != history.OutcomeOK {
			continue
		}
		after := state{s.token, s.last}
		open = now.admit(open, after, s.op.Invoke)
		out = append(out, now)
		now = window{before: after}
	}
	now.steps = append(now.steps, open...)
	return append(out, now)
}

// nextInvoke is when the next step begins, answered or not.
func nextInvoke(rest []*step) history.Moment { return rest[0].op.Invoke }

// admit takes those steps without an answer into a window that can have taken
// effect in it, by the state behind it, and returns those that can only do so
// later: marks and counters never fall. What can't any more at the window's last
// write, and hasn't, is left out.
func (w *window) admit(open []*step, after state, last history.Moment) (later []*step) {
	for _, s := range open {
		switch {
		case s.token <= after.mark && s.last <= after.n:
			w.steps = append(w.steps, s)
		case s.settled >= last:
			later = append(later, s)
		}
	}
	return later
}

func (w *window) model() porcupine.Model {
	return porcupine.Model{
		Init: func() any { return w.before },
		Step: func(now, input, _ any) (bool, any) { return input.(*step).apply(now.(state)) },
	}
}

func (w *window) operations() []porcupine.Operation {
	out := make([]porcupine.Operation, len(w.steps))
	for i, s := range w.steps {
		out[i] = porcupine.Operation{ClientId: i, Input: s, Call: int64(s.op.Invoke), Return: int64(s.ended)}
	}
	return out
}

// illegal reports whether it is certain that steps have no order.
func (w *window) illegal(steps []*step, limits Limits) bool {
	part := window{w.before, steps}
	return porcupine.CheckOperationsTimeout(part.model(), part.operations(), limits.Search) == porcupine.Illegal
}

// shrinkable is how long a window may be for its steps to be tried one by one.
const shrinkable = 500

// shrink leaves out what isn't needed for there to be no order: what comes
// later, as long as nothing reaches over the cut, and steps that change nothing.
// A claim without an answer may reach over it: it can always be the last.
func (w *window) shrink(limits Limits) {
	slices.SortStableFunc(w.steps, func(a, b *step) int { return cmp.Compare(a.op.Invoke, b.op.Invoke) })
	var busy history.Moment
	for i, s := range w.steps {
		if i > 0 && s.op.Invoke > busy && w.illegal(w.steps[:i], limits) {
			w.steps = w.steps[:i]
			break
		}
		if s.effect != effectClaimMaybe {
			busy = max(busy, s.ended)
		}
	}
	if len(w.steps) > shrinkable {
		return
	}
	for i := len(w.steps) - 1; i >= 0; i-- {
		if !w.steps[i].keepsState() {
			continue
		}
		if without := slices.Delete(slices.Clone(w.steps), i, i+1); w.illegal(without, limits) {
			w.steps = without
		}
	}
}

func (w *window) violation(key, text string) Violation {
	v := Violation{Invariant: Linear, Key: key, Text: fmt.Sprintf("%s, from mark %d and counter %d on", text, w.before.mark, w.before.n)}
	for _, s := range w.steps {
		v.Piece = append(v.Piece, s.op)
	}
	return v
}
