package fencing_test

import (
	"bytes"
	"context"
	"os"
	"testing"

	"github.com/fenceproxy/fenceproxy/fencing"
)

// logged lets PostgreSQL log every statement with the application's name.
var logged = []string{"log_statement = 'all'", "log_line_prefix = '%a|'", "log_duration = off"}

// statements counts what the proxies' own sessions have sent so far.
func (s *stack) statements() (claims, others int) {
	s.t.Helper()
	text, err := os.ReadFile(s.srv.LogFile())
	if err != nil {
		s.t.Fatal(err)
	}
	for line := range bytes.Lines(text) {
		switch application, said, _ := bytes.Cut(line, []byte("|LOG:  execute ")); {
		case len(said) == 0:
		case string(application) == fencing.ClaimApplication && bytes.Contains(said, []byte("SELECT outcome")): // fence.claim's
			claims++
		case string(application) == fencing.ClaimApplication, string(application) == fencing.WatchApplication:
			others++
		}
	}
	return claims, others
}

// A claim is one question to etcd and one transaction in PostgreSQL, on
// connections that are there already.
func TestClaimer_Costs(t *testing.T) {
	t.Parallel()
	s := newStack(t, logged...)
	e := holder("a", 10)
	c := s.claimer(e)
	claim := func(token fencing.Token) {
		t.Helper()
		e.hold("a", token)
		if err := c.Claim(t.Context(), database, fencing.Pair{Key: "a", Token: token}); err != nil {
			t.Fatal(err)
		}
	}
	claim(10)
	asked, xid := e.called(), one[int64](s, s.root(), "SELECT pg_current_xact_id()::text::bigint")
	claims, others := s.statements()
	const n = 20
	for i := range fencing.Token(n) {
		claim(11 + i)
	}
	if got := e.called() - asked; got != n {
		t.Errorf("%d claims: etcd was asked %d times", n, got)
	}
	if now, also := s.statements(); now-claims != n || also != others {
		t.Errorf("%d claims: got %d statements that raise and %d others in PostgreSQL, want %d and 0", n, now-claims, also-others, n)
	}
	if got := one[int64](s, s.root(), "SELECT pg_current_xact_id()::text::bigint") - xid - 1; got != n {
		t.Errorf("%d claims: got %d transactions that wrote", n, got)
	}
	if c.Store.AsksIdle(database) {
		t.Error("a claim after a pause has a round trip to PostgreSQL more than others")
	}
}

// Claims of one token at the same time are one claim for PostgreSQL too.
func TestClaimer_ManyAtOnceRaiseOnce(t *testing.T) {
	t.Parallel()
	s := newStack(t, logged...)
	s.claim("a", 9)
	stale := s.begun("a", 9, 1)
	before, _ := s.statements()
	c := s.claimer(holder("a", 10), claimTimeout(deadline), evictAfter(deadline))
	const callers = 200
	errs := make(chan error, callers)
	first := start(t, c, "a", 10)
	s.waiting(1)
	for range callers - 1 {
		go func() {
			errs <- c.Claim(context.WithoutCancel(t.Context()), database, fencing.Pair{Key: "a", Token: 10})
		}()
	}
	s.unanswered(first)
	s.exec(stale, "COMMIT")
	errs <- s.answered(first)
	for range callers {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	if after, _ := s.statements(); after-before != 1 {
		t.Errorf("%d claims of one token: got %d in PostgreSQL, want 1", callers, after-before)
	}
}
