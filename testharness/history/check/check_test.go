package check_test

import (
	"slices"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/fencing"
	"github.com/fenceproxy/fenceproxy/testharness/history"
	"github.com/fenceproxy/fenceproxy/testharness/history/check"
)

// No checker passes for want of anything to judge.
func TestCheck_Good(t *testing.T) {
	s := takeover()
	transfer(s, 20, 21)
	if got := right(t, s).Unjudged(); len(got) > 0 {
		t.Errorf("nothing was judged of %v", got)
	}
	s.Tables.Marks = nil
	if got, want := check.Check(&s.History, check.NewLimits()).Unjudged(), []check.Invariant{check.Durable}; !slices.Equal(got, want) {
		t.Errorf("without marks: got %v unjudged, want %v", got, want)
	}
}

// transfer adds a right transfer between the two keys.
func transfer(s *story, token, others fencing.Token) *history.Op {
	s.holds(other, others)
	s.Tables.Marks[other] = others
	both := []fencing.Pair{{Key: key, Token: token}, {Key: other, Token: others}}
	s.do(history.Op{Kind: history.KindClaim, Tag: both})
	s.Tables.Counters[key]++
	s.Tables.Counters[other]++
	op := s.do(history.Op{Kind: history.KindWrite, Tag: both, Move: &history.Move{From: key, To: other, Amount: 5},
		Rows: []history.Row{s.row(key, token, s.Tables.Counters[key]), s.row(other, others, s.Tables.Counters[other])}})
	s.Tables.Rows = append(s.Tables.Rows, op.Rows...)
	s.Tables.Balances[key] -= 5
	s.Tables.Balances[other] += 5
	return op
}

func TestCheck_Order(t *testing.T) {
	s := takeover()
	s.write(10)
	broken(t, s, check.Order, "w write order:1 token 20: row 4 → ok", "row 4 of order:1, token 20, number 3",
		"w write order:1 token 10: row 5", "row 5 of order:1, token 10, number 4")
}

// A write that nobody was told of counts too: it is in the tables.
func TestCheck_Barrier(t *testing.T) {
	for _, c := range []struct {
		name    string
		outcome history.Outcome
	}{
		{"acknowledged", history.OutcomeOK}, {"without an answer", history.OutcomeUnknown},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := takeover()
			op := s.do(history.Op{Kind: history.KindWrite, Tag: tag(key, 10), Rows: []history.Row{s.row(key, 10, 0)}})
			op.Outcome = c.outcome
			s.Tables.Rows = append(s.Tables.Rows, op.Rows...)
			broken(t, s, check.Barrier, "claim order:1 token 20 → ok", "write order:1 token 10", "row 5 of order:1, token 10")
		})
	}
	t.Run("begun before the claim, and answered after it", func(t *testing.T) {
		s := newStory()
		s.holds(key, 10)
		s.claim(10)
		late := s.write(10)
		s.holds(key, 20)
		late.Return = s.claim(20).Return + 1
		right(t, s)
	})
}

func TestCheck_Read(t *testing.T) {
	t.Run("a row came after the read", func(t *testing.T) {
		s := takeover()
		// Its worker began in time and had no answer, so no clock convicts it.
		slow := history.Op{Worker: "slow", Seq: 1, Kind: history.KindWrite, Tag: tag(key, 10), Rows: []history.Row{s.row(key, 10, 0)}, Invoke: 1}
		s.Ops = append(s.Ops, slow)
		s.Tables.Rows = append(s.Tables.Rows, slow.Rows...)
		broken(t, s, check.Read, "claim order:1 token 20", "the counter of order:1 at 2, 2 rows under lower tokens",
			"slow write order:1 token 10: row 5 → unknown", "row 5")
	})
	t.Run("a row came after the read, of a token that it didn't look for", func(t *testing.T) {
		s := takeover()
		op := s.read(20)
		*op.Seen = history.Seen{N: 3, Floor: 15}
		right(t, s)
		op.Seen.Floor = 10
		broken(t, s, check.Read, "claim order:1 token 20", "0 rows under lower tokens")
	})
	t.Run("a row that was read is gone", func(t *testing.T) {
		s := takeover()
		s.write(20)
		s.holds(key, 30)
		s.claim(30)
		s.read(30)
		s.drop()
		broken(t, s, check.Read, "claim order:1 token 30", "4 rows under lower tokens")
	})
	t.Run("without a claim", func(t *testing.T) {
		s := takeover()
		s.read(40).Seen.Count = 0
		if got := verdict(check.Check(&s.History, check.NewLimits()), check.Read); len(got.Violations) > 0 {
			t.Errorf("a read under no acknowledged claim was judged: %s", got.Violations[0])
		}
	})
}

func verdict(r check.Report, i check.Invariant) check.Verdict {
	for _, v := range r.Verdicts {
		if v.Invariant == i {
			return v
		}
	}
	return check.Verdict{}
}

func TestCheck_Issued(t *testing.T) {
	t.Run("forged", func(t *testing.T) {
		s := takeover()
		s.claim(25)
		broken(t, s, check.Issued, "claim order:1 token 25")
	})
	t.Run("a waiter", func(t *testing.T) {
		s := newStory()
		s.holds(key, 10)
		s.claim(10)
		s.lock(history.LockEvent{Key: key, Token: 20, Revision: 20})
		s.claim(20)
		s.lock(history.LockEvent{Key: key, Token: 10, Gone: true, Revision: 21})
		broken(t, s, check.Issued, "claim order:1 token 20", "etcd: token 20 held order:1 to the end")
	})
	t.Run("claimed for the first time when the lock was lost", func(t *testing.T) {
		s := newStory()
		s.holds(key, 10)
		s.holds(key, 20)
		s.claim(10)
		broken(t, s, check.Issued, "etcd: token 10 held order:1, and was gone later", "claim order:1 token 10")
	})
	t.Run("a claim before that never left its client", func(t *testing.T) {
		s := newStory()
		s.holds(key, 10)
		op := s.refused(history.KindClaim, 10)
		op.Code = ""
		s.holds(key, 20)
		s.claim(10)
		broken(t, s, check.Issued, "etcd: token 10 held order:1, and was gone later", "claim order:1 token 10 → ok")
	})
	t.Run("claimed again when the lock was lost", func(t *testing.T) {
		s := newStory()
		s.holds(key, 10)
		s.claim(10)
		s.holds(key, 20)
		s.claim(10)
		right(t, s)
	})
	t.Run("the bounds don't tell", func(t *testing.T) {
		s := newStory()
		s.holds(key, 10)
		s.Locks[0].When = history.Span{Lo: 0, Hi: 100e9}
		s.claim(10)
		right(t, s)
	})
	t.Run("a mark that nobody was told of", func(t *testing.T) {
		s := takeover()
		s.Tables.Marks[key] = 99
		broken(t, s, check.Issued)
	})
	t.Run("a mark meanwhile", func(t *testing.T) {
		s := takeover()
		s.Marks = []history.MarksSeen{{Asked: s.tick(), Marks: map[string]fencing.Token{key: 20}}}
		right(t, s)
		s.Marks[0].Marks[key] = 99
		broken(t, s, check.Issued)
	})
	t.Run("a row under a number whose claim had no answer", func(t *testing.T) {
		s := takeover()
		s.claim(99).Outcome = history.OutcomeUnknown
		s.Tables.Marks[key] = 20
		s.write(99)
		broken(t, s, check.Issued, "write order:1 token 99: row 5 → ok", "row 5 of order:1, token 99")
		broken(t, s, check.Linear, "write order:1 token 99: row 5 → ok")
	})
}

func TestCheck_Exact(t *testing.T) {
	t.Run("an acknowledged row is gone", func(t *testing.T) {
		s := takeover()
		s.drop()
		s.Tables.Counters[key]--
		broken(t, s, check.Exact, "write order:1 token 20: row 4 → ok")
	})
	t.Run("a refused row is there", func(t *testing.T) {
		s := takeover()
		s.Tables.Rows = append(s.Tables.Rows, s.refused(history.KindWrite, 10).Rows...)
		broken(t, s, check.Exact, "write order:1 token 10: row 5 → refused LF001", "row 5")
	})
	t.Run("a row that was taken back is there", func(t *testing.T) {
		s := takeover()
		s.write(20).Undone = []int64{7}
		s.Tables.Rows = append(s.Tables.Rows, history.Row{ID: 7, Key: key, Token: 20})
		broken(t, s, check.Exact, "write order:1 token 20: row 5 → ok", "row 7")
	})
	t.Run("half of a transaction is there", func(t *testing.T) {
		s := takeover()
		op := s.write(20)
		op.Rows = append(op.Rows, s.row(key, 20, 0))
		op.Outcome = history.OutcomeUnknown
		broken(t, s, check.Exact, "rows 5 to 6 → unknown")
	})
	t.Run("a lost update", func(t *testing.T) {
		s := takeover()
		s.Tables.Counters[key]--
		s.write(20)
		broken(t, s, check.Exact, "row 4 → ok", "row 4 of order:1, token 20, number 3", "row 5 → ok", "row 5 of order:1, token 20, number 3")
	})
	t.Run("a row is there twice", func(t *testing.T) {
		s := takeover()
		op := s.do(history.Op{Kind: history.KindWrite, Tag: tag(key, 20), Rows: []history.Row{s.row(key, 20, 0)}})
		s.Tables.Rows = append(s.Tables.Rows, op.Rows[0], op.Rows[0])
		broken(t, s, check.Exact, "write order:1 token 20: row 5 → ok", "row 5 of order:1, token 20")
	})
	t.Run("a number is left out", func(t *testing.T) {
		s := takeover()
		s.Tables.Rows[2].N++
		s.Ops[len(s.Ops)-2].Rows[0].N = 0 // the worker wasn't told which it was
		broken(t, s, check.Exact, "write order:1 token 20: row 4 → ok", "row 4 of order:1, token 20, number 4")
	})
	t.Run("nobody's row", func(t *testing.T) {
		s := takeover()
		s.Tables.Rows = append(s.Tables.Rows, history.Row{ID: 77, Key: key, Token: 20})
		broken(t, s, check.Exact, "row 77")
	})
	t.Run("without an answer", func(t *testing.T) {
		s := takeover()
		s.write(20).Outcome = history.OutcomeUnknown
		s.do(history.Op{Kind: history.KindWrite, Tag: tag(key, 20), Rows: []history.Row{s.row(key, 20, 0)}}).Outcome = history.OutcomeUnknown
		right(t, s)
	})
}

func TestCheck_Several(t *testing.T) {
	t.Run("money is lost", func(t *testing.T) {
		s := takeover()
		transfer(s, 20, 21)
		s.Tables.Balances[key] += 5
		broken(t, s, check.Several)
	})
	t.Run("one of two locks is lost", func(t *testing.T) {
		s := takeover()
		transfer(s, 10, 21)
		broken(t, s, check.Several, "write order:1 token 20", "token 20, number 3", "5 from order:1 to order:2 → ok", "row 5 of order:1, token 10")
	})
}

func TestCheck_Linear(t *testing.T) {
	t.Run("a stale write between two of the holder's", func(t *testing.T) {
		s := takeover()
		s.write(20)
		s.write(10)
		s.write(20)
		broken(t, s, check.Linear, "write order:1 token 10: row 6 → ok")
	})
	t.Run("a late claim lowers the mark", func(t *testing.T) {
		s := takeover()
		s.claim(10)
		broken(t, s, check.Linear, "claim order:1 token 10 → ok")
	})
	t.Run("the holder is called stale", func(t *testing.T) {
		s := takeover()
		s.refused(history.KindWrite, 20)
		broken(t, s, check.Linear, "write order:1 token 20: row 5 → refused LF001")
	})
	t.Run("a read misses the last write", func(t *testing.T) {
		s := takeover()
		s.read(20).Seen.N--
		broken(t, s, check.Linear, "read order:1 token 20: the counter of order:1 at 2")
	})
	t.Run("a claim without an answer shuts the former holder out", func(t *testing.T) {
		s := takeover()
		s.holds(key, 30)
		s.claim(30).Outcome = history.OutcomeUnknown
		s.Faults = []history.Fault{{Kind: "cut", Target: "proxy-1", Begin: 1, End: s.clock}}
		s.write(20)
		s.refused(history.KindWrite, 20)
		s.write(30)
		right(t, s)
	})
	t.Run("a claim without an answer comes true long after it was given up", func(t *testing.T) {
		for _, pause := range []time.Duration{0, time.Minute} {
			s := takeover()
			s.holds(key, 30)
			op := s.do(history.Op{Worker: "lost", Kind: history.KindClaim, Tag: tag(key, 30)})
			op.Outcome = history.OutcomeUnknown
			s.Faults = []history.Fault{{Kind: "pause", Target: "proxy-1", Begin: op.Invoke, End: op.Return.Add(pause)}}
			s.clock += 60e9
			s.write(20)
			s.refused(history.KindWrite, 20)
			s.write(30)
			got := verdict(check.Check(&s.History, check.NewLimits()), check.Linear)
			if found, want := len(got.Violations) > 0, pause == 0; found != want {
				t.Errorf("a proxy paused for %v: got %v, want a violation: %t", pause, got.Violations, want)
			}
		}
	})
	t.Run("a claim that was refused raises the mark all the same", func(t *testing.T) {
		for name, change := range map[string]func(*history.Op){
			"not in time":        func(op *history.Op) { op.Code = fencing.CodeClaimTimeout },
			"unverified":         func(op *history.Op) { op.Code = fencing.CodeUnverified },
			"of another key":     func(op *history.Op) { op.Tag = append(op.Tag, tag(other, 1)...) },
			"before it was held": func(op *history.Op) { op.Code = fencing.CodeNotHolder },
		} {
			s := takeover()
			s.holds(key, 30)
			op := s.refused(history.KindClaim, 30)
			change(op)
			s.refused(history.KindWrite, 20)
			s.write(30)
			if got := verdict(check.Check(&s.History, check.NewLimits()), check.Linear); len(got.Violations) > 0 {
				t.Errorf("%s: got %s, want nothing", name, got.Violations[0])
			}
			s.write(20)
			broken(t, s, check.Linear, "write order:1 token 20: row 7 → ok")
		}
	})
	t.Run("a claim without an answer is none of what is wrong later", func(t *testing.T) {
		s := takeover()
		s.holds(key, 30)
		s.claim(30).Outcome = history.OutcomeUnknown
		s.refused(history.KindWrite, 20)
		s.claim(40)
		s.claim(35)
		broken(t, s, check.Linear, "claim order:1 token 30 → unknown", "claim order:1 token 40", "claim order:1 token 35")
	})
	t.Run("a write without an answer is carried out later", func(t *testing.T) {
		s := takeover()
		late := s.do(history.Op{Worker: "slow", Kind: history.KindWrite, Tag: tag(key, 20), Rows: []history.Row{s.row(key, 20, 0)}})
		late.Outcome = history.OutcomeUnknown
		s.write(20)
		s.Tables.Counters[key]++
		row := late.Rows[0]
		row.N = s.Tables.Counters[key]
		s.Tables.Rows = append(s.Tables.Rows, row)
		s.write(20)
		right(t, s)
	})
}
