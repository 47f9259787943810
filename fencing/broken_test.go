package fencing_test

import (
	"sync"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/fencing"
)

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

// What PostgreSQL said when it ended connections that were kept is no answer to
// the claim that finds them so, however many there are.
func TestClaimer_KeptConnectionsEnded(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	e := holder("a", 10)
	c := s.claimer(e)
	claim := func(token fencing.Token) error {
		e.hold("a", token)
		return c.Claim(t.Context(), database, fencing.Pair{Key: "a", Token: token})
	}
	var claims sync.WaitGroup
	for i := range 6 { // a connection for each
		key := string(rune('b' + i))
		e.hold(key, 10)
		claims.Go(func() {
			if err := c.Claim(t.Context(), database, fencing.Pair{Key: key, Token: 10}); err != nil {
				t.Error(err)
			}
		})
	}
	claims.Wait()
	for token := fencing.Token(11); token < 14; token++ {
		s.exec(s.root(), "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE application_name IN ('"+fencing.ClaimApplication+"', '"+fencing.WatchApplication+"')")
		if err := claim(token); err != nil {
			t.Errorf("a new claim of %d: got %v, want it accepted", token, err)
		}
		s.exec(s.root(), "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE application_name IN ('"+fencing.ClaimApplication+"', '"+fencing.WatchApplication+"')")
		if err := claim(token); err != nil {
			t.Errorf("the claim of %d again: got %v, want it accepted", token, err)
		}
	}
}

// Nor is it one to any other question.
func TestStore_KeptConnectionsEnded(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	s.claim("a", 10)
	root := s.root()
	s.exec(root, "GRANT SELECT (rolname, rolpassword) ON pg_authid TO "+adminRol)
	store, err := fencing.NewStore(s.srv.DSN(adminRol, database))
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	for name, ask := range map[string]func() error{
		"the lineage":     func() error { _, err := store.Lineage(t.Context(), database); return err },
		"a database":      func() error { _, err := store.HasDatabase(t.Context(), database); return err },
		"a secret":        func() error { _, err := store.RoleSecret(t.Context(), appRole); return err },
		"the key of mock": func() error { _, _, err := store.MockKey(t.Context()); return err },
		"privileges":      func() error { _, err := store.HasPrivilegesOf(t.Context(), appRole, []string{adminRol}); return err },
		"a first claim": func() error {
			c := fencing.NewClaimer(store, holder("a", 11), nil)
			defer c.Close()
			return c.Claim(t.Context(), database, fencing.Pair{Key: "a", Token: 11})
		},
	} {
		if _, err := store.Lineage(t.Context(), database); err != nil { // there is a connection now
			t.Fatal(err)
		}
		s.exec(root, "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE application_name = '"+fencing.WatchApplication+"'")
		if err := ask(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
