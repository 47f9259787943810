package check

import (
	"cmp"
	"fmt"
	"slices"
	"sort"

	"github.com/fenceproxy/fenceproxy/fencing"
	"github.com/fenceproxy/fenceproxy/testharness/history"
)

// barrier looks for a write that is in the tables though it was begun after a
// claim of a higher token had been acknowledged. It needs the one clock of the
// machine.
func (f *facts) barrier() Verdict {
	v := Verdict{Invariant: Barrier}
	for _, key := range f.keys {
		walls := f.walls(key)
		for _, r := range f.rows[key] {
			op := f.writer[r.ID]
			if op == nil {
				continue // exact says so
			}
			v.Judged++
			// The highest token of the claims that were answered before.
			n := sort.Search(len(walls), func(i int) bool { return walls[i].claim.Return >= op.Invoke })
			if n > 0 && walls[n-1].highest.Token(key) > r.Token {
				v.Violations = append(v.Violations, Violation{Invariant: Barrier, Key: key,
					Text:  fmt.Sprintf("a write of token %d was begun after the claim of token %d was acknowledged, and committed", r.Token, walls[n-1].highest.Token(key)),
					Piece: []fmt.Stringer{walls[n-1].highest, op, r}})
			}
		}
	}
	return v
}

// A wall is an acknowledged claim, and the one with the highest token of all
// that were acknowledged up to then.
type wall struct{ claim, highest *history.Op }

func (f *facts) walls(key string) []wall {
	var walls []wall
	for _, op := range f.claims[key] {
		if op.Outcome == history.OutcomeOK {
			walls = append(walls, wall{claim: op})
		}
	}
	slices.SortFunc(walls, func(a, b wall) int { return cmp.Compare(a.claim.Return, b.claim.Return) })
	for i := range walls {
		walls[i].highest = walls[i].claim
		if i > 0 && walls[i-1].highest.Token(key) > walls[i].claim.Token(key) {
			walls[i].highest = walls[i-1].highest
		}
	}
	return walls
}

// read looks whether each read under an acknowledged claim saw every row that
// lower tokens ever had committed by the end, as far down as it looked. It needs
// no clock.
func (f *facts) read() Verdict {
	v := Verdict{Invariant: Read}
	below := map[string]lower{}
	for _, key := range f.keys {
		below[key] = f.lower(key)
	}
	for _, ops := range f.mine {
		claimed := map[fencing.Pair]*history.Op{}
		for _, op := range ops {
			switch {
			case op.Kind == history.KindClaim && op.Outcome == history.OutcomeOK:
				for _, p := range op.Tag {
					claimed[p] = op
				}
			case op.Kind == history.KindRead && op.Outcome == history.OutcomeOK && op.Seen != nil:
				p := fencing.Pair{Key: op.Key, Token: op.Token(op.Key)}
				claim := claimed[p]
				if claim == nil {
					continue
				}
				v.Judged++
				if final := below[p.Key].between(op.Seen.Floor, p.Token); !final.same(*op.Seen) {
					v.Violations = append(v.Violations, f.missed(claim, op, p, final, len(v.Violations) < explained))
				}
			}
		}
	}
	return v
}

// lower is the rows of a key in the order of their tokens, and what the first i
// of them look like to a read.
type lower struct {
	rows []history.Row
	sums []digest
}

type digest history.Seen

func (d digest) same(s history.Seen) bool {
	return d.Count == s.Count && d.Sum == s.Sum && d.Xor == s.Xor
}

func (f *facts) lower(key string) lower {
	l := lower{rows: slices.Clone(f.rows[key])}
	slices.SortStableFunc(l.rows, func(a, b history.Row) int { return cmp.Compare(a.Token, b.Token) })
	var sum history.Seen
	l.sums = append(l.sums, digest(sum))
	for _, r := range l.rows {
		sum = sum.With(r.ID)
		l.sums = append(l.sums, digest(sum))
	}
	return l
}

// between is what the rows of tokens from floor on and below token look like.
func (l lower) between(floor, token fencing.Token) digest {
	from, to := l.at(floor), l.at(token)
	return digest{Count: to.Count - from.Count, Sum: to.Sum - from.Sum, Xor: to.Xor ^ from.Xor}
}

// at is what the rows of tokens below one look like.
func (l lower) at(token fencing.Token) digest {
	return l.sums[sort.Search(len(l.rows), func(i int) bool { return l.rows[i].Token >= token })]
}

// explained is of how many reads that missed something it is looked for what
// that was, each time among all rows of a key.
const explained = 100

// missed names the row that a read missed, if it is a single one, or all that
// can have been committed after the claim was made.
func (f *facts) missed(claim, read *history.Op, p fencing.Pair, final digest, explain bool) Violation {
	v := Violation{Invariant: Read, Key: p.Key, Piece: []fmt.Stringer{claim, read},
		Text: fmt.Sprintf("a read under token %d saw %d rows of lower tokens, and at the end there are %d", p.Token, read.Seen.Count, final.Count)}
	if v.unexplained = !explain; v.unexplained {
		return v
	}
	var late []history.Row
	for _, r := range f.rows[p.Key] {
		op := f.writer[r.ID]
		seen := r.N > 0 && r.N <= read.Seen.N || op != nil && op.Ended() < claim.Invoke
		if r.Token >= p.Token || r.Token < read.Seen.Floor || seen {
			continue
		}
		if final.same(read.Seen.With(r.ID)) {
			v.Piece = append(v.Piece, f.rowAndWriter(r)...)
			return v
		}
		late = append(late, r)
	}
	for _, r := range late {
		v.Piece = append(v.Piece, f.rowAndWriter(r)...)
	}
	return v
}
