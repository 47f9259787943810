package main

import (
	"context"
	"strings"
	"testing"

	"github.com/fenceproxy/fenceproxy/testharness/poll"
	"github.com/fenceproxy/fenceproxy/testharness/stack"
)

// The marks of locks that are gone are removed, by the real etcd's word; one that
// is held stays, however old its mark is.
func TestServe_MarkRetention(t *testing.T) {
	s := stack.New(t, "app")
	p := serveOn(t, s, "--mark-retention", "1s")
	held, gone := hold(t, s.Client, "order:1"), hold(t, s.Client, "order:2/a")
	exec1(t, open(t, s.ProxyDSN(p.Addr, stack.RoleApp, "app"), tagged("order:1", held.Token())...), "CREATE TABLE t (i int)")
	exec1(t, open(t, s.ProxyDSN(p.Addr, stack.RoleApp, "app"), tagged("order:2/a", gone.Token())...), "INSERT INTO t VALUES (1)")
	if err := gone.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	fence := open(t, s.DSN(stack.RoleFence, "app"))
	poll.Until(t, "the mark is removed", func() bool {
		var left string
		err := fence.QueryRow(context.Background(), "SELECT string_agg(resource_key, ' ') FROM fence.mark").Scan(&left)
		return err == nil && left == "order:1"
	})
	poll.Until(t, "the metric", func() bool {
		_, body := get(t, p, "/metrics")
		return strings.Contains(body, "fenceproxy_marks_removed_total 1\n")
	})
}
