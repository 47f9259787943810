package proxy_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fenceproxy/fenceproxy/fencing"
)

func TestSession_StartupTag(t *testing.T) {
	s := newStack(t, 1)
	s.holders.hold("order 8472", 5)
	c := s.startup(0, "order 8472", 5)
	if _, err := c.Exec(t.Context(), "INSERT INTO t VALUES (1, 'x')"); err != nil {
		t.Error(err)
	}
	s.raise(0, "order 8472", 6)
	if _, err := c.Exec(t.Context(), "SELECT 1"); code(err) != "LF005" {
		t.Errorf("got %v, want LF005", err)
	}
}

// A tag of very many keys is refused, and the session goes on without it.
func TestSession_TagOfTooManyKeys(t *testing.T) {
	s := newStack(t, 1)
	text := ""
	for i := range fencing.MaxPairs + 1 {
		text += fmt.Sprintf(`, "k%d": 1`, i)
	}
	c, err := pgx.Connect(t.Context(), s.dsn(0))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(context.Background())
	for _, sql := range []string{"SET fence.tokens = '{" + text[1:] + "}'", "INSERT INTO t VALUES (1, 'x')"} {
		if _, err := c.Exec(t.Context(), sql); code(err) != "LF009" {
			t.Errorf("%.30s: got %v, want LF009", sql, err)
		}
	}
	for _, sql := range []string{"RESET ALL", "INSERT INTO t VALUES (1, 'x')"} {
		if _, err := c.Exec(t.Context(), sql); err != nil {
			t.Errorf("%s: %v", sql, err)
		}
	}
}

// A tag in a startup packet counts however it is spelled.
func TestSession_StartupTagSpelled(t *testing.T) {
	s := newStack(t, 1)
	s.holders.hold("order 8472", 5)
	for _, params := range []map[string]string{
		{"fence.key": "order 8472", "fence.token": "4"},
		{"FENCE.Key": "order 8472", "Fence.TOKEN": "4"},
		{"fence.tokens": `{"order 8472": 4}`},
		{"options": `-c fence.key=order\ 8472 -c fence.token=4`},
		{"options": `-cfence.key=order\ 8472 -cfence.token=4`},
		{"options": `--fence.key=order\ 8472 --fence.token=4`},
		{"options": `--FENCE.key=order\ 8472	--fence.Token=4`},
		{"options": `-c fen\ce.k\ey=order\ 8472 -c \f\e\n\c\e.token=4`},
		{"options": `  -c  fence.tokens={"order\ 8472":4}`},
		{"options": `-c work_mem=1MB -c fence.key=x -c fence.key=order\ 8472 --fence.token=4`},
		{"options": `-c fence.key=order\ 8472`, "fence.token": "4"},
	} {
		config, err := pgx.ParseConfig(s.dsn(0))
		if err != nil {
			t.Fatal(err)
		}
		for name, value := range params {
			config.RuntimeParams[name] = value
		}
		c, err := pgx.ConnectConfig(t.Context(), config)
		if err != nil {
			t.Errorf("%v: %v", params, err)
			continue
		}
		defer c.Close(t.Context())
		if _, err := c.Exec(t.Context(), "INSERT INTO t VALUES (1, 'x')"); code(err) != "LF002" {
			t.Errorf("%v: got %v, want LF002", params, err)
		}
	}
}

// A claim that fails at startup opens the session with a warning, and every
// statement but settings and transaction ends gets the code until a claim
// succeeds; each statement tries again.
func TestSession_StartupTagRefused(t *testing.T) {
	s := newStack(t, 1)
	s.holders.hold("k", 5)
	var notices []*pgconn.Notice
	config, err := pgx.ParseConfig(s.dsn(0))
	if err != nil {
		t.Fatal(err)
	}
	config.RuntimeParams["fence.key"], config.RuntimeParams["fence.token"] = "k", "6"
	config.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) { notices = append(notices, n) }
	c, err := pgx.ConnectConfig(t.Context(), config)
	if err != nil {
		t.Fatalf("the connection was refused: %v", err)
	}
	defer c.Close(t.Context())
	if len(notices) != 1 || notices[0].Code != "LF002" || notices[0].Severity != "WARNING" {
		t.Errorf("got notices %+v, want one WARNING LF002", notices)
	}
	for _, mode := range protocols {
		for _, sql := range []string{"SELECT 1", "INSERT INTO t VALUES (1, 'x')"} {
			if err := mode.run(t.Context(), c, sql); code(err) != "LF002" {
				t.Errorf("%v %s: got %v, want LF002", mode, sql, err)
			}
		}
		if err := mode.run(t.Context(), c, "SET application_name = 'x'"); err != nil {
			t.Errorf("%v SET: %v", mode, err)
		}
	}
	for _, sql := range []string{"RESET ALL", "DISCARD ALL"} {
		if _, err := c.Exec(t.Context(), sql); err != nil {
			t.Errorf("%s: %v", sql, err)
		}
		if _, err := c.Exec(t.Context(), "SELECT 1"); code(err) != "LF002" {
			t.Errorf("after %s: got %v, want LF002", sql, err)
		}
	}
	s.holders.hold("k", 6)
	if _, err := c.Exec(t.Context(), "INSERT INTO t VALUES (1, 'x')"); err != nil {
		t.Errorf("after the lock was taken: %v", err)
	}
}

// What a tag may be, and what a session with a bad one may do.
func TestSession_Tags(t *testing.T) {
	s := newStack(t, 1)
	s.holders.hold("a", 1)
	s.holders.hold("b", 2)
	const write = "INSERT INTO t VALUES (1, 'x') ON CONFLICT DO NOTHING"
	for _, c := range []struct {
		name  string
		steps []string
		want  []string
	}{
		{"two settings", []string{"SET fence.key = 'a'", "SET fence.token = 1", write}, []string{"", "", ""}},
		{"set to a string", []string{"SET fence.key TO a", "SET SESSION fence.token TO '1'", write}, []string{"", "", ""}},
		{"token first", []string{"SET fence.token = 1", "SET fence.key = 'a'", write}, []string{"", "", ""}},
		{"set_config", []string{"SELECT set_config('fence.key', 'a', false), set_config('fence.token', '1', false)", write}, []string{"", ""}},
		{"several", []string{`SET fence.tokens = '{"a": 1, "b": 2}'`, write}, []string{"", ""}},
		{"several, one stale", []string{`SET fence.tokens = '{"a": 1, "b": 3}'`, write, "SELECT 1", "RESET fence.tokens", write}, []string{"LF002", "LF002", "LF002", "", ""}},
		{"union", []string{`SET fence.tokens = '{"b": 2}'; SET fence.key = 'a'; SET fence.token = 1`, write}, []string{"", ""}},
		{"two tokens for a key", []string{`SET fence.tokens = '{"a": 2}'; SET fence.key = 'a'; SET fence.token = 1`}, []string{"LF009"}},
		{"key alone", []string{"SET fence.key = 'a'", "SELECT 1", write, "RESET fence.key", write}, []string{"", "", "LF009", "", ""}},
		{"token alone", []string{"SET fence.token = 1", "SELECT 1", write}, []string{"", "", "LF009"}},
		{"no number", []string{"SET fence.key = 'a'; SET fence.token = 'x'", "SELECT 1", "RESET ALL", "SELECT 1"}, []string{"LF009", "LF009", "", ""}},
		{"zero", []string{"SET fence.key = 'a'; SET fence.token = 0", "DISCARD ALL", write}, []string{"LF009", "", ""}},
		{"no object", []string{"SET fence.tokens = '[1]'"}, []string{"LF009"}},
		{"wrong token", []string{"SET fence.key = 'a'; SET fence.token = 9", write, "SHOW application_name", "SET fence.key = 'a'; SET fence.token = 1", write}, []string{"LF002", "LF002", "", "", ""}},
		{"new key, old token", []string{"SET fence.key = 'a'; SET fence.token = 1", "SET fence.key = 'b'", write, "SET fence.token = 2", write}, []string{"", "", "LF009", "", ""}},
		{"local", []string{"BEGIN", "SET LOCAL fence.key = 'a'", "SET LOCAL fence.token = 1", write, "COMMIT", "SHOW application_name", write}, []string{"", "", "", "", "", "", ""}},
		{"rolled back", []string{"SET fence.key = 'a'; SET fence.token = 1", "BEGIN", "SET LOCAL fence.key = 'b'; SET LOCAL fence.token = 2", "ROLLBACK", "SET fence.token = 1", write}, []string{"", "", "", "", "", ""}},
		{"rolled back to a savepoint", []string{"SET fence.key = 'a'; SET fence.token = 1", "BEGIN", "SAVEPOINT s", "SET fence.key = 'b'; SET fence.token = 2", "ROLLBACK TO s", "SET fence.token = 1", write, "COMMIT"}, []string{"", "", "", "", "", "", "", ""}},
		{"refused in a block", []string{"BEGIN", "SET LOCAL fence.key = 'a'; SET LOCAL fence.token = 9", "SELECT 1", "ROLLBACK", "SELECT 1", write}, []string{"", "LF002", "25P02", "", "", ""}},
		{"refused for the session in a block", []string{"BEGIN", "SET fence.key = 'a'; SET fence.token = 9", "ROLLBACK", "SELECT 1", write, "SET fence.key = ''", "SELECT 1"}, []string{"", "LF002", "", "LF002", "LF002", "", ""}},
		{"refused, then taken back as empty", []string{"SET fence.key = 'a'; SET fence.token = 9", "SELECT 1", "SET fence.token = ''", write}, []string{"LF002", "LF002", "", ""}},
		{"one text", []string{"SET fence.key = 'a'; SET fence.token = 1; " + write}, []string{""}},
		{"one text, wrong token", []string{"SET fence.key = 'a'; SET fence.token = 9; " + write}, []string{"LF002"}},
	} {
		for _, mode := range protocols {
			t.Run(c.name+"/"+string(mode), func(t *testing.T) {
				conn := s.session(0, "", 0)
				for i, sql := range c.steps {
					err := runIn(t, conn, sql, mode)
					if got := code(err); got != c.want[i] {
						t.Errorf("%s: got %q, want %q (%v)", sql, got, c.want[i], err)
					}
				}
			})
		}
	}
}

// runIn runs one text. A text of several statements goes by the simple
// protocol, which is the only one that takes it.
func runIn(t *testing.T, c *pgx.Conn, sql string, p protocol) error {
	t.Helper()
	if strings.Contains(sql, ";") && !strings.HasPrefix(sql, "DO ") {
		p = simple
	}
	return p.run(t.Context(), c, sql)
}
