package fencing_test

import (
	"fmt"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/fenceproxy/fenceproxy/fencing"
	"github.com/fenceproxy/fenceproxy/testharness/poll"
)

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
