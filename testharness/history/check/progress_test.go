package check_test

import (
	"testing"

	"github.com/fenceproxy/fenceproxy/fencing"
	"github.com/fenceproxy/fenceproxy/testharness/history"
	"github.com/fenceproxy/fenceproxy/testharness/history/check"
)

func TestCheck_Progress(t *testing.T) {
	held := func() *story {
		s := newStory()
		s.holds(key, 10)
		s.tick()
		return s
	}
	t.Run("refused", func(t *testing.T) {
		s := held()
		op := s.claim(10)
		op.Outcome, op.Code = history.OutcomeRefused, fencing.CodeClaimTimeout
		s.Tables.Marks = nil
		broken(t, s, check.Progress, "etcd: token 10 held order:1 to the end", "claim order:1 token 10 → refused LF008")
	})
	t.Run("ended for its former tag", func(t *testing.T) {
		s := held()
		op := s.claim(10)
		op.Outcome, op.Code, op.Retag = history.OutcomeRefused, fencing.CodeEvicted, true
		right(t, s)
		op.Outcome, op.Code = history.OutcomeUnknown, "" // and closed before it was asked
		right(t, s)
		op.Outcome, op.Code = history.OutcomeRefused, fencing.CodeEvicted
		op.Retag = false
		broken(t, s, check.Progress, "etcd: token 10 held order:1 to the end", "claim order:1 token 10 → refused LF005")
		broken(t, s, check.Refusals, "claim order:1 token 10 → refused LF005")
	})
	t.Run("told of a higher token", func(t *testing.T) {
		for _, code := range []fencing.Code{fencing.CodeStale, fencing.CodeEvicted} {
			s := held()
			s.claim(10)
			op := s.refused(history.KindWrite, 10)
			op.Code = code
			broken(t, s, check.Refusals, "write order:1 token 10: row 1 → refused "+string(code))
			s.claim(20).Invoke = op.Return - 1
			if got := verdict(check.Check(&s.History, check.NewLimits()), check.Refusals); len(got.Violations) == 0 {
				t.Errorf("%s: a number that never was a holder's excused it", code)
			}
			s.holds(key, 20) // whatever came of it
			if got := verdict(check.Check(&s.History, check.NewLimits()), check.Refusals); len(got.Violations) > 0 {
				t.Errorf("%s: got %s, want nothing", code, got.Violations[0])
			}
		}
	})
	t.Run("told of a token that was claimed before it was a holder's", func(t *testing.T) {
		s := held()
		s.claim(10)
		early := s.do(history.Op{Worker: "waiting", Kind: history.KindClaim, Tag: tag(key, 20), Outcome: history.OutcomeRefused, Code: fencing.CodeNotHolder})
		s.clock += 60e9
		s.refused(history.KindWrite, 10)
		s.holds(key, 20)
		broken(t, s, check.Refusals, "write order:1 token 10: row 1 → refused LF001")
		s.read(20).Worker = early.Worker // it claims again
		if got := verdict(check.Check(&s.History, check.NewLimits()), check.Refusals); len(got.Violations) > 0 {
			t.Errorf("its session goes on: got %s, want nothing", got.Violations[0])
		}
		s.Ops[len(s.Ops)-1].Worker = "w"
		s.Faults = []history.Fault{{Kind: "pause", Target: "proxy-1", Begin: early.Return, End: s.clock}}
		if got := verdict(check.Check(&s.History, check.NewLimits()), check.Refusals); len(got.Violations) > 0 {
			t.Errorf("it is on its way: got %s, want nothing", got.Violations[0])
		}
	})
	t.Run("not answered", func(t *testing.T) {
		s := held()
		s.claim(10)
		op := s.do(history.Op{Kind: history.KindWrite, Tag: tag(key, 10), Rows: []history.Row{s.row(key, 10, 0)}})
		op.Outcome = history.OutcomeUnknown
		right(t, s) // nobody knows since when the connection was broken
		op.Opened = op.Invoke - 1
		broken(t, s, check.Answers, "etcd: token 10", "write order:1 token 10: row 1 → unknown")
		op.Retag = true
		right(t, s)
	})
	t.Run("slow", func(t *testing.T) {
		s := held()
		s.claim(10).Return += 60e9
		broken(t, s, check.Progress, "etcd: token 10 held order:1 to the end", "claim order:1 token 10 → ok")
	})
	t.Run("given up, and something was broken only when it was late", func(t *testing.T) {
		s := held()
		op := s.claim(10)
		op.Opened, op.Outcome, op.Return = op.Invoke-1, history.OutcomeUnknown, op.Invoke+60e9
		s.Faults = []history.Fault{{Kind: "kill", Target: "proxy-1", Begin: op.Invoke + 50e9, End: op.Return}}
		broken(t, s, check.Progress, "etcd: token 10 held order:1 to the end", "claim order:1 token 10 → unknown")
		s.Faults[0].Begin = op.Invoke + 1e9
		right(t, s)
	})
	t.Run("nobody waits for it any more", func(t *testing.T) {
		s := held()
		op := s.claim(10)
		op.Outcome, op.Return = history.OutcomeUnknown, 0
		right(t, s) // the run was over before it was late
		s.clock += 60e9
		s.read(10)
		broken(t, s, check.Progress, "etcd: token 10 held order:1 to the end", "claim order:1 token 10 → unknown")
	})
	t.Run("refused what its claim allows", func(t *testing.T) {
		s := held()
		s.claim(10)
		op := s.refused(history.KindWrite, 10)
		op.Code, op.Opened = fencing.CodeNotFenceable, op.Invoke-1
		right(t, s)
		op.Claimed = true
		broken(t, s, check.Answers, "etcd: token 10 held order:1 to the end", "write order:1 token 10: row 1 → refused LF007")
	})
	t.Run("answered an error that is nobody's", func(t *testing.T) {
		for _, code := range []fencing.Code{"40001", "40P01", "55P03", "25P02"} {
			s := held()
			s.claim(10)
			op := s.refused(history.KindWrite, 10)
			op.Code, op.Opened = code, op.Invoke-1
			right(t, s) // its claim may be what was refused
			op.Claimed = true
			broken(t, s, check.Answers, "etcd: token 10 held order:1 to the end", "write order:1 token 10: row 1 → refused "+string(code))
			s.Faults = []history.Fault{{Kind: "kill", Target: "proxy-1", Begin: op.Invoke, End: op.Return}}
			right(t, s)
			s.Faults = nil
			limits := check.NewLimits()
			limits.Own = []string{string(code[:2])} // it provokes such errors itself
			if report := check.Check(&s.History, limits); !report.OK() {
				t.Errorf("%s of the workload's own: got %s, want nothing", code, verdict(report, check.Answers).Violations[0])
			}
		}
	})
	t.Run("refused in one of the transactions that present its tag", func(t *testing.T) {
		for _, code := range []fencing.Code{fencing.CodeNotHolder, fencing.CodeUnverified, "40001"} {
			s := held()
			s.holds(other, 9)
			claim := s.claim(10)
			claim.Form = "set local"
			op := s.refused(history.KindWrite, 10)
			op.Code, op.Opened = code, claim.Invoke-1
			right(t, s) // of another session
			claim.Opened = op.Opened
			broken(t, s, check.Answers, "etcd: token 10 held order:1 to the end", "write order:1 token 10: row 1 → refused "+string(code))
			claim.Worker = "another"
			right(t, s)
			claim.Worker, claim.Tag, s.Tables.Marks[other] = op.Worker, tag(other, 9), 9
			right(t, s) // of another tag
		}
	})
	t.Run("refused as its last claim was", func(t *testing.T) {
		s := held()
		opened := s.claim(10).Invoke - 1
		s.Ops[0].Opened = opened
		s.holds(other, 20)
		again := s.do(history.Op{Kind: history.KindClaim, Tag: tag(other, 20), Opened: opened, Retag: true, Outcome: history.OutcomeRefused, Code: fencing.CodeEvicted})
		op := s.do(history.Op{Kind: history.KindWrite, Tag: tag(key, 10), Opened: opened, Outcome: history.OutcomeRefused, Code: fencing.CodeNotHolder,
			Rows: []history.Row{s.row(key, 10, 0)}})
		right(t, s)
		op.Tag, op.Rows[0] = tag(other, 20), s.row(other, 20, 0)
		right(t, s)
		again.Outcome, again.Code = history.OutcomeOK, ""
		s.Tables.Marks[other] = 20
		broken(t, s, check.Answers, "etcd: token 20 held order:2 to the end", "write order:2 token 20: row 2 → refused LF002")
	})
	t.Run("while something was broken", func(t *testing.T) {
		s := held()
		op := s.claim(10)
		op.Outcome, op.Code = history.OutcomeRefused, fencing.CodeUnverified
		s.Tables.Marks = nil
		s.Faults = []history.Fault{{Kind: "kill", Target: "etcd-1", Begin: 1, End: op.Invoke - 1e9}}
		right(t, s)
		s.Faults[0].Worker = true // somebody else's
		broken(t, s, check.Progress, "etcd: token 10", "claim order:1 token 10")
	})
	t.Run("over a connection that was broken before", func(t *testing.T) {
		s := held()
		fault := history.Fault{Kind: "cut", Target: "proxy-1", Begin: s.tick()}
		fault.End = s.tick()
		s.Faults = []history.Fault{fault}
		s.clock += 60e9
		op := s.claim(10)
		op.Outcome, op.Opened = history.OutcomeUnknown, 1
		right(t, s)
		op.Opened = fault.End + 30e9
		broken(t, s, check.Progress, "etcd: token 10", "claim order:1 token 10 → unknown")
	})
	t.Run("the lock went away meanwhile", func(t *testing.T) {
		s := held()
		op := s.claim(10)
		op.Outcome, op.Code = history.OutcomeRefused, fencing.CodeNotHolder
		s.holds(key, 20)
		op.Return = s.tick()
		s.claim(20)
		if got := verdict(check.Check(&s.History, check.NewLimits()), check.Progress); len(got.Violations) > 0 {
			t.Errorf("got %s, want nothing", got.Violations[0])
		}
	})
}
