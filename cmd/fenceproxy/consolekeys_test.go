package main

import (
	"strings"
	"testing"

	"github.com/fenceproxy/fenceproxy/proxy/console"
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
