package fencing_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/fenceproxy/fenceproxy/fencing"
	"github.com/fenceproxy/fenceproxy/testharness/postgres"
)

// makeStandby restarts srv as a standby without a primary.
func makeStandby(t *testing.T, srv *postgres.Server) {
	t.Helper()
	if err := srv.Stop(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(srv.DataDir(), "standby.signal"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := srv.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// TestClaimer_NewTimeline: after a failover nothing that was verified before
// counts, for the mark may have been lost with the old primary.
func TestClaimer_NewTimeline(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	e := holder("a", 10)
	c := s.claimer(e)
	claim := func() error { return c.Claim(t.Context(), database, fencing.Pair{Key: "a", Token: 10}) }
	if err := claim(); err != nil {
		t.Fatal(err)
	}
	makeStandby(t, s.srv)
	refusal(t, claim(), fencing.CodeUnverified, "PostgreSQL is read-only")
	asked := e.called()
	if promoted := one[bool](s, s.root(), "SELECT pg_promote()"); !promoted {
		t.Fatal("not promoted")
	}
	if err := claim(); err != nil {
		t.Fatal(err)
	}
	if got := e.called(); got != asked+1 {
		t.Errorf("etcd was asked %d times after the failover, want 1", got-asked)
	}
	if err := claim(); err != nil {
		t.Fatal(err)
	}
	if got := e.called(); got != asked+1 {
		t.Errorf("etcd was asked again on the same timeline")
	}
	e.hold("a", 11)
	s.exec(s.root(), "SELECT 1")
	refusal(t, s.claimer(e).Claim(t.Context(), database, fencing.Pair{Key: "a", Token: 10}), fencing.CodeNotHolder)
}
