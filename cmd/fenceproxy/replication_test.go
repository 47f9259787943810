package main

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fenceproxy/fenceproxy/fencing"
	"github.com/fenceproxy/fenceproxy/testharness/poll"
	"github.com/fenceproxy/fenceproxy/testharness/postgres"
	"github.com/fenceproxy/fenceproxy/testharness/stack"
)

// set1 changes a setting of a server, without waiting for any standby.
func set1(t *testing.T, at *postgres.Server, setting, value string) {
	t.Helper()
	root := open(t, at.DSN(postgres.Superuser, "app"), "synchronous_commit", "local")
	defer root.Close(context.Background())
	exec1(t, root, "ALTER SYSTEM SET "+setting+" = '"+value+"'")
	exec1(t, root, "SELECT pg_reload_conf()")
}

// until waits until a query on the primary returns 1.
func (p *pair) until(t *testing.T, what, sql string) {
	t.Helper()
	root := open(t, p.DSN(postgres.Superuser, "app"), "synchronous_commit", "local")
	defer root.Close(context.Background())
	poll.Until(t, what, func() bool {
		var n int
		err := root.QueryRow(context.Background(), sql).Scan(&n)
		return err == nil && n == 1
	})
}

// open opens a session that is tagged with a token.
func (p *pair) open(t *testing.T, token fencing.Token) *pgx.Conn {
	t.Helper()
	return open(t, p.ProxyDSN(p.proxy.Addr, stack.RoleApp, "app"), tagged("order:1", token)...)
}

// rows is what stands in t on a server.
func rows(t *testing.T, at *postgres.Server) (all string) {
	t.Helper()
	root := open(t, at.DSN(postgres.Superuser, "app"))
	if err := root.QueryRow(context.Background(), "SELECT coalesce(string_agg(i::text, ' ' ORDER BY i), '') FROM t").Scan(&all); err != nil {
		t.Fatal(err)
	}
	return all
}

// The standby that takes over has not received the last claim. Its mark is the
// former holder's, who is refused all the same: etcd is asked again.
func TestServe_FailoverLosesAClaim(t *testing.T) {
	p := newPair(t)
	first := hold(t, p.Client, "order:1")
	a := p.open(t, first.Token())
	exec1(t, a, "CREATE TABLE t (i int)")
	exec1(t, a, "INSERT INTO t VALUES (1)")
	p.caughtUp(t)
	set1(t, p.standby, "primary_conninfo", "")
	p.until(t, "nothing replicates", "SELECT 1 - count(*)::int FROM pg_stat_replication")

	if err := first.Release(context.Background()); err != nil {
		t.Fatal(err)
	}
	second := hold(t, p.Client, "order:1")
	exec1(t, p.open(t, second.Token()), "INSERT INTO t VALUES (2)")
	if err := errors.Join(p.Postgres.Kill(), p.standby.Promote(t.Context())); err != nil {
		t.Fatal(err)
	}
	if got := mark(t, p.standby); got != first.Token() {
		t.Fatalf("the mark on the new primary: got %d, want the former holder's, %d: this proves nothing", got, first.Token())
	}
	// The former holder's session is gone, and it comes back with its token.
	if _, err := a.Exec(t.Context(), "INSERT INTO t VALUES (-1)"); err == nil {
		t.Error("the old session has written")
	}
	if _, err := p.open(t, first.Token()).Exec(t.Context(), "INSERT INTO t VALUES (-2)"); code(err) != string(fencing.CodeNotHolder) {
		t.Errorf("the former holder: got %v, want %s", err, fencing.CodeNotHolder)
	}
	exec1(t, p.open(t, second.Token()), "INSERT INTO t VALUES (3)")
	if _, err := p.open(t, first.Token()).Exec(t.Context(), "INSERT INTO t VALUES (-3)"); code(err) != string(fencing.CodeStale) {
		t.Errorf("the former holder after the claim: got %v, want %s", err, fencing.CodeStale)
	}
	if got := rows(t, p.standby); got != "1 3" {
		t.Errorf("got rows %s, want 1 3", got)
	}
}

// A synchronous standby hangs: a commit that waits for it is not ended, no claim
// is answered, and what was answered is there after the failover.
func TestServe_FailoverSynchronous(t *testing.T) {
	p := newPair(t, "--claim-timeout", "2s")
	first := hold(t, p.Client, "order:1")
	a := p.open(t, first.Token())
	exec1(t, a, "CREATE TABLE t (i int)")
	set1(t, p.Postgres, "synchronous_standby_names", "standby")
	p.until(t, "the standby is synchronous", "SELECT count(*)::int FROM pg_stat_replication WHERE sync_state = 'sync'")
	exec1(t, a, "INSERT INTO t VALUES (1)")

	p.standby.Pause()
	committed := make(chan error, 1)
	go func() {
		_, err := a.Exec(context.Background(), "INSERT INTO t VALUES (2)")
		committed <- err
	}()
	p.until(t, "a commit waits for the standby", "SELECT count(*)::int FROM pg_stat_activity WHERE wait_event = 'SyncRep'")
	lose(t, p.Client, "order:1")
	second := hold(t, p.Client, "order:1")
	b := p.open(t, second.Token())
	if _, err := b.Exec(t.Context(), "INSERT INTO t VALUES (3)"); code(err) != string(fencing.CodeClaimTimeout) {
		t.Errorf("a claim while the standby hangs: got %v, want %s", err, fencing.CodeClaimTimeout)
	}
	select {
	case err := <-committed:
		t.Errorf("the commit that waited was answered: %v", err)
	default:
	}
	p.standby.Resume()
	select {
	case err := <-committed:
		if err != nil {
			t.Errorf("the commit that waited: %v", err)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("the commit that waited was never answered")
	}
	exec1(t, b, "INSERT INTO t VALUES (3)")
	// At once: what was answered must be there.
	if err := errors.Join(p.Postgres.Kill(), p.standby.Promote(t.Context())); err != nil {
		t.Fatal(err)
	}
	if got := mark(t, p.standby); got != second.Token() {
		t.Errorf("the mark on the new primary: got %d, want %d", got, second.Token())
	}
	if got := rows(t, p.standby); got != "1 2 3" {
		t.Errorf("got rows %s, want 1 2 3", got)
	}
	if _, err := p.open(t, first.Token()).Exec(t.Context(), "INSERT INTO t VALUES (-1)"); code(err) != string(fencing.CodeStale) {
		t.Errorf("the former holder: got %v, want %s", err, fencing.CodeStale)
	}
}
