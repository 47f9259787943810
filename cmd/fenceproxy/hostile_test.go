package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/fenceproxy/fenceproxy/fencing"
	"github.com/fenceproxy/fenceproxy/proxy/console"
	"github.com/fenceproxy/fenceproxy/testharness/poll"
	"github.com/fenceproxy/fenceproxy/testharness/postgres"
	"github.com/fenceproxy/fenceproxy/testharness/stack"
)

// What strangers can call a role, a database (63 bytes each) and a lock.
const (
	hostile         = "<b>'\"\\ $1;--\x1b[7m\x07\r\n\t\u202e\u2028{\U0001F469\u200d\U0001F4BB}"
	hostileRole     = "r" + hostile
	hostileDatabase = "d" + hostile
)

// hostileKey is over a kilobyte long.
func hostileKey() string { return hostile + strings.Repeat("é%2F/", 180) + `","token":1}` }

// Whatever a role, a database, an application and a lock are called, each event is one
// line of the log, one event of the stream and one row of the console, and the names are
// there as they are.
func TestServe_HostileNames(t *testing.T) {
	s := stack.New(t, "app")
	if err := errors.Join(s.CreateMember(t.Context(), hostileRole), s.CreateDatabase(t.Context(), hostileDatabase), s.Install(t.Context(), hostileDatabase)); err != nil {
		t.Fatal(err)
	}
	p := serveOn(t, s, "--admin-roles", stack.RoleApp)
	key := hostileKey()
	lease := hold(t, s.Client, key)
	dsn := s.ProxyDSN(p.Addr, hostileRole, hostileDatabase)
	holder := open(t, dsn, append(tagged(key, lease.Token()), "application_name", hostile)...)
	exec1(t, holder, "CREATE TABLE t (i int)")
	var application string // as PostgreSQL has it
	if err := holder.QueryRow(t.Context(), "SHOW application_name").Scan(&application); err != nil {
		t.Fatal(err)
	}
	forger := open(t, dsn, tagged(key, lease.Token()+1)...)
	if _, err := forger.Exec(t.Context(), "INSERT INTO t VALUES (1)"); code(err) != string(fencing.CodeNotHolder) {
		t.Fatalf("got %v, want %s", err, fencing.CodeNotHolder)
	}

	who := logLine{"user": hostileRole, "database": hostileDatabase}
	aLine(t, p, "session started", logLine{"user": hostileRole, "application_name": application})
	aLine(t, p, "claim", logLine{"database": hostileDatabase, "key": key})
	aLine(t, p, "claim refused", logLine{"database": hostileDatabase, "key": key})
	aLine(t, p, "statement refused", who)
	if strings.ContainsAny(p.Log(), "\x1b\x07\r") {
		t.Error("the log has control characters as they are")
	}
	consoleHas(t, s, p, key)
	streamHas(t, p, "session started", func(e streamed) bool {
		return e.User == hostileRole && e.Database == hostileDatabase && e.Application == application
	})
	for _, kind := range []string{"claim", "claim refused", "statement refused"} {
		streamHas(t, p, kind, func(e streamed) bool { return e.Key == key && e.Database == hostileDatabase })
	}
	_, body := get(t, p, "/api/state?key="+url.QueryEscape(hostile))
	var state struct{ Keys, Sessions []streamed }
	if err := json.Unmarshal([]byte(body), &state); err != nil || len(state.Keys) == 0 || len(state.Sessions) == 0 {
		t.Fatalf("got %v and %s, want keys and sessions", err, body)
	}
	if k, s := state.Keys[0], state.Sessions[0]; k.Key != key || k.Database != hostileDatabase || s.User != hostileRole || s.Application != application {
		t.Errorf("got %+v and %+v", k, s)
	}
	aMetric(t, p, "fenceproxy_etcd_behind_marks_revisions", hostileDatabase)
}

// consoleHas expects the names in what the console shows, however it is asked.
func consoleHas(t *testing.T, s *stack.Stack, p *stack.Process, key string) {
	t.Helper()
	admin := open(t, s.ProxyDSN(p.Addr, hostileRole, console.DefaultDatabase), "application_name", hostile)
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeCacheStatement, pgx.QueryExecModeSimpleProtocol} {
		for sql, want := range map[string]map[string]any{
			"SHOW KEYS $1 LIMIT 1":   {"key": key, "database": hostileDatabase},
			"SHOW MARKS $1 LIMIT 1":  {"key": key, "database": hostileDatabase},
			"SHOW REJECTIONS $1":     {"key": key, "database": hostileDatabase, "user": hostileRole},
			"SHOW SESSIONS LIMIT 10": {"database": hostileDatabase, "user": hostileRole},
		} {
			args := []any{mode}
			if strings.Contains(sql, "$1") {
				args = append(args, hostile)
			}
			found, err := admin.Query(t.Context(), sql, args...)
			if err != nil {
				t.Fatalf("%v: %s: %v", mode, sql, err)
			}
			all, err := pgx.CollectRows(found, pgx.RowToMap)
			if err != nil || len(all) == 0 {
				t.Fatalf("%v: %s: got %v, %v", mode, sql, all, err)
			}
			for column, value := range want {
				if all[0][column] != value {
					t.Errorf("%v: %s: %s: got %q, want %q", mode, sql, column, all[0][column], value)
				}
			}
			if !strings.HasPrefix(sql, "SHOW SESSIONS") {
				continue
			}
			tag, err := fencing.ParseTag("", "", all[0]["tag"].(string))
			if err != nil || len(tag) != 1 || tag[0].Key != key {
				t.Errorf("%v: the tag %q: got %v, %v", mode, all[0]["tag"], tag, err)
			}
			own := all[len(all)-1]
			if name, _ := own["application_name"].(string); own["database"] != console.DefaultDatabase || !strings.HasPrefix(name, "<b>'") || strings.ContainsAny(name, "\x1b\n\u202e") {
				t.Errorf("%v: its own session: got %q of %q", mode, own["application_name"], own["database"])
			}
		}
	}
}

// A streamed is what is looked at of an event of the dashboard, a key or a session.
type streamed struct{ Kind, User, Database, Application, Key string }

// streamHas waits for an event of a kind.
func streamHas(t *testing.T, p *stack.Process, kind string, fits func(streamed) bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), poll.Deadline)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.Admin+"/api/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		name, data, _ := strings.Cut(lines.Text(), ": ")
		var e streamed
		switch name {
		case "data":
			if err := json.Unmarshal([]byte(data), &e); err != nil {
				t.Fatalf("%q: %v", data, err)
			}
		case "event", "id", "retry", "":
		default:
			t.Fatalf("the stream has a line %q", lines.Text())
		}
		if e.Kind == kind && fits(e) {
			return
		}
	}
	t.Errorf("no event %q came: %v", kind, lines.Err())
}

// aMetric waits for a metric of a database.
func aMetric(t *testing.T, p *stack.Process, name, database string) {
	t.Helper()
	poll.Until(t, fmt.Sprintf("%s of %q", name, database), func() bool {
		_, body := get(t, p, "/metrics")
		parser := expfmt.NewTextParser(model.LegacyValidation)
		families, err := parser.TextToMetricFamilies(strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		return slices.ContainsFunc(families[name].GetMetric(), func(m *dto.Metric) bool { return m.GetLabel()[0].GetValue() == database })
	})
}

// A database whose name isn't UTF-8 has its claims and its metrics, and the proxy goes on.
func TestServe_NamesNotUTF8(t *testing.T) {
	s := stack.New(t, "app")
	const name = "caf\xe9\""
	super := open(t, s.DSN(postgres.Superuser, "app"))
	exec1(t, super, "CREATE DATABASE ascii TEMPLATE template0 ENCODING 'SQL_ASCII' LC_COLLATE 'C' LC_CTYPE 'C'")
	bytewise := open(t, s.DSN(postgres.Superuser, "ascii"), "client_encoding", "SQL_ASCII")
	quoted := pgx.Identifier{name}.Sanitize()
	for _, sql := range []string{
		"CREATE DATABASE " + quoted + " TEMPLATE template0 ENCODING 'SQL_ASCII' LC_COLLATE 'C' LC_CTYPE 'C' OWNER " + stack.RoleApp,
		"GRANT CREATE ON DATABASE " + quoted + " TO " + stack.RoleFence,
	} {
		if _, err := bytewise.PgConn().Exec(t.Context(), sql).ReadAll(); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Install(t.Context(), name); err != nil {
		t.Fatal(err)
	}
	p := serveOn(t, s)
	lease := hold(t, s.Client, "order:1")
	conn := open(t, s.ProxyDSN(p.Addr, stack.RoleApp, name), tagged("order:1", lease.Token())...)
	exec1(t, conn, "CREATE TABLE t (i int)")
	aMetric(t, p, "fenceproxy_etcd_behind_marks_revisions", `caf\xe9\"`)
	exec1(t, conn, "INSERT INTO t VALUES (1)")
}

// Whatever is logged is one line, without a character that terminals take for something
// else than text, in the form for people.
func TestLogHandler_OneLine(t *testing.T) {
	for _, format := range []string{"text", "json"} {
		var out bytes.Buffer
		logger := slog.New(newThrottle(newLogHandler(&out, format, slog.LevelDebug)))
		logger.With("user", hostileRole).Warn("said", "key", hostileKey(), "error", errors.New(hostile), "bytes", "caf\xe9")
		if n := strings.Count(out.String(), "\n"); n != 1 || strings.ContainsAny(strings.TrimSuffix(out.String(), "\n"), "\x1b\x07\r\t\u2028") {
			t.Errorf("%s: got %d lines: %q", format, n, out.String())
		}
		if format == "text" && strings.ContainsAny(out.String(), "\u202e\u200d") {
			t.Errorf("got characters that can't be seen: %q", out.String())
		}
	}
}
