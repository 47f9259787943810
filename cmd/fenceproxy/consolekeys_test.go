package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/fenceproxy/fenceproxy/proxy/console"
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
