package main

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fenceproxy/fenceproxy/proxy/console"
	"github.com/fenceproxy/fenceproxy/testharness/fault"
	"github.com/fenceproxy/fenceproxy/testharness/poll"
	"github.com/fenceproxy/fenceproxy/testharness/stack"
)

// SHOW KEYS knows who holds a lock in etcd, and who has it next; while etcd is away it
// shows the rest, and says why.
func TestServe_ConsoleKeys(t *testing.T) {
	s := stack.New(t, "app")
	p := serveOn(t, s, "--admin-roles", stack.RoleApp)
	lease := hold(t, s.Client, "order:1")
	exec1(t, open(t, s.ProxyDSN(p.Addr, stack.RoleApp, "app"), tagged("order:1", lease.Token())...), "CREATE TABLE t (i int)")
	dsn := s.ProxyDSN(p.Addr, stack.RoleApp, console.DefaultDatabase)
	shows := func(want ...string) {
		t.Helper()
		out, err := psql(t, s, dsn, "SHOW KEYS")
		for _, text := range want {
			if err != nil || !strings.Contains(out, text) {
				t.Errorf("got %v\n%s\nwant %q", err, out, text)
			}
		}
	}
	token := lease.Token().String()
	shows("|held|"+token+"|0|", "app|order:1|"+token+"|1|0|")
	if err := lease.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	shows("|gone|||")
	next := hold(t, s.Client, "order:1")
	shows("|passed|" + next.Token().String() + "|0|")
	s.Etcd.Close()
	shows("|unknown|||", "app|order:1|"+token+"|1|0|", "WARNING:  01000: the locks' holders are unknown: ")
}

// While etcd is away the console answers all the same, with what it knows by itself, the
// marks, and a word about etcd: whether that has fallen silent, refuses connections, or
// takes them and never answers.
func TestServe_ConsoleKeysEtcdAway(t *testing.T) {
	s := stack.New(t, "app")
	way, p := serveOverLink(t, s, "--admin-roles", stack.RoleApp)
	lease := hold(t, s.Client, "order:1")
	exec1(t, open(t, s.ProxyDSN(p.Addr, stack.RoleApp, "app"), tagged("order:1", lease.Token())...), "CREATE TABLE t (i int)")
	config, err := pgx.ParseConfig(s.ProxyDSN(p.Addr, stack.RoleApp, console.DefaultDatabase))
	if err != nil {
		t.Fatal(err)
	}
	var said string
	config.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) { said = n.Message }
	shows := func(etcd string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), poll.Deadline) // instead of an answer
		defer cancel()
		conn, err := pgx.ConnectConfig(ctx, config)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close(context.WithoutCancel(ctx))
		for sql, want := range map[string]string{
			"SHOW KEYS":  fmt.Sprintf("app order:1 %d 1 unknown <nil>", lease.Token()),
			"SHOW MARKS": fmt.Sprintf("app order:1 %d", lease.Token()),
		} {
			said = ""
			found, err := conn.Query(ctx, sql)
			if err != nil {
				t.Fatalf("etcd %s: %s: %v", etcd, sql, err)
			}
			row, err := pgx.CollectExactlyOneRow(found, pgx.RowToMap)
			if err != nil {
				t.Fatalf("etcd %s: %s: %v", etcd, sql, err)
			}
			got := fmt.Sprint(row["database"], " ", row["key"], " ", row["token"])
			if sql == "SHOW KEYS" {
				got = fmt.Sprint(got, " ", row["sessions"], " ", row["lock"], " ", row["holder"])
			}
			if got != want || strings.HasPrefix(said, "the locks' holders are unknown: etcd ") != (sql == "SHOW KEYS") {
				t.Errorf("etcd %s: %s: got %s and %q, want %s", etcd, sql, got, said, want)
			}
		}
	}
	way.Set(fault.Silent)
	shows("has fallen silent")
	way.Close()
	shows("refuses connections")
	ln, err := net.Listen("tcp", way.Addr())
	if err != nil {
		t.Fatal(err)
	}
	taken := make(chan net.Conn)
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				close(taken)
				return
			}
			taken <- conn
		}
	}()
	t.Cleanup(func() {
		ln.Close()
		for conn := range taken {
			conn.Close()
		}
	})
	poll.Until(t, "the proxy connects", func() bool {
		shows("refuses connections, or is silent")
		select {
		case conn := <-taken:
			t.Cleanup(func() { conn.Close() })
			return true
		default:
			return false
		}
	})
	shows("takes connections and never answers")
}

// A session that is killed while it works leaves a line of that and of its end, and no
// warning: the request that cancels its statement has done what it is for.
func TestServe_ConsoleKillLog(t *testing.T) {
	s := stack.New(t, "app")
	p := serveOn(t, s, "--admin-roles", stack.RoleApp)
	admin := open(t, s.ProxyDSN(p.Addr, stack.RoleApp, console.DefaultDatabase))
	for range 8 { // whether PostgreSQL's error or its goodbye is first varies
		victim := open(t, s.ProxyDSN(p.Addr, stack.RoleApp, "app"))
		pid := victim.PgConn().PID()
		ended := make(chan error, 1)
		go func() {
			_, err := victim.Exec(t.Context(), "SELECT pg_sleep(60)")
			ended <- err
		}()
		poll.Until(t, "the statement", func() bool {
			out, err := psql(t, s, s.ProxyDSN(p.Addr, stack.RoleApp, console.DefaultDatabase), "SHOW SESSIONS")
			return err == nil && strings.Contains(out, fmt.Sprintf("|%d|app|app|", pid)) && strings.Count(out, "|active|") == 2
		})
		exec1(t, admin, fmt.Sprintf("KILL %d", pid))
		if err := <-ended; code(err) != "57P01" {
			t.Errorf("got %v, want 57P01", err)
		}
	}
	poll.Until(t, "the ends", func() bool { return len(lines(t, p, "session ended", logLine{"code": "57P01"})) == 8 })
	if got := lines(t, p, "deliver cancel request", nil); len(got) > 0 {
		t.Errorf("got %v, want no warning", got)
	}
}
