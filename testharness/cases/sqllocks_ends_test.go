package cases_test

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fenceproxy/fenceproxy/fencing"
	"github.com/fenceproxy/fenceproxy/testharness/fault"
	"github.com/fenceproxy/fenceproxy/testharness/poll"
	"github.com/fenceproxy/fenceproxy/testharness/stack"
)

// wantFree waits until there is no lock in etcd; a lease's end would take far longer.
func (r *rig) wantFree(what string) {
	r.t.Helper()
	poll.Until(r.t, "no lock after "+what, func() bool { return len(r.locksInEtcd()) == 0 })
}

// A wait for a lock ends when it is canceled, when its client goes, when its
// backend does and when the proxy drains, and its place in line is given back.
func TestSQLLocks_WaitEnds(t *testing.T) {
	r := newRig(t)
	holder := r.session(r.other)
	acquire(t, holder, "'k', '5min'")
	for _, c := range []struct {
		name string
		end  func(r *rig, conn *pgx.Conn, way *fault.Link)
		want string // the code, "" for none
	}{
		{"cancel", func(r *rig, conn *pgx.Conn, _ *fault.Link) {
			if err := conn.PgConn().CancelRequest(context.Background()); err != nil {
				r.t.Error(err)
			}
		}, "57014"},
		// The way is cut, so that no cancel request of the driver's gets there.
		{"the client goes", func(_ *rig, _ *pgx.Conn, way *fault.Link) { way.Set(fault.Cut) }, ""},
		{"the backend goes", func(r *rig, conn *pgx.Conn, _ *fault.Link) {
			super := stack.Connect(r.t, r.DSN("postgres", "app"))
			if _, err := super.Exec(context.Background(), "SELECT pg_terminate_backend($1)", conn.PgConn().PID()); err != nil {
				r.t.Error(err)
			}
		}, "57P01"},
	} {
		for _, p := range protocols() {
			t.Run(c.name+", "+string(p), func(t *testing.T) {
				r := r.on(t)
				way, err := fault.NewLink(r.first.Addr())
				if err != nil {
					t.Fatal(err)
				}
				defer way.Close()
				conn := stack.Connect(t, r.ProxyDSN(way.Addr(), stack.RoleApp, "app"))
				answer := make(chan error, 1)
				go func() { answer <- p.run(conn, "SELECT fence.acquire('k', '5min', '1min')") }()
				poll.Until(t, "somebody in line", func() bool { return len(r.locksInEtcd()) == 2 })
				c.end(r, conn, way)
				poll.Until(t, "the place in line is given back", func() bool { return len(r.locksInEtcd()) == 1 })
				if err := <-answer; err == nil || errors.As(err, new(*pgconn.PgError)) != (c.want != "") || !strings.Contains(err.Error(), c.want) {
					t.Errorf("got %v, want code %q", err, c.want)
				}
				if c.name == "cancel" {
					accepted(t, "afterwards", p.run(conn, "INSERT INTO t VALUES (1, 'a')"))
				}
			})
		}
	}
	t.Run("the proxy drains", func(t *testing.T) {
		r := r.on(t)
		conn := r.session(r.first)
		answer := make(chan error, 1)
		go func() { answer <- simple.run(conn, "SELECT fence.acquire('k', '5min', '1min')") }()
		poll.Until(t, "somebody in line", func() bool { return len(r.locksInEtcd()) == 2 })
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		if err := r.first.Server.Shutdown(ctx); err != nil {
			t.Errorf("Shutdown: %v", err)
		}
		refused(t, "the wait", <-answer, fencing.CodeUnverified, "shutting down")
		r.wantLocks(1)
	})
}

// What ends a session gives its locks back, once nothing of it can commit.
func TestSQLLocks_SessionEnds(t *testing.T) {
	r := newRig(t)
	r.admin("CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN PERFORM pg_sleep(0.5); RETURN NEW; END$$; " +
		"CREATE TABLE u (id int); CREATE TRIGGER slow BEFORE INSERT ON u FOR EACH ROW EXECUTE FUNCTION slow()")
	const running = "SELECT count(*)::text FROM pg_stat_activity WHERE wait_event = 'PgSleep'"
	for _, c := range []struct {
		name string
		end  func(r *rig, conn *pgx.Conn)
	}{
		{"a goodbye", func(_ *rig, conn *pgx.Conn) { conn.Close(context.Background()) }},
		{"a goodbye in a transaction", func(r *rig, conn *pgx.Conn) {
			must(r.t, conn, "BEGIN; INSERT INTO t VALUES (1, 'a')")
			conn.Close(context.Background())
		}},
		{"a client that went away", func(_ *rig, conn *pgx.Conn) { conn.PgConn().Conn().Close() }},
		{"a reset by the client", func(_ *rig, conn *pgx.Conn) {
			conn.PgConn().Conn().(*net.TCPConn).SetLinger(0)
			conn.PgConn().Conn().Close()
		}},
		{"an administrator's signal", func(r *rig, conn *pgx.Conn) {
			super := stack.Connect(r.t, r.DSN("postgres", "app"))
			if _, err := super.Exec(context.Background(), "SELECT pg_terminate_backend($1)", conn.PgConn().PID()); err != nil {
				r.t.Error(err)
			}
		}},
		{"broken framing", func(_ *rig, conn *pgx.Conn) { _, _ = io.WriteString(conn.PgConn().Conn(), "Q\x00\x00\x00\x01") }},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := r.on(t)
			conn := r.session(r.first)
			acquire(t, conn, "'a', '5min'")
			acquire(t, conn, "'b', '5min'")
			c.end(r, conn)
			r.wantFree(c.name)
			r.wantRows("none")
		})
	}
	t.Run("in the middle of a statement", func(t *testing.T) {
		r := r.on(t)
		conn := r.session(r.first)
		acquire(t, conn, "'k', '5min'")
		answer := make(chan error, 1)
		go func() { answer <- simple.run(conn, "INSERT INTO u VALUES (1)") }()
		admin := stack.Connect(t, r.DSN("postgres", "app"))
		poll.Until(t, "the statement runs", func() bool { return text(t, admin, running) == "1" })
		conn.PgConn().Conn().Close()
		<-answer
		poll.Until(t, "the lock is free", func() bool {
			free := len(r.locksInEtcd()) == 0
			if busy := text(t, admin, running) == "1"; free && busy {
				t.Fatal("the lock was given back while a statement of its holder ran")
			}
			return free
		})
	})
	t.Run("a drain", func(t *testing.T) {
		r := r.on(t)
		acquire(t, r.session(r.other), "'k', '5min'")
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		if err := r.other.Server.Shutdown(ctx); err != nil {
			t.Errorf("Shutdown: %v", err)
		}
		r.wantLocks(0)
	})
	t.Run("a close", func(t *testing.T) {
		r := r.on(t)
		acquire(t, r.session(r.first), "'idle', '5min'")
		busy := r.session(r.first)
		acquire(t, busy, "'busy', '5min'")
		answer := make(chan error, 1)
		go func() { answer <- simple.run(busy, "INSERT INTO u VALUES (1)") }()
		admin := stack.Connect(t, r.DSN("postgres", "app"))
		poll.Until(t, "the statement runs", func() bool { return text(t, admin, running) == "1" })
		r.first.Server.Close()
		<-answer
		// PostgreSQL may go on with the statement, and nobody sees its end.
		if got := r.locksInEtcd(); len(got) != 1 || !strings.HasPrefix(got[0], "busy/") {
			t.Errorf("locks in etcd: got %v, want that of the busy session", got)
		}
	})
}

// A client that stands still loses its lock, and its write is refused.
func TestSQLLocks_ClientStandsStill(t *testing.T) {
	r := newRig(t)
	for _, by := range []*stack.Proxy{r.first, r.other} {
		r := r.on(t)
		slow, next := r.session(r.first), r.session(by)
		old := acquire(t, slow, "'k', '2s'")
		accepted(t, "write", simple.run(slow, "BEGIN; INSERT INTO t VALUES (1, 'open')"))
		began := time.Now()
		token := acquire(t, next, "'k', '1min', '30s'")
		if token <= old || time.Since(began) > 20*time.Second {
			t.Errorf("got token %d after %d in %v, want a higher one soon after the lease's end", token, old, time.Since(began))
		}
		accepted(t, "the new holder's write", simple.run(next, "INSERT INTO t VALUES (2, 'new')"))
		refused(t, "the commit of the one who stood still", simple.run(slow, "COMMIT"), fencing.CodeEvicted)
		r.wantRows("2 new")
		next.Close(t.Context())
		r.wantFree("the new holder's end")
	}
}
