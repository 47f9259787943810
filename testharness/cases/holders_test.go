package cases_test

import (
	"context"
	"flag"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fenceproxy/fenceproxy/leases"
	"github.com/fenceproxy/fenceproxy/testharness/scenario"
	"github.com/fenceproxy/fenceproxy/testharness/stack"
)

// beActor is what the process of an actor does.
func beActor(ctx context.Context) error {
	flags := flag.NewFlagSet("actor", flag.ContinueOnError)
	etcd, prefix := flags.String("etcd", "", ""), flags.String("lock-prefix", "", "")
	if err := flags.Parse(os.Args[1:]); err != nil {
		return err
	}
	return scenario.Work(ctx, strings.Split(*etcd, ","), *prefix, os.Stdin, os.Stdout)
}

// play plays a story with actors in processes of their own, whose leases last
// two seconds: the first one's session goes through one proxy, the second one's
// through the other, or the same. The story's result is what stands in t.
func (r *rig) play(second *stack.Proxy, story func(*scenario.Stage)) scenario.Verdict {
	r.t.Helper()
	stage := &scenario.Stage{
		Arm: scenario.ArmFenced, History: scenario.NewHistory(), Etcd: r.Client, Prefix: leases.DefaultPrefix, TTL: 2 * time.Second,
		Command: []string{"env", asActor + "=1", os.Args[0]}, Admin: r.DSN(stack.RoleApp, "app"),
		Gates: []*scenario.Gate{
			{Name: "first", DSN: r.ProxyDSN(r.first.Addr(), stack.RoleApp, "app")},
			{Name: "second", DSN: r.ProxyDSN(second.Addr(), stack.RoleApp, "app")},
		},
	}
	verdict, err := stage.Run(r.t.Context(), scenario.Story{
		Name: r.t.Name(), Tables: "TRUNCATE t; DROP TABLE IF EXISTS expiring_lock", Result: "SELECT concat_ws(' ', id, v) FROM t ORDER BY id", Play: story,
	})
	if err != nil {
		r.t.Fatal(err)
	}
	return verdict
}

// wantVerdict checks codes and rows, and that nothing stale was acknowledged.
func wantVerdict(t *testing.T, v scenario.Verdict, codes, rows []string) {
	t.Helper()
	if v.StaleCommits != 0 {
		t.Errorf("got %d stale commits acknowledged", v.StaleCommits)
	}
	var got []string
	for _, r := range v.Rejections {
		got = append(got, string(r.Code))
	}
	if diff := cmp.Diff(codes, got); diff != "" {
		t.Errorf("codes (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(rows, v.Rows); diff != "" {
		t.Errorf("rows (-want +got):\n%s", diff)
	}
}

// An act of a story in one of the protocols.
func (p protocol) act(kind scenario.Kind, sql string) scenario.Act {
	verb := scenario.VerbSimple
	if p == extended {
		verb = scenario.VerbExec
	}
	return scenario.Act{Verb: verb, SQL: sql, Kind: kind, Story: sql}
}

// paused is a story: A begins with its acts, is paused with the lock in its
// hand, B takes over with its own, and A wakes up and goes on.
func paused(key string, begins, takesOver, goesOn []scenario.Act) func(*scenario.Stage) {
	return func(s *scenario.Stage) {
		a, b := s.Worker("A"), s.Worker("B")
		a.TakeOver(key, begins...)
		s.HandOver(a, b, key)
		b.Do(takesOver...)
		a.Send(goesOn[0])
		a.Wake()
		a.Answer()
		a.Do(goesOn[1:]...)
	}
}

// Case 1: A is paused inside a transaction, and its COMMIT comes after B has
// claimed. That B is answered while A sleeps shows that the claim doesn't wait
// for it; what B reads first is what stands there at the end.
func TestCase1_PausedInTransaction(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for p, second := range map[protocol]*stack.Proxy{simple: r.first, extended: r.other} {
		t.Run(string(p), func(t *testing.T) {
			verdict := r.on(t).play(second, paused(t.Name(),
				[]scenario.Act{simple.act(scenario.KindStep, "BEGIN"), p.act(scenario.KindStep, "INSERT INTO t VALUES (1, 'A')")},
				[]scenario.Act{p.act(scenario.KindCommit, "INSERT INTO t SELECT 2, 'B reads ' || count(*) FROM t")},
				[]scenario.Act{p.act(scenario.KindCommit, "COMMIT")},
			))
			wantVerdict(t, verdict, []string{"LF005"}, []string{"2 B reads 0"})
		})
	}
}

// Case 2: A is paused between two transactions. Its own proxy ends its session
// when B claims, and another can't.
func TestCase2_PausedBetweenTransactions(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for code, second := range map[string]*stack.Proxy{"LF005": r.first, "LF001": r.other} {
		t.Run(code, func(t *testing.T) {
			verdict := r.on(t).play(second, paused(t.Name(),
				[]scenario.Act{simple.act(scenario.KindCommit, "INSERT INTO t VALUES (1, 'A')")},
				[]scenario.Act{extended.act(scenario.KindCommit, "INSERT INTO t SELECT 2, 'B reads ' || count(*) FROM t")},
				[]scenario.Act{extended.act(scenario.KindCommit, "INSERT INTO t VALUES (3, 'A')"), simple.act(scenario.KindCommit, "UPDATE t SET v = 'A'")},
			))
			wantVerdict(t, verdict, []string{code, code}, []string{"1 A", "2 B reads 1"})
		})
	}
}

// Case 24: the holder's process is killed, with a transaction open. Its lease
// runs out, and the next in line is served and finds nothing of it.
func TestCase24_Killed(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	verdict := r.play(r.other, func(s *scenario.Stage) {
		a := s.Worker("A")
		a.TakeOver("killed", simple.act(scenario.KindStep, "BEGIN"), simple.act(scenario.KindStep, "INSERT INTO t VALUES (1, 'A')"))
		a.Crash()
		next := r.hold("killed", time.Minute)
		conn := r.tagged(r.other, "killed", next.Token())
		if got := text(t, conn, "SELECT count(*) FROM t"); got != "0" {
			t.Errorf("the next holder reads %s rows, want none", got)
		}
		must(t, conn, "INSERT INTO t VALUES (2, 'B')")
	})
	wantVerdict(t, verdict, nil, []string{"2 B"})
}

// What stands in the database at the end of a story is read when nothing can
// change it any more: not while a statement of a killed worker still runs.
func TestStage_Run_WaitsForTheLast(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	verdict := r.play(r.first, func(s *scenario.Stage) {
		a := s.Outsider("A")
		a.ConnectWith(", untagged")
		a.Send(simple.act(scenario.KindCommit, "INSERT INTO t SELECT 1, 'A' FROM pg_sleep(0.3)"))
		s.See("A's statement to run", "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE application_name = 'A' AND wait_event = 'PgSleep')")
		a.Crash()
	})
	wantVerdict(t, verdict, nil, []string{"1 A"})
}
