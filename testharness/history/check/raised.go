package check

import (
	"github.com/fenceproxy/fenceproxy/fencing"
	"github.com/fenceproxy/fenceproxy/testharness/history"
)

// mayRaise reports whether a claim may have raised the mark of one of its keys,
// or may do so later, though nobody was told: it wasn't answered, or not in time
// (LF008, LF003), or refused for another of its keys, or before its client's turn
// came, upon which the session's next statement claims again. Only a holder's is
// accepted, so that the lock must have been held at a moment between its
// beginning and when it was settled.
func (f *facts) mayRaise(op *history.Op, p fencing.Pair, limits Limits) bool {
	switch {
	case op.Kind != history.KindClaim || op.Outcome == history.OutcomeOK || op.Unsent():
		return false
	case op.Code == fencing.CodeStale && len(op.Tag) == 1:
		return false // the mark was above it, and never falls
	}
	t, ok := f.holding[p]
	return ok && t.To.Hi >= op.Invoke && t.From.Lo <= f.settled(op, limits)
}

// settled is when nothing of a claim can be on its way any more. The worker's
// later operations under the same locks claim again. What a fault holds up, it
// does until it is over.
func (f *facts) settled(op *history.Op, limits Limits) history.Moment {
	last := op.Invoke
	for _, p := range op.Tag {
		last = max(last, f.lastly[asking{op.Worker, p}])
	}
	wait := limits.Claim + limits.Recovery
	for i := range f.faults {
		fault := &f.faults[i]
		if fault.Begin > last.Add(wait) {
			break
		}
		if !fault.Worker || fault.Target == op.Worker {
			last = max(last, fault.End)
		}
	}
	return last.Add(wait)
}
