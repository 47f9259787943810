package check

import (
	"fmt"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/fenceproxy/fenceproxy/fencing"
	"github.com/fenceproxy/fenceproxy/testharness/history"
)

// progress looks whether claims of rightful holders were answered yes, and in
// time: of those who held all locks that they named from before the claim to
// after its answer, or to when it was due, while nothing that they needed was
// broken or had been shortly before. What else they asked then must have been
// answered, and not with a refusal in a session whose claim was acknowledged: not
// with one of ours, and with none that the workload doesn't provoke itself, since
// nobody but fenceproxy stood in its way.
func (f *facts) progress(limits Limits) (v, answers Verdict) {
	v.Invariant, answers.Invariant = Progress, Answers
	entered := entries{}
	for i := range f.Ops {
		op := &f.Ops[i]
		entered.note(op)
		until, late := op.Return, false
		if due := op.Invoke.Add(limits.Claim); op.Kind == history.KindClaim && (until == 0 || until > due) {
			until, late = due, true
		}
		if until == 0 || until > f.end || op.Lie || !op.Asks() ||
			!f.rightful(op, until) || f.disturbed(op, until, limits.Recovery) {
			continue
		}
		if op.Kind != history.KindClaim {
			f.answered(op, entered.claimed(op), limits, &answers)
			continue
		}
		ended := op.Code == fencing.CodeEvicted || op.Outcome == history.OutcomeUnknown
		if op.Unsent() || op.Retag && ended {
			continue // nobody was asked, or the session was ended for what it presented before
		}
		v.Judged++
		switch {
		case late:
			v.Violations = append(v.Violations, f.hindered(Progress, op, fmt.Sprintf("a rightful holder's claim was not answered within %v", limits.Claim)))
		case op.Outcome != history.OutcomeOK:
			v.Violations = append(v.Violations, f.hindered(Progress, op, "a rightful holder's claim was not accepted"))
		}
	}
	return v, answers
}

// answered is for reads and writes in a session that was opened when nothing
// was broken; of others it isn't known.
func (f *facts) answered(op *history.Op, claimed bool, limits Limits, v *Verdict) {
	if op.Opened == 0 || op.Retag {
		return
	}
	v.Judged++
	switch {
	case op.Outcome == history.OutcomeUnknown:
		v.Violations = append(v.Violations, f.hindered(Answers, op, "a rightful holder was not answered"))
	case !claimed || op.Outcome != history.OutcomeRefused || op.Unsent() || limits.own(op.Code):
	case strings.HasPrefix(string(op.Code), "LF"):
		v.Violations = append(v.Violations, f.hindered(Answers, op, "a rightful holder was refused, whose claim had been acknowledged"))
	default:
		v.Violations = append(v.Violations, f.hindered(Answers, op,
			fmt.Sprintf("a rightful holder was answered %s, which its own statements don't provoke", op.Code)))
	}
}

// entries are the last claims of sessions.
type entries map[entry]*history.Op

// An entry is a session: a worker's connection, by when it was opened.
type entry struct {
	worker string
	opened history.Moment
}

// note takes down what a session presents. Operations come in the order in
// which they began.
func (e entries) note(op *history.Op) {
	if op.Kind == history.KindClaim && op.Opened != 0 {
		e[entry{op.Worker, op.Opened}] = op
	}
}

// claimed reports whether the tag of a read or write was acknowledged in its
// session: for good, or to be presented anew in each transaction, as SET LOCAL
// does, which is answered as the claim was.
func (e entries) claimed(op *history.Op) bool {
	claim, ok := e[entry{op.Worker, op.Opened}]
	return op.Claimed || ok && claim.Outcome == history.OutcomeOK && slices.Equal(claim.Tag, op.Tag)
}

// refusals looks whether a claim may have raised the mark above the token before
// each answer that says so. A session that presented another tag before may be
// told of that.
func (f *facts) refusals() Verdict {
	v := Verdict{Invariant: Refusals}
	for i := range f.Ops {
		op := &f.Ops[i]
		if op.Code != fencing.CodeStale && op.Code != fencing.CodeEvicted || op.Retag || !op.Asks() {
			continue
		}
		v.Judged++
		if !slices.ContainsFunc(op.Tag, func(p fencing.Pair) bool { return f.overtaken(p, op.Return) }) {
			v.Violations = append(v.Violations, Violation{Invariant: Refusals, Key: op.Tag[0].Key, Piece: []fmt.Stringer{op},
				Text: "a holder was told of a higher token, and nobody can have claimed one"})
		}
	}
	return v
}

// overtaken reports whether a claim that began before then may have raised a
// pair's mark above its token.
func (f *facts) overtaken(p fencing.Pair, then history.Moment) bool {
	begun := f.claims[p.Key]
	n := sort.Search(len(begun), func(i int) bool { return begun[i].Invoke > then })
	return f.highest[p.Key][n] > p.Token
}

func (f *facts) hindered(i Invariant, op *history.Op, text string) Violation {
	v := Violation{Invariant: i, Key: op.Tag[0].Key, Text: text}
	for _, p := range op.Tag {
		t := f.holding[p]
		v.Piece = append(v.Piece, &t)
	}
	v.Piece = append(v.Piece, op)
	return v
}

// rightful reports whether an operation's locks were all held, for certain, from
// its beginning on.
func (f *facts) rightful(op *history.Op, until history.Moment) bool {
	for _, p := range op.Tag {
		if t, ok := f.holding[p]; !ok || t.From.Hi > op.Invoke || t.To.Lo < until {
			return false
		}
	}
	return len(op.Tag) > 0
}

// disturbed reports whether a fault was at work that the operation may have
// felt. A connection may be broken since long before it is used.
func (f *facts) disturbed(op *history.Op, until history.Moment, recovery time.Duration) bool {
	from := op.Invoke
	if op.Outcome == history.OutcomeUnknown && op.Opened != 0 {
		from = op.Opened
	}
	for i := range f.Faults {
		fault := &f.Faults[i]
		if fault.Worker && fault.Target != op.Worker {
			continue
		}
		if fault.Begin <= until && fault.End.Add(recovery) >= from {
			return true
		}
	}
	return false
}
