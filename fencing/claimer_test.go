package fencing_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/fencing"
)

func TestClaimer_Outcomes(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	e := holder("a", 10)
	c := s.claimer(e)
	claim := func(key string, token fencing.Token) error {
		return c.Claim(t.Context(), database, fencing.Pair{Key: key, Token: token})
	}
	steps := []struct {
		name  string
		setup func()
		token fencing.Token
		want  string
		mark  fencing.Token
	}{
		{"the first claim of a key", nil, 10, "", 10},
		{"again", nil, 10, "", 10},
		{"a waiter's token, higher than the holder's", nil, 99, "LF002", 10},
		{"an older token", nil, 9, "LF001", 10},
		{"the next holder", func() { e.hold("a", 12) }, 12, "", 12},
		{"the former holder, whom this claimer knew", nil, 10, "LF001", 12},
		{"no token", nil, 0, "LF009", 12},
		{"etcd away, the known holder", func() { e.set(func(e *etcd) { e.down = true }) }, 12, "", 12},
		{"etcd away, a new token", nil, 13, "LF003", 12},
		{"etcd away, a token below the mark", nil, 11, "LF001", 12},
	}
	for _, step := range steps {
		if step.setup != nil {
			step.setup()
		}
		if got := code(claim("a", step.token)); got != step.want {
			t.Errorf("%s: got %q, want %q", step.name, got, step.want)
		}
		if got := s.mark("a"); got != step.mark {
			t.Errorf("%s: the mark is %d, want %d", step.name, got, step.mark)
		}
	}
}

func TestClaimer_StaleSaysEverything(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	s.claim("order:8472", 42)
	e := holder("order:8472", 42)
	err := s.claimer(e).Claim(t.Context(), database, fencing.Pair{Key: "order:8472", Token: 41})
	refusal(t, err, fencing.CodeStale, "stale_token: order:8472 token 41 was superseded by 42",
		"presented token 41, accepted token 42 since 20", "by lock key /locks/order:8472/1", "Acquire it again")
}

func TestClaimer_KnownIsNotVerifiedAgain(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	e := holder("a", 10)
	c := s.claimer(e)
	for range 3 {
		if err := c.Claim(t.Context(), database, fencing.Pair{Key: "a", Token: 10}); err != nil {
			t.Fatal(err)
		}
	}
	if got := e.called(); got != 1 {
		t.Errorf("etcd was asked %d times, want 1", got)
	}
	t.Run("but after the mark is gone", func(t *testing.T) {
		s.exec(s.root(), "DELETE FROM fence.mark")
		if err := c.Claim(t.Context(), database, fencing.Pair{Key: "a", Token: 10}); err != nil {
			t.Fatal(err)
		}
		if got := e.called(); got != 2 {
			t.Errorf("etcd was asked %d times, want 2", got)
		}
	})
	t.Run("and after the lineage was changed", func(t *testing.T) {
		s.exec(s.root(), "INSERT INTO fence.lineage VALUES (2, 'c1', now(), 'a test')")
		if err := c.Claim(t.Context(), database, fencing.Pair{Key: "a", Token: 10}); err != nil {
			t.Fatal(err)
		}
		if got := e.called(); got != 3 {
			t.Errorf("etcd was asked %d times, want 3", got)
		}
	})
}

func TestClaimer_ManyAtOnceVerifyOnce(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	const callers = 200
	e := holder("a", 10)
	release := make(chan struct{})
	e.before = func() { <-release }
	c := s.claimer(e, func(c *fencing.Claimer) { c.VerifyTimeout = deadline })
	errs := make(chan error, callers)
	var entered sync.WaitGroup
	for range callers {
		entered.Add(1)
		go func() {
			entered.Done()
			errs <- c.Claim(context.WithoutCancel(t.Context()), database, fencing.Pair{Key: "a", Token: 10})
		}()
	}
	entered.Wait()
	close(release)
	for range callers {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	if got := e.called(); got != 1 {
		t.Errorf("etcd was asked %d times, want 1", got)
	}
}

func TestClaimer_CallerGivesUp(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	e := holder("a", 10)
	release := make(chan struct{})
	e.before = func() { <-release }
	c := s.claimer(e, func(c *fencing.Claimer) { c.VerifyTimeout = deadline })
	patient := start(t, c, "a", 10)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	refusal(t, c.Claim(ctx, database, fencing.Pair{Key: "a", Token: 10}), fencing.CodeUnverified)
	close(release)
	if err := s.answered(patient); err != nil {
		t.Errorf("the claim of the caller who waits: %v", err)
	}
}

func TestClaimer_LateOlderClaim(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	s.claim("a", 9) // the first of all claims is verified again for its lineage's sake
	e := holder("a", 10)
	old := s.claimer(e)
	// Verified, and then paused: meanwhile 11 takes over.
	e.after = func() {
		e.set(func(e *etcd) { e.after = nil })
		e.hold("a", 11)
		if err := s.claimer(e).Claim(t.Context(), database, fencing.Pair{Key: "a", Token: 11}); err != nil {
			t.Error(err)
		}
	}
	refusal(t, old.Claim(t.Context(), database, fencing.Pair{Key: "a", Token: 10}), fencing.CodeStale, "superseded by 11")
	if got := s.mark("a"); got != 11 {
		t.Errorf("the mark is %d, want 11", got)
	}
}

func TestClaimer_Lineage(t *testing.T) {
	t.Parallel()
	t.Run("another cluster", func(t *testing.T) {
		s := newStack(t)
		s.claim("a", 10)
		e := holder("a", 12)
		e.cluster = "c2"
		err := s.claimer(e).Claim(t.Context(), database, fencing.Pair{Key: "a", Token: 12})
		refusal(t, err, fencing.CodeLineage, "c2", "When etcd is replaced")
	})
	t.Run("revisions run backwards", func(t *testing.T) {
		s := newStack(t)
		s.claim("a", 100)
		e := holder("b", 12)
		e.rev = 20
		err := s.claimer(e).Claim(t.Context(), database, fencing.Pair{Key: "b", Token: 12})
		refusal(t, err, fencing.CodeLineage, "revision 20, and was at 100 before")
		if got := s.mark("b"); got != 0 {
			t.Errorf("the mark is %d, want none", got)
		}
	})
	t.Run("an older holder is the holder again", func(t *testing.T) {
		s := newStack(t)
		s.claim("a", 100)
		e := holder("a", 12)
		e.rev = 200
		err := s.claimer(e).Claim(t.Context(), database, fencing.Pair{Key: "a", Token: 12})
		refusal(t, err, fencing.CodeLineage, "token 100 was accepted before")
	})
	t.Run("another key's mark is just younger than the verification", func(t *testing.T) {
		s := newStack(t)
		s.claim("a", 9) // or the first of all claims would be verified again anyway
		e := holder("a", 10)
		late := s.claimer(e)
		e.after = func() {
			e.set(func(e *etcd) { e.after = nil })
			e.hold("b", 11)
			if err := s.claimer(e).Claim(t.Context(), database, fencing.Pair{Key: "b", Token: 11}); err != nil {
				t.Error(err)
			}
		}
		if err := late.Claim(t.Context(), database, fencing.Pair{Key: "a", Token: 10}); err != nil {
			t.Error(err)
		}
	})
	t.Run("tokens of an adopted lineage start below", func(t *testing.T) {
		s := newStack(t)
		s.claim("a", 100)
		s.exec(s.root(), "INSERT INTO fence.lineage VALUES (2, 'c2', now(), 'a test')")
		e := holder("a", 5)
		e.cluster = "c2"
		if err := s.claimer(e).Claim(t.Context(), database, fencing.Pair{Key: "a", Token: 5}); err != nil {
			t.Fatal(err)
		}
		if got := s.mark("a"); got != 5 {
			t.Errorf("the mark is %d, want 5", got)
		}
	})
}

func TestClaimer_NotInstalled(t *testing.T) {
	t.Parallel()
	s := newBareStack(t)
	for _, e := range []*etcd{holder("a", 10), holder("a", 11)} {
		err := s.claimer(e).Claim(t.Context(), database, fencing.Pair{Key: "a", Token: 10})
		refusal(t, err, fencing.CodeNotInstalled, "database app", "fenceproxy init --upstream 'postgres://fence_admin@127.0.0.1:", "/app'")
	}
}

func TestClaimer_Close(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	s.claim("a", 10)
	stale := s.begun("a", 10, 1)
	c := s.claimer(holder("a", 11), evictAfter(time.Hour))
	answer := start(t, c, "a", 11)
	s.waiting(1)
	c.Close()
	refusal(t, s.answered(answer), fencing.CodeUnverified, "shutting down")
	refusal(t, c.Claim(t.Context(), database, fencing.Pair{Key: "a", Token: 11}), fencing.CodeUnverified, "shutting down")
	s.exec(stale, "COMMIT")
}

func TestClaimer_AfterRestart(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	e := holder("a", 10)
	c := s.claimer(e, claimTimeout(deadline), evictAfter(deadline))
	claim := func() error { return c.Claim(t.Context(), database, fencing.Pair{Key: "a", Token: 10}) }
	if err := claim(); err != nil {
		t.Fatal(err)
	}
	if err := s.srv.Kill(); err != nil {
		t.Fatal(err)
	}
	refusal(t, claim(), fencing.CodeUnverified)
	if err := s.srv.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := claim(); err != nil {
		t.Errorf("after the restart: %v", err)
	}
	if got := s.mark("a"); got != 10 {
		t.Errorf("after kill -9 the mark is %d, want 10", got)
	}
	// The pool's connections are the restarted server's now, and another kill
	// breaks them all.
	root := s.root()
	s.exec(root, "BEGIN; LOCK TABLE fence.mark")
	var answers []<-chan error
	for token := range fencing.Token(3) {
		e.hold("b", 11+token)
		answers = append(answers, start(t, c, "b", 11+token))
		s.waiting(len(answers))
	}
	s.exec(root, "ROLLBACK")
	for _, answer := range answers {
		_ = s.answered(answer) // which of them is stale is not the matter here
	}
	e.hold("a", 14)
	if err := errors.Join(s.srv.Kill(), s.srv.Restart(t.Context())); err != nil {
		t.Fatal(err)
	}
	if err := c.Claim(t.Context(), database, fencing.Pair{Key: "a", Token: 14}); err != nil {
		t.Errorf("on broken connections: %v", err)
	}
}

// hangs is an Authority that doesn't answer.
type hangs struct{}

func (hangs) Verify(ctx context.Context, _ string, _ fencing.Token) (fencing.Verification, error) {
	<-ctx.Done()
	return fencing.Verification{}, ctx.Err()
}

// Claims that begin after Retime go by its times.
func TestClaimer_Retime(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	c := s.claimer(holder("a", 10), func(c *fencing.Claimer) { c.VerifyTimeout = time.Hour })
	c.Authority = hangs{}
	times := c.Times
	times.VerifyTimeout = time.Millisecond
	c.Retime(times)
	refusal(t, s.answered(start(t, c, "a", 10)), fencing.CodeUnverified)
}
