package main

import (
	"context"
	"net/url"
	"os/exec"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fenceproxy/fenceproxy/proxy"
	"github.com/fenceproxy/fenceproxy/proxy/console"
	"github.com/fenceproxy/fenceproxy/testharness/postgres"
	"github.com/fenceproxy/fenceproxy/testharness/stack"
)

// psql runs commands on the console, or in a database, and returns what it prints.
func psql(t *testing.T, s *stack.Stack, dsn string, commands ...string) (string, error) {
	t.Helper()
	args := []string{"--no-psqlrc", "--no-align", "--dbname", dsn, "--set", "VERBOSITY=verbose"}
	for _, c := range commands {
		args = append(args, "--command", c)
	}
	out, err := exec.Command(s.Postgres.Program("psql"), args...).CombinedOutput()
	return string(out), err
}

// psql shows all that there is, to a role that PostgreSQL has authenticated by its
// password, and what isn't there with what to do.
func TestServe_ConsolePsql(t *testing.T) {
	s := stack.New(t, "app")
	p := serveOn(t, s, "--admin-roles", stack.RoleApp, "--log-level", "debug")
	lease := hold(t, s.Client, "order:1")
	exec1(t, open(t, s.ProxyDSN(p.Addr, stack.RoleApp, "app"), tagged("order:1", lease.Token())...), "CREATE TABLE t (i int)")
	dsn := s.ProxyDSN(p.Addr, stack.RoleApp, console.DefaultDatabase)
	for _, c := range []struct {
		command string
		want    []string
	}{
		{"SHOW HELP", []string{"SHOW MARKS ['prefix'] [AFTER 'key'] [LIMIT n]|", "KILL pid", "RELOAD|"}},
		{"SHOW VERSION", []string{"version\nfenceproxy "}},
		{"show keys; show version", []string{"app|order:1|" + lease.Token().String() + "|1|0|", "|held|" + lease.Token().String() + "|0|", "fenceproxy "}},
		{"SHOW SESSIONS;", []string{`|app|app|127.0.0.1:`, `{"order:1": ` + lease.Token().String() + "}", "|fenceproxy|", "|active|"}},
		{"SHOW MARKS", []string{"app|order:1|" + lease.Token().String() + "|"}},
		{"SHOW REJECTIONS", []string{"(0 rows)"}},
		{"SHOW STATS", []string{`fenceproxy_claims_total|code="",outcome="raised"|1`, "fenceproxy_sessions||2", "fenceproxy_claim_seconds_count|outcome=\"raised\"|1"}},
		{"SHOW CONFIG", []string{"admin_roles|app||t|--admin-roles", "upstream|(hidden)||f|FENCEPROXY_UPSTREAM", "claim_timeout|5s|5s|t|default", "listen|127.0.0.1:0|"}},
		{"RELOAD", []string{"RELOAD"}},
		{`\d`, []string{"ERROR:  0A000: the console has no tables", "HINT:  SHOW HELP"}},
		{"SHOW CLIENTS", []string{"ERROR:  42601", "Did you mean SHOW SESSIONS?"}},
		{"SHOW REJECTION", []string{"Did you mean SHOW REJECTIONS?"}},
		{"SHWO KEYS", []string{"Did you mean SHOW?"}},
		{"PAUSE", []string{"0A000", "PgBouncer"}},
		{"KILL 1", []string{"42704", "SHOW SESSIONS lists them."}},
		{"SELECT 1", []string{"?column?\n1\n"}},
		{"DELETE FROM t", []string{"which has no tables"}},
		{"SHOW MARKS LIMIT 0", []string{"22023"}},
		{"SHOW", []string{"SHOW needs to know what", "There are KEYS, SESSIONS, "}},
		{"SHOW KEYS order", []string{`syntax error at "order"`, "stands in quotes, such as SHOW KEYS 'order:'"}},
		{"SHOW " + strings.Repeat("é", 40) + "x", []string{"SHOW doesn't know \"" + strings.Repeat("é", 32) + "…\""}},
		{"SHOW x" + strings.Repeat("é", 40), []string{"SHOW doesn't know \"x" + strings.Repeat("é", 31) + "…\""}},
		{"SHOW KEYS 'a' 'b'", []string{`syntax error at "b"`}},
	} {
		out, err := psql(t, s, dsn, c.command)
		if err != nil && !strings.Contains(out, "ERROR:") {
			t.Errorf("%s: %v %s", c.command, err, out)
		}
		for _, want := range c.want {
			if !strings.Contains(out, want) {
				t.Errorf("%s: got\n%s\nwant %q", c.command, out, want)
			}
		}
	}
	config, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	config.User = url.UserPassword(stack.RoleApp, "wrong")
	if out, _ := psql(t, s, config.String(), "SHOW HELP"); !strings.Contains(out, "password authentication failed") {
		t.Errorf("a wrong password: got %s", out)
	}
	if out, _ := psql(t, s, s.ProxyDSN(p.Addr, postgres.Superuser, console.DefaultDatabase), "SHOW VERSION"); !strings.Contains(out, "fenceproxy ") {
		t.Errorf("a superuser: got %s", out)
	}
	if out, _ := psql(t, s, s.ProxyDSN(p.Addr, stack.RoleFence, console.DefaultDatabase), "SHOW VERSION"); !strings.Contains(out, "permission denied") {
		t.Errorf("a role that isn't named: got %s", out)
	}
	password, _ := config.User.Password()
	if strings.Contains(p.Log(), "SHOW") || strings.Contains(p.Log(), password+"@") {
		t.Error("the log has text of the console's")
	}
}

// RELOAD on the console is SIGHUP with an answer.
func TestServe_ConsoleReload(t *testing.T) {
	s := stack.New(t, "app")
	roles := "admin_roles: [" + stack.RoleApp + "]\n"
	p := serveReloading(t, s, roles)
	var notices []string
	config, err := pgx.ParseConfig(s.ProxyDSN(p.Addr, stack.RoleApp, console.DefaultDatabase))
	if err != nil {
		t.Fatal(err)
	}
	config.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) { notices = append(notices, n.Message) }
	conn, err := pgx.ConnectConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	setting := func(key string) (value, source string) {
		t.Helper()
		found, err := conn.Query(t.Context(), "SHOW CONFIG")
		if err != nil {
			t.Fatal(err)
		}
		defer found.Close()
		for found.Next() {
			if all, err := found.Values(); err == nil && all[0] == key {
				value, _ = all[1].(string)
				source, _ = all[4].(string)
			}
		}
		return value, source
	}

	p.write("\n" + roles + "claim_timeout: 3s\nlisten: 127.0.0.1:1\n")
	exec1(t, conn, "RELOAD")
	if got := strings.Join(notices, "; "); got != "claim_timeout changed from 5s to 3s" {
		t.Errorf("got notices %q", got) // --listen is a flag, so the file's counts for nothing
	}
	if value, source := setting("claim_timeout"); value != "3s" || !strings.HasSuffix(source, "fence.yaml:3: claim_timeout") {
		t.Errorf("got %s from %s, want 3s from line 3", value, source)
	}
	if value, source := setting("admin_roles"); value != stack.RoleApp || !strings.HasSuffix(source, "fence.yaml:2: admin_roles") {
		t.Errorf("got %s from %s, want line 2 by now", value, source)
	}
	p.write(roles + "claim_timeout: soon\nevict_aftr: 1s\n")
	_, err = conn.Exec(t.Context(), "RELOAD")
	if said := err.(*pgconn.PgError); said.Code != "F0000" || !strings.Contains(said.Detail, "fence.yaml:2: claim_timeout: bad value") ||
		!strings.Contains(said.Detail, "\n") || !strings.Contains(said.Detail, "did you mean evict_after?") {
		t.Errorf("got %s %s %q, want both faults", said.Code, said.Message, said.Detail)
	}
	if value, _ := setting("claim_timeout"); value != "3s" {
		t.Errorf("after a bad file: got %s, want 3s still", value)
	}
	p.write("admin_roles: [somebody_else]\nstats_roles: [" + stack.RoleApp + "]\n")
	exec1(t, conn, "RELOAD")
	if _, err := conn.Exec(t.Context(), "RELOAD"); code(err) != "42501" {
		t.Errorf("no admin any more: got %v, want 42501", err)
	}
	if value, _ := setting("admin_roles"); value != "somebody_else" {
		t.Errorf("got %s, want the new one", value)
	}
}

// docs/console.md has each view and column of the code, as the code has them.
func TestConsole_Documented(t *testing.T) {
	c := &console.Console{Server: proxy.NewServer(nil, nil)}
	if want := strings.TrimSpace(c.Documented()); !strings.Contains(read(t, "docs/console.md"), want) {
		t.Errorf("docs/console.md has not\n%s", want)
	}
}
