package fencing_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fenceproxy/fenceproxy/fencing"
	"github.com/fenceproxy/fenceproxy/testharness/poll"
)

// TestClaimer_SparesCommitsThatWaitForAStandby: to end one would show everybody
// a commit that isn't replicated.
func TestClaimer_SparesCommitsThatWaitForAStandby(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	s.claim("a", 41)
	stale := s.begun("a", 41, 1)
	s.standby("nobody")
	committed := make(chan error, 1)
	go func() {
		_, err := stale.Exec(t.Context(), "COMMIT")
		committed <- err
	}()
	s.waitEvent(1, "wait_event = 'SyncRep'")
	err := s.answered(start(t, s.claimer(holder("a", 42), claimTimeout(2*time.Second)), "a", 42))
	refusal(t, err, fencing.CodeClaimTimeout, `application "worker 41", waiting for a synchronous standby`, "Mend the replication")
	if got := s.jobs(); got != "none" {
		t.Errorf("a commit that is not replicated is visible: %s", got)
	}
	s.standby("")
	if err := <-committed; err != nil {
		t.Errorf("the commit: %v", err)
	}
	if err := s.answered(start(t, s.claimer(holder("a", 42)), "a", 42)); err != nil {
		t.Error(err)
	}
}

// standby sets synchronous_standby_names: with a name that nobody has, every
// synchronous commit waits.
func (s *stack) standby(names string) {
	s.t.Helper()
	root := s.root()
	s.exec(root, "SET synchronous_commit = local")
	s.exec(root, "ALTER SYSTEM SET synchronous_standby_names = '"+names+"'")
	s.exec(root, "SELECT pg_reload_conf()")
	poll.Until(s.t, "the setting", func() bool {
		return one[string](s, root, "SHOW synchronous_standby_names") == names
	})
	// Commits heed it only once the checkpointer has (syncrep.c).
	if names != "" {
		poll.Until(s.t, "a commit that waits", func() bool { return s.commitWaits(root) })
	}
}

// commitWaits tries a commit, and ends its wait.
func (s *stack) commitWaits(root *pgx.Conn) bool {
	s.t.Helper()
	probe := s.root()
	defer probe.Close(s.t.Context())
	s.exec(probe, "SET synchronous_commit = on; SET application_name = 'probe'")
	done := make(chan error, 1)
	go func() {
		_, err := probe.Exec(s.t.Context(), "SELECT pg_logical_emit_message(true, 'probe', '')")
		done <- err
	}()
	waits := false
	for {
		select {
		case err := <-done:
			if err != nil {
				s.t.Fatal(err)
			}
			return waits
		case <-time.After(5 * time.Millisecond):
			waits = one[bool](s, root, "SELECT count(pg_cancel_backend(pid)) > 0 FROM pg_stat_activity WHERE application_name = 'probe' AND wait_event = 'SyncRep'") || waits
		}
	}
}

// TestClaimer_IsDurable: whatever the role, the database and the DSN say, a
// claim waits for the synchronous standby, and giving up doesn't show its mark
// to anybody.
func TestClaimer_IsDurable(t *testing.T) {
	t.Parallel()
	cases := map[string]func(s *stack) (dsn string){
		"role": func(s *stack) string {
			s.exec(s.root(), "ALTER ROLE "+adminRol+" SET synchronous_commit = off")
			return s.srv.DSN(adminRol, database)
		},
		"database": func(s *stack) string {
			s.exec(s.root(), "ALTER DATABASE "+database+" SET synchronous_commit = local")
			return s.srv.DSN(adminRol, database)
		},
		"DSN":         func(s *stack) string { return s.srv.DSN(adminRol, database) + "&synchronous_commit=off" },
		"DSN options": func(s *stack) string { return s.srv.DSN(adminRol, database) + "&options=-csynchronous_commit%3Doff" },
	}
	for name, setup := range cases {
		t.Run(name, func(t *testing.T) {
			s := newStack(t)
			s.claim("a", 41)
			dsn := setup(s)
			s.standby("nobody")
			e := holder("a", 42)
			c := s.claimerOf(dsn, e, claimTimeout(2*time.Second))
			err := s.answered(start(t, c, "a", 42))
			refusal(t, err, fencing.CodeClaimTimeout, "The claim itself waits for a synchronous standby")
			if got := s.mark("a"); got != 41 {
				t.Errorf("the mark of an unanswered claim is %d, want 41", got)
			}
			s.standby("")
			if err := s.answered(start(t, c, "a", 42)); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestClaimer_BrokenOffCommit: when somebody breaks a claim's wait for the
// standby off, its mark is visible and not replicated; neither that claim nor
// one that finds the mark equal may be answered.
func TestClaimer_BrokenOffCommit(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	s.claim("a", 41)
	s.standby("nobody")
	e := holder("a", 42)
	broken := start(t, s.claimer(e, claimTimeout(deadline)), "a", 42)
	s.waitEvent(1, "wait_event = 'SyncRep'")
	s.exec(s.root(), "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'")
	refusal(t, s.answered(broken), fencing.CodeUnverified, "synchronous standby was broken off")
	if got := s.mark("a"); got != 42 {
		t.Fatalf("the mark is %d, want 42", got)
	}
	err := s.answered(start(t, s.claimer(e, claimTimeout(2*time.Second)), "a", 42))
	refusal(t, err, fencing.CodeClaimTimeout, "The claim itself waits for a synchronous standby")
	s.standby("")
	if err := s.answered(start(t, s.claimer(e), "a", 42)); err != nil {
		t.Error(err)
	}
}
