package check_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/fenceproxy/fenceproxy/fencing"
	"github.com/fenceproxy/fenceproxy/testharness/history"
	"github.com/fenceproxy/fenceproxy/testharness/history/check"
)

// A story is a history made by hand. Each operation begins and ends after the
// one before it, unless the test sets other times; etcd's events lie between.
type story struct {
	history.History
	clock history.Moment
	seq   int64
	id    int64
}

const (
	key   = "order:1"
	other = "order:2"
	// opening is what each account of a story begins with.
	opening = 100
)

func newStory() *story {
	s := &story{}
	s.Ops = make([]history.Op, 0, 100) // so that they stay where they are
	s.Tables = history.Tables{
		Counters: map[string]int64{}, Opening: opening, Marks: map[string]fencing.Token{},
		Balances: map[string]int64{key: opening, other: opening},
	}
	return s
}

func (s *story) tick() history.Moment {
	s.clock += 1e9
	return s.clock
}

// holds has etcd give a lock to a token, and take it from the one before.
func (s *story) holds(key string, token fencing.Token) {
	for i := len(s.Locks) - 1; i >= 0; i-- {
		if e := s.Locks[i]; e.Key == key {
			s.lock(history.LockEvent{Key: key, Token: e.Token, Gone: true, Revision: int64(token) - 1})
			break
		}
	}
	s.lock(history.LockEvent{Key: key, Token: token, Revision: int64(token)})
}

func (s *story) lock(e history.LockEvent) {
	now := s.tick()
	e.When = history.Span{Lo: now, Hi: now}
	s.Locks = append(s.Locks, e)
}

// do adds an operation that is acknowledged, and returns it to be changed.
func (s *story) do(op history.Op) *history.Op {
	s.seq++
	op.Seq, op.Invoke = s.seq, s.tick()
	op.Return = s.tick()
	if op.Worker == "" {
		op.Worker = "w"
	}
	if op.Outcome == history.OutcomeUnknown && op.Code == "" {
		op.Outcome = history.OutcomeOK
	}
	s.Ops = append(s.Ops, op)
	return &s.Ops[len(s.Ops)-1]
}

func tag(key string, token fencing.Token) []fencing.Pair {
	return []fencing.Pair{{Key: key, Token: token}}
}

// claim is an acknowledged claim, which raises the mark.
func (s *story) claim(token fencing.Token) *history.Op {
	s.Tables.Marks[key] = max(s.Tables.Marks[key], token)
	return s.do(history.Op{Kind: history.KindClaim, Tag: tag(key, token)})
}

// unheard is the next holder's claim, which raises the mark: its session was ended
// for what it presented before, and so wasn't told.
func (s *story) unheard(token fencing.Token) {
	s.holds(key, token)
	op := s.claim(token)
	op.Outcome, op.Retag = history.OutcomeUnknown, true
}

// write is an acknowledged and counted write, which is in the tables.
func (s *story) write(token fencing.Token) *history.Op {
	s.Tables.Counters[key]++
	op := s.do(history.Op{Kind: history.KindWrite, Tag: tag(key, token), Rows: []history.Row{s.row(key, token, s.Tables.Counters[key])}})
	s.Tables.Rows = append(s.Tables.Rows, op.Rows...)
	return op
}

func (s *story) row(key string, token fencing.Token, n int64) history.Row {
	s.id++
	return history.Row{ID: s.id, Key: key, Token: token, N: n}
}

// read is one that sees what is in the tables now.
func (s *story) read(token fencing.Token) *history.Op {
	seen := history.Seen{N: s.Tables.Counters[key]}
	for _, r := range s.Tables.Rows {
		if r.Key == key && r.Token < token {
			seen = seen.With(r.ID)
		}
	}
	return s.do(history.Op{Kind: history.KindRead, Tag: tag(key, token), Key: key, Seen: &seen})
}

// drop takes the last row out of the tables.
func (s *story) drop() { s.Tables.Rows = s.Tables.Rows[:len(s.Tables.Rows)-1] }

// refused is what a stale holder is told.
func (s *story) refused(kind history.Kind, token fencing.Token) *history.Op {
	op := s.do(history.Op{Kind: kind, Tag: tag(key, token), Outcome: history.OutcomeRefused, Code: fencing.CodeStale})
	if kind == history.KindWrite {
		op.Rows = []history.Row{s.row(key, token, 0)}
	}
	return op
}

// takeover is a whole and right story: two holders, the second after the first
// lost its lock, and the first one refused.
func takeover() *story {
	s := newStory()
	s.holds(key, 10)
	s.claim(10)
	s.read(10)
	s.write(10)
	s.write(10)
	s.holds(key, 20)
	opened := s.claim(20).Invoke
	s.read(20).Opened = opened
	s.refused(history.KindWrite, 10)
	s.write(20)
	s.refused(history.KindClaim, 10)
	return s
}

// broken checks a story and wants one invariant to be broken, among others
// perhaps, and the piece that proves it to be in these words, line for line.
func broken(t *testing.T, s *story, want check.Invariant, piece ...string) {
	t.Helper()
	report := check.Check(&s.History, check.NewLimits())
	for _, v := range report.Verdicts {
		if v.Invariant != want {
			continue
		}
		if len(v.Violations) == 0 {
			t.Fatalf("%s: nothing was found", want)
		}
		found := v.Violations[0]
		if len(found.Piece) != len(piece) {
			t.Fatalf("%s: got a piece of %d, want %d:\n%s", want, len(found.Piece), len(piece), found)
		}
		for i, e := range found.Piece {
			if !strings.Contains(e.String(), piece[i]) {
				t.Errorf("%s, event %d: got %q, want %q in it", want, i, e, piece[i])
			}
		}
	}
}

// right checks a story in which nothing is wrong.
func right(t *testing.T, s *story) check.Report {
	t.Helper()
	report := check.Check(&s.History, check.NewLimits())
	if !report.OK() {
		var b bytes.Buffer
		report.Print(&b)
		t.Errorf("a good history: got\n%s", b.String())
	}
	return report
}
