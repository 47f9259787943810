package main

import (
	"strings"
	"testing"

	"github.com/fenceproxy/fenceproxy/fencing"
	"github.com/fenceproxy/fenceproxy/testharness/postgres"
	"github.com/fenceproxy/fenceproxy/testharness/stack"
)

// A guarded table refuses, through the proxy and round it, what isn't written
// under the row's own lock; an administrator may override that on both ways.
func TestProtect(t *testing.T) {
	s := stack.New(t, "app")
	root := open(t, s.DSN(postgres.Superuser, "app"))
	exec1(t, root, "CREATE TABLE orders (id int PRIMARY KEY, v text); GRANT ALL ON orders TO PUBLIC")
	upstream := "FENCEPROXY_UPSTREAM=" + s.DSN(postgres.Superuser, "app")
	code1, stdout, stderr := program(t, []string{upstream}, "protect", "orders", "--key", "order:{id}")
	if want := "(database app): writes to public.orders need the lock order:{id}\n"; code1 != 0 || !strings.HasSuffix(stdout, want) || stderr != "" {
		t.Fatalf("protect: got exit %d, %q, %q, want %q", code1, stdout, stderr, want)
	}

	p := serveOn(t, s)
	lease := hold(t, s.Client, "order:1")
	ways := map[string]string{"through": s.ProxyDSN(p.Addr, stack.RoleApp, "app"), "round": s.DSN(stack.RoleApp, "app")}
	write := func(t *testing.T, way, sql, want string, params ...string) {
		t.Helper()
		if _, err := open(t, ways[way], params...).Exec(t.Context(), sql); code(err) != want {
			t.Errorf("%s, %s: got %v, want %q", way, sql, err, want)
		}
	}
	write(t, "through", "INSERT INTO orders VALUES (1)", "", tagged("order:1", lease.Token())...)
	write(t, "round", "UPDATE orders SET v = 'x'", "", tagged("order:1", lease.Token())...)
	for way := range ways {
		write(t, way, "UPDATE orders SET v = 'x'", "LF004")
		write(t, way, "INSERT INTO orders VALUES (2)", "LF004", tagged("order:1", lease.Token())...)
		write(t, way, "SELECT * FROM orders", "")
		write(t, way, "UPDATE orders SET v = 'x'", string(fencing.CodeNotHolder), tagged("order:1", lease.Token()+1000)...)
		write(t, way, "UPDATE orders SET v = 'x'", "42501", "fence.override", "I want to")
	}
	admins := map[string]string{"through": s.ProxyDSN(p.Addr, stack.RoleFence, "app"), "round": s.DSN(stack.RoleFence, "app")}
	for way, dsn := range admins {
		conn := open(t, dsn)
		exec1(t, conn, "SET fence.override = 'repair "+way+"'")
		exec1(t, conn, "UPDATE orders SET v = 'mended'")
	}
	if err := lease.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	next := hold(t, s.Client, "order:1")
	exec1(t, open(t, ways["through"], tagged("order:1", next.Token())...), "UPDATE orders SET v = 'next'")
	for way := range ways {
		write(t, way, "UPDATE orders SET v = 'stale'", "LF001", tagged("order:1", lease.Token())...)
	}
	var got string
	const seen = "SELECT (SELECT string_agg(id || v, ' ') FROM orders) || ': ' || (SELECT string_agg(by || ' ' || reason, ', ' ORDER BY reason) FROM fence.override_log)"
	if err := root.QueryRow(t.Context(), seen).Scan(&got); err != nil || got != "1next: fence repair round, fence repair through" {
		t.Errorf("got %q, %v", got, err)
	}

	code1, stdout, stderr = program(t, []string{upstream}, "unprotect", "orders")
	if code1 != 0 || !strings.HasSuffix(stdout, "public.orders is no longer guarded\n") || stderr != "" {
		t.Errorf("unprotect: got exit %d, %q, %q", code1, stdout, stderr)
	}
	write(t, "round", "UPDATE orders SET v = 'x'", "")
}

func TestProtect_Usage(t *testing.T) {
	const dsn = "postgres://u@127.0.0.1:1/app"
	for name, c := range map[string]struct {
		args   []string
		status int
		want   string
	}{
		"no table":        {[]string{"protect", "--key", "k", "--upstream", dsn}, 2, "TABLE is missing"},
		"no key":          {[]string{"protect", "t", "--upstream", dsn}, 2, "--key is missing"},
		"a bad key":       {[]string{"protect", "t", "--key", "{", "--upstream", dsn}, 2, `--key: bad value "{"`},
		"no upstream":     {[]string{"protect", "t", "--key", "k"}, 2, "--upstream is missing"},
		"a bad choice":    {[]string{"protect", "t", "--key", "k", "--replica-apply", "maybe", "--upstream", dsn}, 2, "refuse or allow is expected"},
		"two tables":      {[]string{"unprotect", "t", "u", "--upstream", dsn}, 2, `unexpected argument "u"`},
		"nobody is there": {[]string{"unprotect", "t", "--upstream", dsn}, 1, "127.0.0.1:1"},
	} {
		t.Run(name, func(t *testing.T) {
			status, stdout, stderr := program(t, nil, c.args...)
			if status != c.status || stdout != "" || !strings.Contains(stderr, c.want) || strings.Count(stderr, "\n") != 1 {
				t.Errorf("got exit %d, %q, %q, want %d and %q", status, stdout, stderr, c.status, c.want)
			}
		})
	}
}
