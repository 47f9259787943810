package sqlrewrite_test

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fenceproxy/fenceproxy/sqlrewrite"
	"github.com/fenceproxy/fenceproxy/testharness/postgres"
)

func connect(t *testing.T, s *postgres.Server) *pgconn.PgConn {
	t.Helper()
	conn, err := pgconn.Connect(context.Background(), s.DSN("postgres", "postgres"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(context.Background()) })
	return conn
}

// results runs text as one Query and returns its results.
func results(t *testing.T, conn *pgconn.PgConn, text string) ([]*pgconn.Result, error) {
	t.Helper()
	return conn.Exec(context.Background(), text).ReadAll()
}

func must(t *testing.T, conn *pgconn.PgConn, text string) []*pgconn.Result {
	t.Helper()
	got, err := results(t, conn, text)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return got
}

func sqlState(err error) string {
	var pgErr *pgconn.PgError
	if errors.As(err, &pgErr) {
		return pgErr.Code
	}
	return ""
}

// TestSplit_Server: a real server makes as many results of a text as Split
// makes statements. It is the judge where libpg_query's scanner isn't
// PostgreSQL's: comments inside continued strings, and backslash quotes.
func TestSplit_Server(t *testing.T) {
	server := postgres.New(t, postgres.Options{})
	for _, o := range []sqlrewrite.Options{{}, {BackslashQuotes: true}} {
		conn := connect(t, server)
		texts := append(corpus(t, "server.sql"), "SELECT 'a', 'b\\\\'; SELECT '\\''';'';'")
		if o.BackslashQuotes {
			must(t, conn, "SET standard_conforming_strings = off; SET escape_string_warning = off")
			texts = append(texts, `SELECT '\'; SELECT 2 --'; SELECT 3`, "SELECT 'a\\'\n'\\';b'; SELECT B'01'; SELECT N'\\';'")
		}
		for _, text := range texts {
			got, splitErr := sqlrewrite.Split(nil, []byte(text), o)
			want, err := results(t, conn, text)
			if err != nil {
				continue // refused whole, or by a cast of one literal
			}
			if splitErr != nil || len(got) != len(want) {
				t.Errorf("%+v: %q: got %d statements (%v), want %d", o, text, len(got), splitErr, len(want))
			}
		}
	}
}

// TestSettings_Server compares what Settings tells with what a real server
// then has, and that no statement sets a tag without TouchesTag.
func TestSettings_Server(t *testing.T) {
	conn := connect(t, postgres.New(t, postgres.Options{}))
	for _, text := range []string{
		"SET fence.key = 'order:8472'", "SET FENCE.Key TO 'a''b'", "SET SESSION fence.key = 42", "SET LOCAL fence.key = '42'",
		"SET fence.key = -042", "SET fence.key=-42", "SET fence.key = +7", "SET fence.key = 9223372036854775807", "SET fence.key = 2147483648",
		"SET fence.key = 0099999999999", "SET fence.key = 4.50", "SET fence.key = .5", "SET fence.key = 1e3",
		"SET fence.key = E'a\\x41\\102\\n\\u00e9\\'\\q'", "SET fence.key = E'a\\v'", "SET fence.key = E'\\U0001F600\\ud83d\\ude00'", "SET fence.key = 'a\\x41'",
		"SET fence.key = 'a'\n 'b' -- c\n 'c'", "SET fence.key = $x$a'b$$c$x$", "SET fence.key = U&'\\0061'", "SET fence.key = Order_8472",
		"SET fence.key = \"Order\"\"8472\"", "SET fence.key = on", "SET fence.key = TRUE", "SET fence.key = abcdefghijabcdefghijabcdefghijabcdefghijabcdefghijabcdefghijabcdefghij",
		"SET fence.key = ''", "SET fence.key TO DEFAULT", "SET fence.key FROM CURRENT", "SET fence /* a */ . -- b\n key /* c */ = /* d */ 'e'",
		"SET \"fence\".\"key\" = 'a'", "SET \"FENCE.KEY\" = 'a'", "SET \"fence.key\" = 'a'", "SET U&\"\\0066ence\".key = 'a'", "SET fence.U&\"!006bey\" UESCAPE '!' = 'a'",
		"SET fence.key.more = 'a'", "SET session.fence.key = 'a'", "SET local.x = 'fence.key'",
		"RESET fence.key", "RESET \"Fence\".KEY", "RESET ALL",
		"SELECT set_config('fence.key', 'a', false)", "SELECT Pg_Catalog . Set_Config ( 'FENCE.key' , E'a\\x41' , TRUE ) AS x",
		"SELECT set_config('fence.key', 'b'::text, 'yes'), set_config('work_mem', '1MB', false) y", "SELECT set_config('fence.key', NULL, false)",
		"SELECT \"set_config\"('fence.key', 'a', false)", "SELECT U&\"set\\005fconfig\"('fence.key', 'a', false)",
		"SELECT set_config('fence' || '.key', 'a', false)", "SELECT set_config('fen' || 'ce.key', 'a', false)", "SELECT set_config(E'\\x66ence.key', 'a', false)",
		"SELECT set_config(U&'\\0066ence.key', 'a', false)", "SELECT set_config(n, 'a', false) FROM (VALUES ('fence.key')) v(n)",
		"SELECT set_config(lower('FENCE.KEY'), 'a', false)", "SELECT set_config(concat('fen', 'ce.key'), 'a', false)",
		"SELECT set_config(is_local => false, new_value => 'a', setting_name => concat('fen', 'ce.key'))",
		"DO $$ BEGIN SET fence.key = 'a'; END $$", "DO E'BEGIN SET \\x66ence.key = 1; END'", "DO $$ BEGIN PERFORM set_config('fen' || 'ce.key', 'a', false); END $$",
		"UPDATE pg_settings SET setting = 'a' WHERE name = 'fence.key'",
		"SELECT current_setting('fence.key', true)", "SHOW fence.key", "SELECT 'fence.key'", "EXPLAIN SELECT set_config('fence.key', 'a', false)",
	} {
		must(t, conn, "RESET ALL; SET fence.key = 'before'; BEGIN")
		_, err := results(t, conn, text)
		if err != nil {
			must(t, conn, "ROLLBACK")
			checkRefused(t, text, err)
			continue
		}
		got := string(must(t, conn, "SELECT coalesce(current_setting('fence.key', true), '')")[0].Rows[0][0])
		must(t, conn, "ROLLBACK")
		checkSetting(t, text, got)
	}
}

// checkRefused: what the server refuses must not have a value here.
func checkRefused(t *testing.T, text string, err error) {
	t.Helper()
	for _, s := range settings(t, text, sqlrewrite.Options{}) {
		if s.Kind == sqlrewrite.Set {
			t.Errorf("%s: got %+v, but the server: %v", text, s, err)
		}
	}
}

// checkSetting compares the value of fence.key after text with what Settings
// says that it is.
func checkSetting(t *testing.T, text, server string) {
	t.Helper()
	value := "before"
	for _, s := range settings(t, text, sqlrewrite.Options{}) {
		switch s.Kind {
		case sqlrewrite.Unknown:
			return
		case sqlrewrite.Set:
			value = s.Value
		case sqlrewrite.Reset, sqlrewrite.ResetAll:
			value = ""
		}
	}
	if diff := cmp.Diff(server, value); diff != "" {
		t.Errorf("%s (-server +got):\n%s", text, diff)
	}
	if touches := one(t, text, sqlrewrite.Options{}).Flags&sqlrewrite.TouchesTag != 0; server != "before" && !touches {
		t.Errorf("%s sets fence.key to %q and has no TouchesTag", text, server)
	}
}

// TestSplit_BlockServer compares NotInBlock and NeedsBlock with a real server.
func TestSplit_BlockServer(t *testing.T) {
	const (
		active = "25001" // active_sql_transaction
		none   = "25P01" // no_active_sql_transaction
		warns  = "SET CONSTRAINTS ALL IMMEDIATE"
	)
	conn := connect(t, postgres.New(t, postgres.Options{Config: []string{"max_prepared_transactions = 2"}}))
	must(t, conn, "CREATE TABLE t (a int PRIMARY KEY); CREATE INDEX i ON t (a); CREATE VIEW v AS SELECT 1; CREATE MATERIALIZED VIEW m AS SELECT 1 AS a; CREATE UNIQUE INDEX mi ON m (a)")
	for _, text := range []string{
		"VACUUM t", "VACUUM (ANALYZE) t", "ANALYZE t", "CLUSTER", "CLUSTER VERBOSE", "CLUSTER t USING i",
		"CREATE DATABASE d", "DROP DATABASE nothing", "ALTER DATABASE postgres SET TABLESPACE pg_default", "ALTER DATABASE postgres SET work_mem = '4MB'",
		"CREATE TABLESPACE s LOCATION '/nowhere'", "DROP TABLESPACE nothing", "ALTER SYSTEM SET work_mem = '4MB'",
		"CREATE SUBSCRIPTION s CONNECTION 'host=/nowhere' PUBLICATION p",
		"CREATE INDEX CONCURRENTLY ON t (a)", "CREATE INDEX ON t (a)", "DROP INDEX CONCURRENTLY i", "REINDEX TABLE CONCURRENTLY t", "REINDEX (CONCURRENTLY) TABLE t",
		"REINDEX (VERBOSE) SCHEMA public", "REINDEX DATABASE postgres", "REINDEX TABLE t", "REFRESH MATERIALIZED VIEW CONCURRENTLY m",
		"COMMIT PREPARED 'x'", "ROLLBACK PREPARED 'x'", "DISCARD ALL", "DISCARD PLANS", "DEALLOCATE ALL",
		"LOCK t", "DECLARE c CURSOR FOR SELECT 1", "DECLARE c CURSOR WITH HOLD FOR SELECT 1", "SAVEPOINT s", "RELEASE s", "ROLLBACK TO s",
		"SELECT 1", "INSERT INTO t VALUES (1)", "SET LOCAL work_mem = '4MB'", warns, "TRUNCATE t", "CHECKPOINT", "NOTIFY n", "LISTEN n",
		"CREATE TABLE u (a int)", "ALTER TABLE t ADD b int", "DO $$ BEGIN END $$", "PREPARE p AS SELECT 1", "EXPLAIN ANALYZE SELECT 1",
	} {
		flags := one(t, text, sqlrewrite.Options{}).Flags
		must(t, conn, "BEGIN")
		_, err := results(t, conn, text)
		if got, want := flags&sqlrewrite.NotInBlock != 0, sqlState(err) == active; got != want {
			t.Errorf("%s: not in a block: got %t, want %t (%v)", text, got, want, err)
		}
		must(t, conn, "ROLLBACK")
		if flags&sqlrewrite.NotInBlock != 0 {
			continue // refused above, and not to be run for good
		}
		_, err = results(t, conn, text)
		if got, want := flags&sqlrewrite.NeedsBlock != 0, sqlState(err) == none || text == warns; got != want {
			t.Errorf("%s: needs a block: got %t, want %t (%v)", text, got, want, err)
		}
	}
}
