package main

import (
	"context"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/fenceproxy/fenceproxy/fencing"
	"github.com/fenceproxy/fenceproxy/testharness/stack"
)

// sent sends a Query and doesn't wait for its answer, which answer returns: its
// SQLSTATE, or what became of the connection.
func sent(t *testing.T, conn *pgx.Conn, sql string) (answer func() string) {
	t.Helper()
	frontend := conn.PgConn().Frontend()
	frontend.SendQuery(&pgproto3.Query{String: sql})
	if err := frontend.Flush(); err != nil {
		t.Fatal(err)
	}
	return func() (said string) {
		for {
			switch m, err := frontend.Receive(); m := m.(type) {
			case *pgproto3.ErrorResponse:
				said = m.Code
			case *pgproto3.ReadyForQuery:
				return said
			default:
				if err != nil {
					return err.Error()
				}
			}
		}
	}
}

// The proxy itself is paused, with its clients' requests on their way, and
// another one takes the next holder's claim.
func TestServe_PausedProxy(t *testing.T) {
	s := stack.New(t, "app")
	paused, other := serveOn(t, s), serveOn(t, s)
	first := hold(t, s.Client, "order:1")
	at := func(p *stack.Process, params ...string) *pgx.Conn {
		t.Helper()
		return open(t, s.ProxyDSN(p.Addr, stack.RoleApp, "app"), params...)
	}
	commits := at(paused, tagged("order:1", first.Token())...)
	exec1(t, commits, "CREATE TABLE t (i int)")
	exec1(t, commits, "BEGIN")
	exec1(t, commits, "INSERT INTO t VALUES (-1)")
	writes, tags := at(paused, tagged("order:1", first.Token())...), at(paused)

	if err := paused.Pause(t.Context()); err != nil {
		t.Fatal(err)
	}
	answers := map[string]func() string{
		"LF005, the COMMIT":   sent(t, commits, "COMMIT"),
		"LF001, a write":      sent(t, writes, "INSERT INTO t VALUES (-2)"),
		"LF001, a late claim": sent(t, tags, "SET fence.key = 'order:1'; SET fence.token = "+first.Token().String()),
	}
	lose(t, s.Client, "order:1")
	second := hold(t, s.Client, "order:1")
	exec1(t, at(other, tagged("order:1", second.Token())...), "INSERT INTO t VALUES (1)")
	if err := paused.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	for want, answer := range answers {
		if got := answer(); got != want[:len("LF000")] {
			t.Errorf("got %q, want %s", got, want)
		}
	}
	exec1(t, at(paused, tagged("order:1", second.Token())...), "INSERT INTO t VALUES (2)")
	if got := rows(t, s.Postgres); got != "1 2" {
		t.Errorf("got rows %s, want 1 2", got)
	}
	if got := mark(t, s.Postgres); got != second.Token() {
		t.Errorf("the mark: got %d, want %d", got, second.Token())
	}
}

// A killing is a stack with a proxy that is to be killed and another one, and a
// holder that has written 1.
type killing struct {
	*pair
	t      *testing.T
	other  *stack.Process
	holder fencing.Token
}

func newKilling(t *testing.T) *killing {
	t.Helper()
	// Nothing is ended for the sake of a claim before the proxy is killed.
	flags := []string{"--claim-timeout", "30s", "--evict-after", "29s"}
	k := &killing{pair: newPair(t, flags...), t: t}
	k.other = serveOn(t, k.Stack)
	k.holder = hold(t, k.Client, "order:1").Token()
	conn := k.at(k.other, k.holder)
	exec1(t, conn, "CREATE TABLE t (i int)")
	exec1(t, conn, "INSERT INTO t VALUES (1)")
	return k
}

// at opens a session that is tagged with a token.
func (k *killing) at(p *stack.Process, token fencing.Token) *pgx.Conn {
	k.t.Helper()
	return open(k.t, k.ProxyDSN(p.Addr, stack.RoleApp, "app"), tagged("order:1", token)...)
}

// claims has the next holder begin to claim through the proxy that is to be
// killed; the claim doesn't get far before it is.
func (k *killing) claims(where string) (next fencing.Token) {
	k.t.Helper()
	lose(k.t, k.Client, "order:1")
	next = hold(k.t, k.Client, "order:1").Token()
	sent(k.t, open(k.t, k.ProxyDSN(k.proxy.Addr, stack.RoleApp, "app")), "SET fence.key = 'order:1'; SET fence.token = "+next.String())
	k.until(k.t, "the claim waits", "SELECT count(*)::int FROM pg_stat_activity WHERE application_name = '"+fencing.ClaimApplication+"' AND "+where)
	return next
}

// ends checks what came of it: the rows, and that the last holder is in office.
func (k *killing) ends(last fencing.Token, want string) {
	k.t.Helper()
	exec1(k.t, k.at(k.other, last), "INSERT INTO t VALUES (9)")
	if got := mark(k.t, k.Postgres); got != last {
		k.t.Errorf("the mark: got %d, want %d", got, last)
	}
	if last != k.holder {
		if _, err := k.at(k.other, k.holder).Exec(context.Background(), "INSERT INTO t VALUES (-9)"); code(err) != string(fencing.CodeStale) {
			k.t.Errorf("the former holder: got %v, want %s", err, fencing.CodeStale)
		}
	}
	if got := rows(k.t, k.Postgres); got != want {
		k.t.Errorf("got rows %s, want %s", got, want)
	}
}

// A proxy is killed at each step of what it does for a holder, and the other
// one goes on from there.
func TestServe_KilledAtEveryStep(t *testing.T) {
	t.Run("in a transaction", func(t *testing.T) {
		k := newKilling(t)
		conn := k.at(k.proxy, k.holder)
		exec1(t, conn, "BEGIN")
		exec1(t, conn, "INSERT INTO t VALUES (-1)")
		k.proxy.Kill()
		if _, err := conn.Exec(context.Background(), "COMMIT"); err == nil {
			t.Error("the COMMIT was acknowledged")
		}
		k.ends(k.holder, "1 9")
	})
	t.Run("between verifying and marking", func(t *testing.T) {
		k := newKilling(t)
		stale := k.at(k.other, k.holder)
		exec1(t, stale, "BEGIN")
		exec1(t, stale, "INSERT INTO t VALUES (2)")
		next := k.claims("wait_event_type = 'Lock'")
		k.proxy.Kill()
		// No claim has been answered, so this may commit yet.
		exec1(t, stale, "COMMIT")
		k.ends(next, "1 2 9")
	})
	t.Run("between marking and answering", func(t *testing.T) {
		k := newKilling(t)
		stale := k.at(k.other, k.holder)
		set1(t, k.Postgres, "synchronous_standby_names", "standby")
		k.until(t, "the standby is synchronous", "SELECT count(*)::int FROM pg_stat_replication WHERE sync_state = 'sync'")
		k.standby.Pause()
		next := k.claims("wait_event = 'SyncRep'")
		k.proxy.Kill()
		answer := sent(t, stale, "INSERT INTO t VALUES (-1)")
		k.until(t, "the stale write waits behind the mark", "SELECT count(*)::int FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND usename = '"+stack.RoleApp+"'")
		k.standby.Resume()
		if got := answer(); got != string(fencing.CodeStale) {
			t.Errorf("the stale write: got %q, want %s", got, fencing.CodeStale)
		}
		k.ends(next, "1 9")
	})
}
