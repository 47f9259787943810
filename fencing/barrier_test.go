package fencing_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/fenceproxy/fenceproxy/fencing"
	"github.com/fenceproxy/fenceproxy/testharness/poll"
	"github.com/fenceproxy/fenceproxy/testharness/postgres"
)

// TestClaimer_WaitsForCheckedTransactions is the barrier: a claim is answered
// after the transactions that were checked under a lower token, and its answer
// comes with all that they committed.
func TestClaimer_WaitsForCheckedTransactions(t *testing.T) {
	t.Parallel()
	const single = "SET fence.key = 'a'; SET fence.token = 41"
	cases := []struct{ name, tag, begin string }{
		{"read committed", single, "BEGIN"},
		{"several locks", `SET fence.tokens = '{"a": 41, "b": 7}'`, "BEGIN"},
		{"repeatable read", single, "BEGIN ISOLATION LEVEL REPEATABLE READ"},
		{"serializable", single, "BEGIN ISOLATION LEVEL SERIALIZABLE"},
		{"read uncommitted", single, "BEGIN ISOLATION LEVEL READ UNCOMMITTED"},
	}
	s := newStack(t)
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			s := &stack{t: t, srv: s.srv}
			s.exec(s.root(), "DELETE FROM fence.mark; DELETE FROM job")
			s.claim("b", 7)
			s.claim("a", 41)
			stale := s.dial(appRole, database)
			for _, sql := range []string{c.tag, c.begin, "SELECT fence.check()", "INSERT INTO job VALUES (1, '41')"} {
				s.exec(stale, sql)
			}
			answer := start(t, s.claimer(holder("a", 42), evictAfter(time.Hour)), "a", 42)
			// Long enough for many looks, were it not for EvictAfter.
			s.waitEvent(1, "application_name = '"+fencing.ClaimApplication+"' AND wait_event_type = 'Lock' AND clock_timestamp() - query_start > '200 ms'")
			s.unanswered(answer)
			s.exec(stale, "COMMIT")
			if err := s.answered(answer); err != nil {
				t.Fatal(err)
			}
			if got, want := s.jobs(), "1 by 41"; got != want {
				t.Errorf("after the claim: got %s, want %s", got, want)
			}
			if _, err := stale.Exec(t.Context(), "SELECT fence.check()"); code(err) != "LF001" {
				t.Errorf("the former holder's next check: got %v, want LF001", err)
			}
		})
	}
}

// TestClaimer_EndsStaleTransactions: whatever stale holders left open, the
// claim is answered, and nothing of theirs is left.
func TestClaimer_EndsStaleTransactions(t *testing.T) {
	t.Parallel()
	for _, blockers := range []int{1, 5} {
		t.Run(fmt.Sprint(blockers), func(t *testing.T) {
			s := newStack(t)
			s.claim("a", 41)
			for id := range blockers {
				s.begun("a", 41, id)
			}
			o := &observer{}
			c := s.claimer(holder("a", 42), evictAfter(50*time.Millisecond), func(c *fencing.Claimer) { c.Observer = o })
			if err := s.answered(start(t, c, "a", 42)); err != nil {
				t.Fatal(err)
			}
			if got := s.jobs(); got != "none" {
				t.Errorf("rows of ended transactions: %s", got)
			}
			if got := o.reports(t); len(got) != 1 || got[0].Outcome != fencing.OutcomeRaised || got[0].Ended != blockers {
				t.Errorf("got report %+v, want one raised claim that ended %d", got, blockers)
			}
		})
	}
}

// An observer keeps what it hears.
type observer struct {
	mu    sync.Mutex
	done  []fencing.ClaimReport
	ended []fencing.Blocker
}

func (o *observer) ClaimDone(r fencing.ClaimReport) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.done = append(o.done, r)
}

func (o *observer) BackendEnded(_, _ string, b fencing.Blocker) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ended = append(o.ended, b)
}

// reports returns what was told of claims, once there is some: it comes after
// their answers.
func (o *observer) reports(t *testing.T) (done []fencing.ClaimReport) {
	t.Helper()
	poll.Until(t, "a claim is told of", func() bool {
		o.mu.Lock()
		defer o.mu.Unlock()
		done = o.done
		return len(done) > 0
	})
	return done
}

func TestClaimer_SparesRunningStatementsOnlyUntilEvictAfter(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	s.claim("a", 41)
	stale := s.begun("a", 41, 1)
	busy := make(chan error, 1)
	go func() {
		_, err := stale.Exec(t.Context(), "SELECT pg_sleep(3600)")
		busy <- err
	}()
	s.waitEvent(1, "wait_event = 'PgSleep'")
	if err := s.answered(start(t, s.claimer(holder("a", 42), evictAfter(50*time.Millisecond)), "a", 42)); err != nil {
		t.Fatal(err)
	}
	if err := <-busy; code(err) != "57P01" {
		t.Errorf("the stale statement: got %v, want 57P01", err)
	}
}

// TestClaimer_EqualDoesNotWait: another session of the same holder is not
// waited for and not ended.
func TestClaimer_EqualDoesNotWait(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	s.claim("a", 42)
	same := s.begun("a", 42, 1)
	before := s.markRow()
	o := &observer{}
	c := s.claimer(holder("a", 42), evictAfter(0), func(c *fencing.Claimer) { c.Observer = o })
	if err := s.answered(start(t, c, "a", 42)); err != nil {
		t.Fatal(err)
	}
	if got := o.reports(t); len(got) != 1 || got[0].Outcome != fencing.OutcomeHeld {
		t.Errorf("got %+v, want one held claim", got)
	}
	if got := s.markRow(); got != before {
		t.Errorf("the mark was written: %s, before %s", got, before)
	}
	s.exec(same, "COMMIT")
}

// TestClaimer_QueueOfClaims: the second claim ends what the first one waits
// for, and never the first one.
func TestClaimer_QueueOfClaims(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	s.claim("a", 41)
	s.begun("a", 41, 1)
	e := holder("a", 42)
	first := start(t, s.claimer(e, evictAfter(time.Hour)), "a", 42)
	s.waiting(1)
	e.hold("a", 43)
	o := &observer{}
	second := start(t, s.claimer(e, evictAfter(50*time.Millisecond), func(c *fencing.Claimer) { c.Observer = o }), "a", 43)
	if err := s.answered(second); err != nil {
		t.Errorf("the second claim: %v", err)
	}
	if err := s.answered(first); err != nil {
		t.Errorf("the first claim: %v", err)
	}
	if got := s.mark("a"); got != 43 {
		t.Errorf("the mark is %d, want 43", got)
	}
	for _, b := range o.ended {
		if b.Application != "worker 41" {
			t.Errorf("ended %v", b)
		}
	}
}

// TestClaimer_NeverEndsAClaim: a claim looks through the claim before it, and
// leaves that alone even if it can't end what both wait for.
func TestClaimer_NeverEndsAClaim(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	s.claim("a", 41)
	admin := s.root()
	s.exec(admin, "BEGIN")
	s.exec(admin, "SELECT FROM fence.mark FOR SHARE")
	e := holder("a", 42)
	first := start(t, s.claimer(e, evictAfter(time.Hour), claimTimeout(deadline)), "a", 42)
	s.waiting(1)
	e.hold("a", 43)
	second := start(t, s.claimer(e, evictAfter(0), claimTimeout(deadline)), "a", 43)
	s.waiting(2)
	// Two tries to end the superuser's session: a whole look lies between.
	tries, root := map[time.Time]bool{}, s.root()
	poll.Until(s.t, "two tries", func() bool {
		rows, err := root.Query(t.Context(), "SELECT query_start FROM pg_stat_activity WHERE application_name = '"+fencing.WatchApplication+"' AND query LIKE '%pg_terminate_backend%'")
		if err != nil {
			t.Fatal(err)
		}
		starts, err := pgx.CollectRows(rows, pgx.RowTo[time.Time])
		if err != nil {
			t.Fatal(err)
		}
		for _, at := range starts {
			tries[at] = true
		}
		return len(tries) >= 2
	})
	s.waiting(2)
	s.exec(admin, "COMMIT")
	for _, answer := range []<-chan error{first, second} {
		if err := s.answered(answer); err != nil {
			t.Error(err)
		}
	}
}

// TestClaimer_NeverEndsALaterHolder: an update locks the newest row before it
// sees that it has nothing to do, so a claim can come to wait for the holder of
// a later token, or of its own. It must neither end that holder nor wait for it.
func TestClaimer_NeverEndsALaterHolder(t *testing.T) {
	t.Parallel()
	cases := []struct {
		name  string
		token fencing.Token
		want  string
	}{
		{"an older claim", 42, "LF001"},
		{"an equal claim", 43, ""},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			s := newStack(t)
			s.claim("a", 41)
			stale := s.begun("a", 41, 1)
			later := start(t, s.claimer(holder("a", 43), evictAfter(time.Hour)), "a", 43)
			before := s.claimBackends(1)
			e := holder("a", c.token) // as this claim's proxy saw etcd some time ago
			e.after = func() { e.hold("a", 43) }
			o := &observer{}
			// Not to be overtaken before it is stopped.
			claim := start(t, s.claimer(e, evictAfter(300*time.Millisecond), func(c *fencing.Claimer) { c.Observer = o }), "a", c.token)
			backend := slices.DeleteFunc(s.claimBackends(2), func(pid int) bool { return slices.Contains(before, pid) })[0]
			// Its backend sleeps through the later claim and its holder's check.
			if err := syscall.Kill(backend, syscall.SIGSTOP); err != nil {
				t.Fatal(err)
			}
			s.exec(stale, "COMMIT")
			if err := s.answered(later); err != nil {
				t.Fatal(err)
			}
			row := s.markRow()
			rightful := s.begun("a", 43, 2)
			if err := syscall.Kill(backend, syscall.SIGCONT); err != nil {
				t.Fatal(err)
			}
			if err := s.answered(claim); code(err) != c.want {
				t.Errorf("got %v, want %q", err, c.want)
			}
			s.exec(rightful, "COMMIT")
			if got := o.reports(t); len(got) != 1 || got[0].Ended > 0 {
				t.Errorf("got %+v, want nobody ended", got)
			}
			// What the claim left behind in PostgreSQL has nothing to do.
			s.waiting(0)
			if got := s.markRow(); got != row {
				t.Errorf("the mark was written: %s, before %s", got, row)
			}
		})
	}
}

// claimBackends waits for n claims that wait for a lock, and returns their
// backends: a second look might miss one that looks up for a moment.
func (s *stack) claimBackends(n int) (pids []int) {
	s.t.Helper()
	conn := s.root()
	poll.Until(s.t, "claims that wait for a lock", func() bool {
		rows, err := conn.Query(s.t.Context(), "SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND application_name = '"+fencing.ClaimApplication+"'")
		if err != nil {
			s.t.Fatal(err)
		}
		if pids, err = pgx.CollectRows(rows, pgx.RowTo[int]); err != nil {
			s.t.Fatal(err)
		}
		return len(pids) == n
	})
	return pids
}

// markRow returns what changes whenever the one mark's row is written.
func (s *stack) markRow() string {
	s.t.Helper()
	return one[string](s, s.root(), "SELECT concat_ws(' ', token, xmin, ctid, claimed_at) FROM fence.mark")
}

func TestClaimer_PreparedTransaction(t *testing.T) {
	t.Parallel()
	for _, restart := range []bool{false, true} {
		t.Run(fmt.Sprintf("restart=%v", restart), func(t *testing.T) {
			s := newStack(t, "max_prepared_transactions = 5")
			s.claim("a", 41)
			s.claim("b", 42)
			s.exec(s.begun("b", 42, 2), "PREPARE TRANSACTION 'innocent'")
			s.exec(s.begun("a", 41, 1), "PREPARE TRANSACTION 'left behind'")
			if restart {
				if err := s.srv.Restart(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			e := holder("a", 43)
			err := s.answered(start(t, s.claimer(e, claimTimeout(2*time.Second)), "a", 43))
			refusal(t, err, fencing.CodeClaimTimeout, "a token 43 could not be claimed within 2s", "'left behind'", "ROLLBACK PREPARED")
			if strings.Contains(err.(*fencing.Error).Detail, "innocent") {
				t.Errorf("another prepared transaction is named: %s", err.(*fencing.Error).Detail)
			}
			s.exec(s.root(), "ROLLBACK PREPARED 'left behind'")
			if err := s.answered(start(t, s.claimer(e), "a", 43)); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestClaimer_MayNotEnd: where a blocker can't be ended, the answer says what
// right is missing, and the blocker is left alone.
func TestClaimer_MayNotEnd(t *testing.T) {
	t.Parallel()
	cases := []struct {
		name   string
		revoke string
		setup  func(s *stack) *pgx.Conn
		says   []string
	}{
		{"may not signal", "pg_signal_backend", func(s *stack) *pgx.Conn { return s.begun("a", 41, 1) },
			[]string{`user app_user, application "worker 41", idle in transaction`, `GRANT pg_signal_backend TO "fence_admin"`}},
		{"may not see", "pg_read_all_stats", func(s *stack) *pgx.Conn { return s.begun("a", 41, 1) },
			[]string{`application "worker 41", state not visible to this role`, `GRANT pg_read_all_stats TO "fence_admin"`}},
		{"a superuser's session", "", func(s *stack) *pgx.Conn {
			conn := s.dial(postgres.Superuser, database)
			s.exec(conn, "BEGIN")
			s.exec(conn, "SELECT FROM fence.mark FOR SHARE")
			return conn
		}, []string{"user postgres", "Only a superuser may end a superuser's session"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			s := newStack(t)
			s.claim("a", 41)
			blocker := c.setup(s)
			if c.revoke != "" {
				s.exec(s.root(), "REVOKE "+c.revoke+" FROM "+adminRol)
			}
			err := s.answered(start(t, s.claimer(holder("a", 42), claimTimeout(2*time.Second)), "a", 42))
			refusal(t, err, fencing.CodeClaimTimeout, append(c.says, "Blocked by pid ", "transaction age ")...)
			s.exec(blocker, "COMMIT")
		})
	}
}

// TestClaimer_RetriesDeadlocks: an administrator's table lock makes the claim
// the victim of a deadlock.
func TestClaimer_RetriesDeadlocks(t *testing.T) {
	t.Parallel()
	s := newStack(t, "deadlock_timeout = 1s")
	s.claim("a", 41)
	admin := s.root()
	s.exec(admin, "SET deadlock_timeout = '1h'") // so that it is never the victim itself
	s.exec(admin, "BEGIN")
	s.exec(admin, "SELECT FROM fence.mark FOR SHARE")
	answer := start(t, s.claimer(holder("a", 42), evictAfter(time.Hour), claimTimeout(deadline)), "a", 42)
	s.waiting(1)
	s.exec(admin, "LOCK TABLE fence.mark IN SHARE MODE")
	s.exec(admin, "COMMIT")
	if err := s.answered(answer); err != nil {
		t.Error(err)
	}
	if got := one[int](s, s.root(), "SELECT deadlocks::int FROM pg_stat_database WHERE datname = current_database()"); got == 0 {
		t.Log("the statistics have no deadlock yet")
	}
}

// TestClaimer_OutlivesItsProxy: a claim whose proxy is gone ends by itself, and
// blocks no other for longer than its time-out.
func TestClaimer_OutlivesItsProxy(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	s.claim("a", 41)
	stale := s.begun("a", 41, 1)
	c := s.claimer(holder("a", 42), evictAfter(time.Hour), claimTimeout(2*time.Second))
	answer := start(t, c, "a", 42)
	s.waiting(1)
	c.Close() // breaks off without a cancel request, as kill -9 does
	refusal(t, s.answered(answer), fencing.CodeUnverified)
	s.waiting(0)
	s.exec(stale, "COMMIT")
	if got := s.mark("a"); got != 41 {
		t.Errorf("the mark is %d, want 41", got)
	}
}

// TestClaimer_FullOfWaitingClaims: claims that wait don't keep one another from
// ending what they wait for, nor a known holder from going on.
func TestClaimer_FullOfWaitingClaims(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	e := holder("known", 1)
	c := s.claimer(e, evictAfter(300*time.Millisecond), func(c *fencing.Claimer) { c.Store.ClaimConns = 4 })
	if err := c.Claim(t.Context(), database, fencing.Pair{Key: "known", Token: 1}); err != nil {
		t.Fatal(err)
	}
	var answers []<-chan error
	for i := range 8 {
		key := fmt.Sprint("k", i)
		s.claim(key, fencing.Token(10+i))
		s.begun(key, fencing.Token(10+i), i)
		e.hold(key, fencing.Token(100+i))
	}
	for i := range 8 {
		answers = append(answers, start(t, c, fmt.Sprint("k", i), fencing.Token(100+i)))
	}
	s.waiting(4)
	if err := c.Claim(t.Context(), database, fencing.Pair{Key: "known", Token: 1}); err != nil {
		t.Error(err)
	}
	for _, answer := range answers {
		if err := s.answered(answer); err != nil {
			t.Error(err)
		}
	}
}

// A claim whose connection breaks, again and again, goes on over another one.
func TestClaimer_ConnectionBreaksAgain(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	s.claim("a", 9)
	stale := s.begun("a", 9, 1)
	c := s.claimer(holder("a", 10), claimTimeout(deadline), evictAfter(deadline))
	answer := start(t, c, "a", 10)
	root := s.root()
	for range 3 {
		s.waiting(1)
		s.exec(root, "SELECT pg_terminate_backend(pid, 20000) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND application_name = '"+fencing.ClaimApplication+"'")
	}
	s.waiting(1)
	s.unanswered(answer)
	s.exec(stale, "COMMIT")
	if err := s.answered(answer); err != nil {
		t.Error(err)
	}
}

// A claim that another one has overtaken while it waited leaves the mark alone, even
// if its last message never comes: the holder goes on writing.
func TestClaim_OvertakenLocksNothing(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	s.claim("a", 10)
	root := s.root()
	s.exec(root, "BEGIN; SELECT fence.claim('a', 12, '', 'c1', 20, 1, '')")

	late := s.dial(adminRol, database)
	s.exec(late, "SET application_name = 'late'")
	frontend := late.PgConn().Frontend()
	frontend.Send(&pgproto3.Parse{Query: "SELECT outcome FROM fence.claim('a', 11, '', 'c1', 20, 1, '')"})
	frontend.Send(&pgproto3.Bind{})
	frontend.Send(&pgproto3.Execute{})
	frontend.Send(&pgproto3.Flush{})
	if err := frontend.Flush(); err != nil {
		t.Fatal(err)
	}
	s.waitEvent(1, "wait_event_type = 'Lock' AND application_name = 'late'")
	s.exec(root, "COMMIT")
	for answered := false; !answered; {
		m, err := frontend.Receive()
		if err != nil {
			t.Fatal(err)
		}
		switch m.(type) {
		case *pgproto3.ErrorResponse, *pgproto3.CommandComplete:
			answered = true
		}
	}

	holder := s.tagged("a", 12)
	s.exec(holder, "SET lock_timeout = '5s'")
	s.exec(holder, "SELECT fence.check()")
}
