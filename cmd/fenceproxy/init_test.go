package main

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fenceproxy/fenceproxy/testharness/stack"
)

func TestInit(t *testing.T) {
	s := stack.New(t)
	if err := s.CreateDatabase(context.Background(), "app"); err != nil {
		t.Fatal(err)
	}
	upstream := "FENCEPROXY_UPSTREAM=" + s.DSN(stack.RoleFence, "app")
	code, stdout, stderr := program(t, []string{upstream}, "init")
	if code != 0 || !strings.Contains(stdout, "(database app): installed schema fence, version ") || stderr != "" {
		t.Errorf("first: got exit %d, %q, %q", code, stdout, stderr)
	}
	code, stdout, stderr = program(t, []string{upstream}, "init")
	if code != 0 || !strings.Contains(stdout, "nothing to do") || stderr != "" {
		t.Errorf("second: got exit %d, %q, %q", code, stdout, stderr)
	}
	// What init has installed is what serve asks for.
	serveOn(t, s)
}

// A database needn't be in UTF-8, and what the proxy says of it is told to clients that
// aren't.
func TestInit_OtherEncodings(t *testing.T) {
	s := stack.New(t)
	for _, encoding := range []string{"LATIN1", "SQL_ASCII"} {
		t.Run(encoding, func(t *testing.T) {
			database := "in_" + strings.ToLower(encoding)
			super := open(t, s.DSN("postgres", "postgres"))
			exec1(t, super, "CREATE DATABASE "+database+" TEMPLATE template0 LOCALE 'C' ENCODING '"+encoding+"'")
			exec1(t, super, "GRANT CREATE ON DATABASE "+database+" TO "+stack.RoleFence)
			exec1(t, open(t, s.DSN("postgres", database)), "GRANT CREATE ON SCHEMA public TO "+stack.RoleApp)
			upstream := "FENCEPROXY_UPSTREAM=" + s.DSN(stack.RoleFence, database)
			if code, stdout, stderr := program(t, []string{upstream}, "init"); code != 0 {
				t.Fatalf("init: got exit %d, %q, %q", code, stdout, stderr)
			}
			t.Setenv(asProgram, "1")
			p, err := s.StartProcess(t.Context(), database, []string{os.Args[0]}, "--sql-locks", "allow")
			if err != nil {
				t.Fatal(err)
			}
			conn := open(t, s.ProxyDSN(p.Addr, stack.RoleApp, database), "client_encoding", "LATIN1")
			if _, err := conn.Exec(t.Context(), "SELECT token + 1 FROM fence.acquire($1)", pgx.QueryExecModeExec, "k"); code(err) != "LF007" {
				t.Errorf("a call that can't be served: got %v, want LF007", err)
			}
			exec1(t, conn, "CREATE TABLE t (i int)")
			if _, err := conn.Exec(t.Context(), "SELECT fence.acquire($1)", pgx.QueryExecModeExec, "of "+encoding); err != nil {
				t.Errorf("acquire: %v", err)
			}
			if _, err := conn.Exec(t.Context(), "INSERT INTO t VALUES (1)", pgx.QueryExecModeExec); err != nil {
				t.Errorf("write: %v", err)
			}
		})
	}
}

// breakSchema makes a database whose schema fence has lost its marks.
func breakSchema(t *testing.T, s *stack.Stack, database string) {
	t.Helper()
	if err := s.CreateDatabase(context.Background(), database); err != nil {
		t.Fatal(err)
	}
	if err := s.Install(context.Background(), database); err != nil {
		t.Fatal(err)
	}
	exec1(t, open(t, s.DSN(stack.RoleFence, database)), "DROP TABLE fence.mark CASCADE")
}

// unreached are connections that can't be made, and all that init and serve say
// of them, where a variable has the DSN.
func unreached(s *stack.Stack) map[string]struct{ dsn, want string } {
	at := "connect to PostgreSQL at " + s.Postgres.Addr() + " "
	return map[string]struct{ dsn, want string }{
		"away": {"postgres://u:hunter2@127.0.0.1:1/app",
			"connect to PostgreSQL at 127.0.0.1:1 (database app): connection refused; start it, or mend the DSN of FENCEPROXY_UPSTREAM"},
		"wrong password": {"postgres://fence:hunter2@" + s.Postgres.Addr() + "/app",
			at + `(database app): password authentication failed for user "fence" (28P01); mend the DSN of FENCEPROXY_UPSTREAM or the server's pg_hba.conf`},
		"no database": {s.DSN(stack.RoleFence, "nowhere"),
			at + `(database nowhere): database "nowhere" does not exist (3D000); create it, or mend the DSN of FENCEPROXY_UPSTREAM`},
		"no host": {"postgres://u:hunter2@nowhere.invalid/app",
			"connect to PostgreSQL at nowhere.invalid:5432 (database app): no such host; mend the DSN of FENCEPROXY_UPSTREAM"},
		"bad setting": {s.DSN(stack.RoleFence, "app") + "&nonsense=1",
			at + `(database app): unrecognized configuration parameter "nonsense" (42704); mend the DSN of FENCEPROXY_UPSTREAM`},
		"no TLS": {s.DSN(stack.RoleFence, "app") + "&sslmode=require",
			at + "(database app): server refused TLS connection; mend the DSN of FENCEPROXY_UPSTREAM"},
		"several": {"postgres://u:hunter2@127.0.0.1:1,127.0.0.1:2/app", "connect to PostgreSQL at 127.0.0.1:1 (database app): connection refused; " +
			"connect to PostgreSQL at 127.0.0.1:2 (database app): connection refused; start it, or mend the DSN of FENCEPROXY_UPSTREAM"},
		"a primary": {s.DSN(stack.RoleFence, "app") + "&target_session_attrs=standby",
			"PostgreSQL at " + s.Postgres.Addr() + ": it is the primary; let the DSN of FENCEPROXY_UPSTREAM name the right one (target_session_attrs)"},
	}
}

// init and serve say the same, with the advice that fits, and serve before it
// has made a folder for its etcd.
func TestUpstream_Unreached(t *testing.T) {
	s := stack.New(t, "app")
	for name, c := range unreached(s) {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "etcd")
			for _, args := range [][]string{{"init"}, {"serve", "--embed-etcd", dir, "--etcd-listen", "127.0.0.1:0", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"}} {
				code, stdout, stderr := program(t, []string{"FENCEPROXY_UPSTREAM=" + c.dsn}, args...)
				if code != 1 || stdout != "" || stderr != "fenceproxy: "+c.want+"\n" {
					t.Errorf("%s: got exit %d, %q\n%s\nwant\nfenceproxy: %s", args[0], code, stdout, stderr, c.want)
				}
			}
			if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("etcd's folder: got %v, want none", err)
			}
		})
	}
}

func TestInit_Errors(t *testing.T) {
	s := stack.New(t, "app")
	breakSchema(t, s, "broken")
	for name, c := range map[string]struct {
		dsn  string
		want []string
	}{
		"damaged":        {s.DSN(stack.RoleFence, "broken"), []string{"database broken", "damaged: table fence.mark is missing", "DROP SCHEMA fence CASCADE"}},
		"not its schema": {s.DSN(stack.RoleApp, "app"), []string{"database app", "fence"}},
	} {
		t.Run(name, func(t *testing.T) {
			code, stdout, stderr := program(t, nil, "init", "--upstream", c.dsn)
			if code != 1 || stdout != "" {
				t.Errorf("got exit %d, %q, want 1 and nothing", code, stdout)
			}
			for _, want := range c.want {
				if !strings.Contains(stderr, want) {
					t.Errorf("got %q, want %q in it", stderr, want)
				}
			}
			if strings.Contains(stderr, "hunter2") || strings.Count(stderr, "\n") != 1 {
				t.Errorf("got %q, want one line without the password", stderr)
			}
		})
	}
}
