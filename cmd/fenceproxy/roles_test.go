package main

import (
	"context"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/fencing"
	"github.com/fenceproxy/fenceproxy/proxy/console"
	"github.com/fenceproxy/fenceproxy/testharness/certs"
	"github.com/fenceproxy/fenceproxy/testharness/postgres"
	"github.com/fenceproxy/fenceproxy/testharness/stack"
)

// psqlFile runs a file of deploy/ as the superuser.
func psqlFile(t *testing.T, s *stack.Stack, file string, settings ...string) {
	t.Helper()
	args := []string{"--no-psqlrc", "--dbname", s.DSN(postgres.Superuser, "app"), "--file", "../../deploy/" + file}
	for _, setting := range settings {
		args = append(args, "--set", setting)
	}
	if out, err := exec.Command(s.Postgres.Program("psql"), args...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", file, err, out)
	}
}

// The roles that deploy/roles.sql makes are enough, and no more than that: the
// proxies' can claim and evict, and can't move a mark by hand.
func TestDeploy_Roles(t *testing.T) {
	s := stack.New(t)
	ctx := context.Background()
	if err := s.CreateDatabase(ctx, "app"); err != nil {
		t.Fatal(err)
	}
	psqlFile(t, s, "roles.sql", "proxy=proxy", "owner=marks", "password='secret'")
	if out, err := command(t, "", "init", "--upstream", s.DSN(postgres.Superuser, "app")+"&role=marks"); err != nil {
		t.Fatalf("init: %v %s", err, out)
	}
	psqlFile(t, s, "grants.sql", "proxy=proxy")

	dsn, err := url.Parse(s.DSN(stack.RoleFence, "app"))
	if err != nil {
		t.Fatal(err)
	}
	dsn.User = url.UserPassword("proxy", "secret")
	t.Setenv(asProgram, "1")
	starting, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	authority := certs.New(t)
	cert, key := authority.Files(authority.Leaf("localhost"))
	p, err := s.Launch(starting, stack.Way{Upstream: dsn.String(), Etcd: []string{s.Etcd.Endpoint()}}, []string{os.Args[0]},
		"--client-tls", "allow", "--client-tls-cert", cert, "--client-tls-key", key, "--evict-after", "50ms", "--admin-roles", postgres.Superuser)
	if err != nil {
		t.Fatal(err)
	}
	exec1(t, open(t, s.DSN(stack.RoleApp, "app")), "CREATE TABLE t (i int)")
	stale := hold(t, s.Client, "order:1")
	old := open(t, s.ProxyDSN(p.Addr, stack.RoleApp, "app"), tagged("order:1", stale.Token())...)
	exec1(t, old, "BEGIN; INSERT INTO t VALUES (1)")
	if err := stale.Release(ctx); err != nil {
		t.Fatal(err)
	}
	next := hold(t, s.Client, "order:1")
	exec1(t, open(t, s.ProxyDSN(p.Addr, stack.RoleApp, "app"), tagged("order:1", next.Token())...), "INSERT INTO t VALUES (2)")
	if _, err := old.Exec(ctx, "COMMIT"); code(err) != string(fencing.CodeEvicted) {
		t.Errorf("the stale holder's commit: got %v, want %s", err, fencing.CodeEvicted)
	}
	marks := open(t, s.ProxyDSN(p.Addr, postgres.Superuser, console.DefaultDatabase))
	var shown string
	if err := marks.QueryRow(ctx, "SHOW MARKS").Scan(nil, &shown, nil, nil, nil, nil, nil, nil); err != nil || shown != "order:1" {
		t.Errorf("SHOW MARKS: got %q, %v, want the mark", shown, err)
	}
	if log := p.Log(); strings.Contains(log, "permission denied for function") || strings.Contains(log, `"level":"ERROR"`) {
		t.Errorf("got %s\nwant no right missed", log)
	}

	proxy := open(t, dsn.String())
	for _, sql := range []string{
		"UPDATE fence.mark SET token = 9", "DELETE FROM fence.mark", "SELECT fence.override('t'::regclass)",
		"SET ROLE marks", "CREATE TABLE fence.x (i int)", "SELECT * FROM t",
	} {
		if _, err := proxy.Exec(ctx, sql); code(err) != "42501" {
			t.Errorf("%s: got %v, want that the proxies' role may not", sql, err)
		}
	}
}
