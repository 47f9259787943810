package fencing_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

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
