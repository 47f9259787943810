package proxy_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fenceproxy/fenceproxy/fencing"
	"github.com/fenceproxy/fenceproxy/proxy"
	"github.com/fenceproxy/fenceproxy/proxy/console"
	"github.com/fenceproxy/fenceproxy/proxy/live"
	"github.com/fenceproxy/fenceproxy/testharness/certs"
	"github.com/fenceproxy/fenceproxy/testharness/poll"
	"github.com/fenceproxy/fenceproxy/testharness/postgres"
)

// A program is what the console's proxy runs in, as a test has it.
type program struct {
	settings []live.Setting
	stats    []live.Stat
	became   live.Reloaded
	failed   error
	reloads  int
}

func (p *program) Settings() []live.Setting    { return p.settings }
func (p *program) Stats() ([]live.Stat, error) { return p.stats, nil }
func (p *program) Reload(context.Context) (live.Reloaded, error) {
	p.reloads++
	return p.became, p.failed
}

// A consoled is a stack whose one proxy has a console.
type consoled struct {
	*stack
	program *program
	server  *proxy.Server
	addr    string
}

// newConsoled makes roles dba and watcher, who may use it, member, who is in dba,
// and app, who may not.
func newConsoled(t *testing.T) *consoled {
	t.Helper()
	pg := postgres.New(t, postgres.Options{HBA: []string{"host all stranger all reject"}})
	c := &consoled{stack: newStackOn(t, pg), program: &program{}}
	c.exec("CREATE ROLE dba LOGIN; CREATE ROLE watcher LOGIN; CREATE ROLE app LOGIN; CREATE ROLE member LOGIN IN ROLE dba; " +
		"GRANT ALL ON t TO app")
	store, err := fencing.NewStore(c.pg.DSN("postgres", "postgres"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	c.addr = c.addProxy(c.pg.Addr(), func(s *proxy.Server) {
		c.server = s
		s.Console = &console.Console{
			Server: s, Marks: store, Roles: store, Program: c.program, Journal: s.Journal,
			Version: "fenceproxy of a test", Login: "postgres",
		}
		s.Settings.Console = console.Settings{Database: "fenceproxy", Admins: []string{"dba"}, Watchers: []string{"watcher"}}
	})
	return c
}

func (c *consoled) as(role string, params ...string) string {
	return fmt.Sprintf("postgres://%s@%s/fenceproxy?sslmode=disable%s", role, c.addr, strings.Join(params, ""))
}

// rows are what a statement returns, as text.
func rows(t *testing.T, c *pgx.Conn, sql string, args ...any) (names []string, all [][]string) {
	t.Helper()
	found, err := c.Query(t.Context(), sql, args...)
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	defer found.Close()
	for _, f := range found.FieldDescriptions() {
		names = append(names, f.Name)
	}
	for found.Next() {
		values, err := found.Values()
		if err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
		row := make([]string, len(values))
		for i, v := range values {
			row[i] = fmt.Sprint(v)
		}
		all = append(all, row)
	}
	if err := found.Err(); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return names, all
}

// Only roles that were named, or that have the privileges of one, get in; the
// others hear what to set, and nobody hears more than PostgreSQL lets them.
func TestConsole_Access(t *testing.T) {
	c := newConsoled(t)
	c.exec("CREATE ROLE outsider LOGIN NOINHERIT IN ROLE dba")
	for role, want := range map[string]string{
		"dba": "", "watcher": "", "member": "", "postgres": "", // a superuser has everybody's privileges
		"app": "42501", "outsider": "42501", "nobody": "28000", "stranger": "28000",
	} {
		conn, err := pgx.Connect(t.Context(), c.as(role))
		if got := code(err); got != want {
			t.Errorf("%s: got %q, want %q", role, got, want)
		}
		if conn != nil {
			_, err := conn.Exec(t.Context(), "RELOAD")
			if got, want := code(err) == "42501", role == "watcher"; got != want {
				t.Errorf("RELOAD as %s: got %v", role, err)
			}
			conn.Close(t.Context())
		}
		said := pgError(err)
		switch {
		case want == "42501" && !strings.Contains(said.Hint, "admin_roles"):
			t.Errorf("%s: got hint %q, which names no setting", role, said.Hint)
		case want == "28000" && strings.Contains(fmt.Sprint(said.Message, said.Detail, said.Hint), "postgres"):
			t.Errorf("a stranger hears %q, %q", said.Message, said.Detail)
		}
	}
	c.server.Reload(proxy.Settings{LoginTimeout: time.Minute, Console: console.Settings{Database: "fenceproxy"}})
	if _, err := pgx.Connect(t.Context(), c.as("postgres")); code(err) != "42501" {
		t.Errorf("without admin_roles: got %v, want 42501", err)
	}
	c.server.Reload(proxy.Settings{LoginTimeout: time.Minute, Console: console.Settings{Database: "other", Admins: []string{"dba"}}})
	if _, err := pgx.Connect(t.Context(), c.as("dba")); code(err) != "3D000" {
		t.Errorf("a console of another name: got %v, want PostgreSQL's 3D000", err)
	}
}

// A driver gets the same whatever it speaks, and values of their types.
func TestConsole_Protocols(t *testing.T) {
	c := newConsoled(t)
	c.raise(0, "order:1", 41)
	c.program.settings = []live.Setting{{Name: "listen", Value: "x", Default: "y", Source: "default", Changeable: true}}
	c.program.stats = []live.Stat{{Name: "n", Labels: `a="b"`, Value: 1.5}}
	tagged := c.session(0, "order:1", 41)
	defer tagged.Close(context.Background())
	for _, mode := range []pgx.QueryExecMode{
		pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec, pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol,
	} {
		t.Run(mode.String(), func(t *testing.T) {
			config, err := pgx.ParseConfig(c.as("dba"))
			if err != nil {
				t.Fatal(err)
			}
			config.DefaultQueryExecMode = mode
			conn, err := pgx.ConnectConfig(t.Context(), config)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close(context.Background())
			for range 2 { // the second by what was cached
				_, got := rows(t, conn, "SHOW CONFIG")
				if diff := cmp.Diff([][]string{{"listen", "x", "y", "true", "default"}}, got); diff != "" {
					t.Errorf("SHOW CONFIG (-want +got):\n%s", diff)
				}
				if _, got := rows(t, conn, "SHOW STATS;"); fmt.Sprint(got) != `[[n a="b" 1.5]]` {
					t.Errorf("SHOW STATS: got %v", got)
				}
				var key string
				var token, sessions int64
				var claimed time.Time
				var lock string
				if err := conn.QueryRow(t.Context(), "show keys 'order:'").Scan(nil, &key, &token, &sessions, nil, &claimed, nil, &lock, nil, nil, nil); err != nil ||
					key != "order:1" || token != 41 || sessions < 1 || time.Since(claimed) > time.Minute || time.Since(claimed) < 0 {
					t.Errorf("SHOW KEYS: got %q, %d, %d, %v, %v", key, token, sessions, claimed, err)
				}
			}
			if mode != pgx.QueryExecModeSimpleProtocol {
				if _, got := rows(t, conn, "SHOW MARKS $1 LIMIT $2", "order:", 5); len(got) != 1 || got[0][1] != "order:1" {
					t.Errorf("SHOW MARKS by parameters: got %v", got)
				}
			}
			if err := conn.Ping(t.Context()); err != nil {
				t.Errorf("Ping: %v", err)
			}
		})
	}
}

// A refusal can be read with what to do, and the tokens that it is about.
func TestConsole_Rejections(t *testing.T) {
	c := newConsoled(t)
	c.raise(0, "order:1", 41)
	stale := c.connect(fmt.Sprintf("postgres://app@%s/postgres?sslmode=disable&application_name=worker", c.addr))
	c.tag(stale, "order:1", 41)
	c.exec("UPDATE fence.mark SET token = 42") // by another proxy
	_, err := stale.Exec(t.Context(), "INSERT INTO t VALUES (1, 'secret text')")
	if code(err) != "LF001" {
		t.Fatalf("got %v, want LF001", err)
	}
	conn := c.connect(c.as("watcher"))
	names, got := rows(t, conn, "SHOW REJECTIONS")
	if len(got) != 1 {
		t.Fatalf("got %v, want one", got)
	}
	row := map[string]string{}
	for i, name := range names {
		row[name] = got[0][i]
	}
	for name, want := range map[string]string{
		"user": "app", "database": "postgres", "application_name": "worker", "key": "order:1", "token": "41", "superseded_by": "42", "code": "LF001",
		"reason": "stale_token: order:1 token 41 was superseded by 42",
	} {
		if row[name] != want {
			t.Errorf("%s: got %q, want %q", name, row[name], want)
		}
	}
	if !strings.Contains(row["what_to_do"], "Stop") || !strings.Contains(row["detail"], "42") {
		t.Errorf("got %v, want what to do and since when", row)
	}
	if strings.Contains(fmt.Sprint(got), "secret text") {
		t.Errorf("got SQL text in %v", got)
	}
}

// KILL ends a session that is idle, and one that works: what ran is rolled back,
// and the client hears 57P01 once.
func TestConsole_Kill(t *testing.T) {
	c := newConsoled(t)
	conn := c.connect(c.as("dba"))
	for name, busy := range map[string]bool{"idle": false, "working": true} {
		t.Run(name, func(t *testing.T) {
			victim := c.connect(fmt.Sprintf("postgres://app@%s/postgres?sslmode=disable", c.addr))
			pid := victim.PgConn().PID()
			result := make(chan error, 1)
			if busy {
				go func() {
					_, err := victim.Exec(context.Background(), "INSERT INTO t SELECT 7, 'x' FROM pg_sleep(60)")
					result <- err
				}()
				poll.Until(t, "the statement", func() bool {
					var n int
					err := c.admin.QueryRow(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE pid = $1 AND state = 'active'", pid).Scan(&n)
					return err == nil && n == 1
				})
			}
			if tag, err := conn.Exec(t.Context(), "KILL $1", pid); err != nil || tag.String() != "KILL" {
				t.Fatalf("got %v, %v", tag, err)
			}
			if !busy {
				_, err := victim.Exec(context.Background(), "SELECT 1")
				result <- err
			}
			err := <-result
			if said := pgError(err); said == nil || said.Code != "57P01" || !strings.Contains(said.Detail, `"dba"`) {
				t.Errorf("got %v, want 57P01 and who did it", err)
			}
			poll.Until(t, "the backend's end", func() bool {
				var n int
				err := c.admin.QueryRow(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE pid = $1", pid).Scan(&n)
				return err == nil && n == 0
			})
			if got := c.count("id = 7"); got != 0 {
				t.Errorf("got %d rows of a killed session, want none", got)
			}
			if _, err := conn.Exec(t.Context(), "KILL $1", pid); code(err) != "42704" {
				t.Errorf("again: got %v, want 42704", err)
			}
		})
	}
}

// RELOAD tells what became of the settings, and what is wrong with them.
func TestConsole_Reload(t *testing.T) {
	c := newConsoled(t)
	var notices []string
	config, err := pgx.ParseConfig(c.as("dba"))
	if err != nil {
		t.Fatal(err)
	}
	config.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) { notices = append(notices, n.Severity+" "+n.Message) }
	conn, err := pgx.ConnectConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	c.program.became = live.Reloaded{Changed: []live.Change{{Name: "log_level", From: "info", To: "debug"}}, Restart: []string{"listen"}}
	if _, err := conn.Exec(t.Context(), "RELOAD"); err != nil || c.program.reloads != 1 {
		t.Errorf("got %v after %d reloads", err, c.program.reloads)
	}
	want := []string{"NOTICE log_level changed from info to debug", "WARNING listen not changed: it needs a restart"}
	if diff := cmp.Diff(want, notices); diff != "" {
		t.Errorf("notices (-want +got):\n%s", diff)
	}
	c.program.failed = errors.New("fence.yaml:2: no\nfence.yaml:3: nor that")
	_, err = conn.Exec(t.Context(), "RELOAD")
	if said := pgError(err); said == nil || said.Code != "F0000" || said.Detail != c.program.failed.Error() {
		t.Errorf("got %v, want each fault", err)
	}
}

// psycopg begins a transaction by itself, and prepares what it runs often.
const psycopgOnConsole = `
import sys, psycopg
conn = psycopg.connect(sys.argv[1])
for n in range(7):
    assert conn.execute("SHOW VERSION").fetchone()[0] == "fenceproxy of a test"
rows = conn.execute("SHOW MARKS %s LIMIT %s", ("order:", 5)).fetchall()
assert rows[0][1] == "order:1" and rows[0][2] == 41 and rows[0][7] is True, rows
assert conn.execute("SHOW MARKS", binary=True).fetchone()[4].year > 2000
try:
    conn.execute("SHOW CLIENTS")
    assert False
except psycopg.errors.SyntaxError as e:
    assert "SESSIONS" in e.diag.message_hint
assert conn.info.transaction_status.name == "INERROR"
conn.rollback()
conn.execute("SHOW KEYS")
conn.commit()
conn.close()
`

func TestConsole_Psycopg(t *testing.T) {
	c := newConsoled(t)
	c.raise(0, "order:1", 41)
	out, err := exec.CommandContext(t.Context(), "/usr/bin/python3", "-c", psycopgOnConsole, c.as("dba")).CombinedOutput()
	if err != nil {
		t.Errorf("got %v %s", err, out)
	}
}

// A console's session ends as others do: by KILL, by time-outs, when the proxy
// drains; and it counts where they are counted.
func TestConsole_Ends(t *testing.T) {
	c := newConsoled(t)
	settings := c.server.Settings
	dba := c.connect(c.as("dba"))
	for name, end := range map[string]struct {
		code string
		do   func()
	}{
		"KILL SESSION": {"57P01", func() {
			_, all := rows(t, dba, "SHOW SESSIONS")
			last := all[len(all)-1]
			if last[1] != "<nil>" || last[2] != "watcher" {
				t.Fatalf("got %v, want the console's session without a pid", last)
			}
			if _, err := dba.Exec(t.Context(), "KILL SESSION "+last[0]); err != nil {
				t.Fatal(err)
			}
		}},
		"idle": {"57P05", func() {
			shorter := settings
			shorter.ClientIdleTimeout = 50 * time.Millisecond
			c.server.Reload(shorter)
		}},
	} {
		watcher := c.connect(c.as("watcher"))
		end.do()
		var err error
		poll.Until(t, name, func() bool {
			if strings.HasPrefix(name, "idle") {
				poll.Until(t, "the end", func() bool { return c.server.Sessions() == 0 })
			}
			_, err = watcher.Exec(context.Background(), "SHOW VERSION")
			return err != nil
		})
		if got := code(err); got != end.code {
			t.Errorf("%s: got %v, want %s", name, err, end.code)
		}
		c.server.Reload(settings)
		dba = c.connect(c.as("dba"))
	}
	one := settings
	one.MaxConnections = 1
	c.server.Reload(one)
	if _, err := pgx.Connect(t.Context(), c.as("dba")); code(err) != "53300" {
		t.Errorf("with another session: got %v, want 53300", err)
	}
	c.server.Reload(settings)
	done := make(chan error, 1)
	go func() { done <- c.server.Shutdown(context.Background()) }()
	if err := <-done; err != nil {
		t.Errorf("Shutdown: %v", err)
	}
	if _, err := dba.Exec(context.Background(), "SHOW VERSION"); code(err) != "57P01" {
		t.Errorf("drained: got %v, want 57P01", err)
	}
}

// Over TLS the proxy verifies passwords itself, and binds them to the channel, for
// the console as for any session; a wrong one gets nowhere near.
func TestConsole_TLS(t *testing.T) {
	ca := certs.New(t)
	s := newStackOn(t, postgres.New(t, postgres.Options{Auth: postgres.AuthSCRAM, Password: "admin"}))
	s.exec("CREATE ROLE dba LOGIN PASSWORD 'right'")
	store, err := fencing.NewStore(s.pg.DSN("postgres", "postgres"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	own := &tls.Config{Certificates: []tls.Certificate{ca.Leaf("proxy")}}
	addr := s.addProxy(s.pg.Addr(), func(p *proxy.Server) {
		p.TLS = proxy.ClientTLS{Mode: proxy.TLSRequire, Config: func() *tls.Config { return own }}
		p.Secrets = secretsOf(store)
		p.Console = &console.Console{Server: p, Marks: store, Roles: store, Program: &program{}, Journal: p.Journal, Version: "v", Login: "postgres"}
		p.Settings.Console = console.Settings{Database: "fenceproxy", Admins: []string{"dba"}}
	})
	host, port, _ := strings.Cut(addr, ":")
	for password, want := range map[string]string{"right": "v", "wrong": "password authentication failed"} {
		cmd := exec.CommandContext(t.Context(), "psql", "-XAt", "-c", "SHOW VERSION",
			fmt.Sprintf("host=%s port=%s user=dba dbname=fenceproxy sslmode=require channel_binding=require", host, port))
		cmd.Env = append(os.Environ(), "PGPASSWORD="+password)
		if out, _ := cmd.CombinedOutput(); !strings.Contains(string(out), want) {
			t.Errorf("%s: got %s, want %s", password, out, want)
		}
	}
}
