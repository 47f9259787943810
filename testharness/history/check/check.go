package check

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/fenceproxy/fenceproxy/fencing"
	"github.com/fenceproxy/fenceproxy/testharness/history"
)

// An Invariant is a part of the promise.
type Invariant uint8

// The invariants that a history can show.
const (
	Order    Invariant = iota + 1 // I1: per key, tokens never fall in commit order
	Barrier                       // I2: nothing of a lower token begins to commit after an acknowledged claim
	Read                          // I3: a read under a claim sees all that lower tokens ever commit
	Durable                       // I4: a mark is never below an acknowledged claim
	Issued                        // I5: only a holder's token is ever accepted
	Exact                         // I6: acknowledged is there once, refused isn't there
	Progress                      // I7: the rightful holder's claim is accepted, in time
	Answers                       // I7: what the rightful holder asks then is answered, and not refused by us
	Refusals                      // I7: nobody is told of a higher token that can't have been claimed
	Several                       // I10: what moves between two locks adds up, and both of them are held
	Linear                        // all of a key's operations together have an order
)

var invariantNames = map[Invariant]string{
	Order: "I1 order", Barrier: "I2 barrier", Read: "I3 read barrier", Durable: "I4 durable", Issued: "I5 issued",
	Exact: "I6 exactly once", Progress: "I7 progress", Answers: "I7 answers", Refusals: "I7 refusals", Several: "I10 several locks", Linear: "linearizable",
}

func (i Invariant) String() string {
	if name, ok := invariantNames[i]; ok {
		return name
	}
	return fmt.Sprintf("invariant %d", uint8(i))
}

// A Violation is one way in which an invariant was broken.
type Violation struct {
	Invariant Invariant
	Key       string
	Text      string         // what is wrong
	Piece     []fmt.Stringer // the few events that prove it, in order
	// Undecided says that the checker gave up: nothing is proved either way.
	Undecided bool
	// unexplained says that the piece doesn't tell the cause.
	unexplained bool
	// During are the faults that were at work meanwhile.
	During []history.Fault
}

func (v Violation) String() string {
	lines := []string{fmt.Sprintf("%s, %s: %s", v.Invariant, v.Key, v.Text)}
	for _, e := range v.Piece {
		lines = append(lines, "    "+at(e)+e.String())
	}
	for i := range v.During {
		f := &v.During[i]
		lines = append(lines, fmt.Sprintf("    at work then: [%.6f, %.6f] %s", seconds(f.Begin), seconds(f.End), f))
	}
	return strings.Join(lines, "\n")
}

// during returns the faults that were at work while the operations of a piece
// were: those of other workers than its own don't matter.
func during(piece []fmt.Stringer, faults []history.Fault) []history.Fault {
	from, to, workers := history.Never, history.Moment(0), map[string]bool{}
	for _, e := range piece {
		if op, ok := e.(*history.Op); ok {
			from, to = min(from, op.Invoke), max(to, op.Invoke, op.Return)
			workers[op.Worker] = true
		}
	}
	var out []history.Fault
	for _, f := range faults {
		if f.Begin <= to && f.End >= from && (!f.Worker || workers[f.Target]) {
			out = append(out, f)
		}
	}
	return out
}

// at says when an operation was, in seconds of the machine's clock.
func at(e fmt.Stringer) string {
	op, ok := e.(*history.Op)
	if !ok {
		return ""
	}
	end := "…"
	if op.Return != 0 {
		end = fmt.Sprintf("%.6f", seconds(op.Return))
	}
	return fmt.Sprintf("[%.6f, %s] ", seconds(op.Invoke), end)
}

func seconds(m history.Moment) float64 { return time.Duration(m).Seconds() }

// A Verdict is what one checker found.
type Verdict struct {
	Invariant  Invariant
	Judged     int // how many operations, rows or pairs it looked at
	Violations []Violation
}

// shortest is the violation whose piece is the shortest; the first one has one.
func (v Verdict) shortest() Violation {
	best := v.Violations[0]
	for _, other := range v.Violations[1:] {
		if !other.unexplained && len(other.Piece) < len(best.Piece) {
			best = other
		}
	}
	return best
}

// A Report is the verdict of every checker.
type Report struct{ Verdicts []Verdict }

// OK reports whether no checker found anything.
func (r Report) OK() bool { return r.Violations() == 0 }

// Violations is how many all checkers found.
func (r Report) Violations() int {
	n := 0
	for _, v := range r.Verdicts {
		n += len(v.Violations)
	}
	return n
}

// Broken returns the invariants of which a violation was proved.
func (r Report) Broken() []Invariant {
	var out []Invariant
	for _, v := range r.Verdicts {
		for _, violation := range v.Violations {
			if !violation.Undecided {
				out = append(out, v.Invariant)
				break
			}
		}
	}
	return out
}

// Unjudged returns the invariants that there was nothing to judge by.
func (r Report) Unjudged() []Invariant {
	var out []Invariant
	for _, v := range r.Verdicts {
		if v.Judged == 0 {
			out = append(out, v.Invariant)
		}
	}
	return out
}

// Print writes a table of all verdicts, and the shortest piece of each that
// found something.
func (r Report) Print(to io.Writer) {
	for _, v := range r.Verdicts {
		fmt.Fprintf(to, "%-17s judged %9d, violations %d\n", v.Invariant, v.Judged, len(v.Violations))
	}
	for _, v := range r.Verdicts {
		if len(v.Violations) > 0 {
			fmt.Fprintf(to, "\n%s\n", v.shortest())
		}
	}
}

// Limits are what the checkers need to know of the run. The zero value is not
// meant to be used; NewLimits has sensible ones.
type Limits struct {
	// Claim is how long a rightful holder's claim may take.
	Claim time.Duration
	// Recovery is how long after a fault's end nobody is held to a time.
	Recovery time.Duration
	// Search bounds the search for an order of one key's operations.
	Search time.Duration
	// Own are the SQLSTATEs, or what they begin with, that the workload's own
	// statements provoke, whoever stands between them and PostgreSQL: "23505" of a
	// unique index, "40" of SERIALIZABLE. Any other error that a rightful holder is
	// answered when nothing is broken is held against fenceproxy.
	Own []string
}

// own reports whether the workload provokes an error itself.
func (l Limits) own(code fencing.Code) bool {
	return slices.ContainsFunc(l.Own, func(begin string) bool { return begin != "" && strings.HasPrefix(string(code), begin) })
}

// Default limits. A claim takes a fraction of a second when nothing is broken.
// Claim and Recovery together must be shorter than a run is calm, or no claim
// could ever be seen to be late.
const (
	DefaultClaim    = 4 * time.Second
	DefaultRecovery = 4 * time.Second
	DefaultSearch   = time.Minute
)

// NewLimits returns the default ones.
func NewLimits() Limits {
	return Limits{Claim: DefaultClaim, Recovery: DefaultRecovery, Search: DefaultSearch}
}

// Check runs all checkers.
func Check(h *history.History, limits Limits) Report {
	f := learn(h, limits)
	order, barrier := f.order(), f.barrier()
	progress, answers := f.progress(limits)
	r := Report{[]Verdict{
		order, barrier, f.read(), f.durable(), f.issued(), f.exact(), progress, answers, f.refusals(), f.several(order, barrier), f.linear(limits),
	}}
	for _, v := range r.Verdicts {
		for i := range v.Violations {
			v.Violations[i].During = during(v.Violations[i].Piece, h.Faults)
		}
	}
	return r
}
