package proxy_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/fenceproxy/fenceproxy/testharness/postgres"
)

// A text that ends too early is told so, at its end, as it is without a proxy,
// though a check stands behind it.
func TestSession_TextEndsTooEarly(t *testing.T) {
	s := newStack(t, 1)
	s.holders.hold("k", 1)
	straight := s.connect(s.pg.DSN("postgres", "postgres"))
	tagged := s.session(0, "k", 1)
	said := func(c *pgconn.PgConn, sql string) string {
		_, err := c.Exec(t.Context(), sql).ReadAll()
		var e *pgconn.PgError
		if !errors.As(err, &e) {
			return fmt.Sprint(err)
		}
		return fmt.Sprintf("%s %s at %d, then %c", e.Code, e.Message, e.Position, c.TxStatus())
	}
	for _, sql := range []string{
		"SELECT 1 +", "SELECT 1 +  ", "SELECT 1 + -- more", "SELECT 1 + /* more */\n", "TABLE", "SELECT (1", "SELECT 'é日' || ",
		"INSERT INTO t VALUES (", "SELECT 1; SELECT (2", "INSERT INTO t VALUES (1, 'a'); SELECT (2", "SELECT (2; INSERT INTO t VALUES (1, 'a')",
		"SELECT 1; COMMIT; SELECT", "SELECT 1; COMMIT; SELECT 2 WHERE", "BEGIN; SELECT 1; COMMIT; SELECT (", "BEGIN; SELECT (", "SELECT U&'x' UESCAPE",
		"SELECT 1 +;", "SELECT 1 + ; SELECT 2", "EXECUTE p (", "EXPLAIN SELECT", "VALUES (1), ", "SELECT NOT", "SELECT nobody", "WITH x AS (SELECT 1",
		"DECLARE c CURSOR FOR SELECT", "SHOW", "SET", "COPY t TO", "SELECT 1 WHERE; ; ", "SELECT 1; SELECT 1 +",
	} {
		for _, before := range []string{"", "BEGIN"} {
			var want, got string
			for c, result := range map[*pgconn.PgConn]*string{straight.PgConn(): &want, tagged.PgConn(): &got} {
				if _, err := c.Exec(t.Context(), before).ReadAll(); err != nil {
					t.Fatal(err)
				}
				*result = said(c, sql)
				if _, err := c.Exec(t.Context(), "ROLLBACK").ReadAll(); err != nil {
					t.Fatal(err)
				}
			}
			if got != want {
				t.Errorf("%s: %q: got %s, want %s", before, sql, got, want)
			}
		}
	}
	if got := s.count("true"); got != 0 {
		t.Errorf("got %d rows of texts that can't be parsed", got)
	}
}

// A statement that PostgreSQL refuses because a check beside it makes a block
// is LF007; what is refused without one too keeps PostgreSQL's words.
func TestSession_BlockedByItsCheck(t *testing.T) {
	s := newStackOn(t, postgres.New(t, postgres.Options{Config: []string{"wal_level = logical"}}))
	s.addProxy(s.pg.Addr())
	s.holders.hold("k", 1)
	s.exec(`CREATE TABLE parts (id int PRIMARY KEY) PARTITION BY RANGE (id);
		CREATE TABLE part PARTITION OF parts FOR VALUES FROM (1) TO (10);
		CREATE PROCEDURE commits() LANGUAGE plpgsql AS 'BEGIN COMMIT; END';
		CREATE FUNCTION commits_too() RETURNS int LANGUAGE plpgsql AS 'BEGIN COMMIT; RETURN 1; END';
		CREATE FUNCTION raises() RETURNS int LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION USING ERRCODE = ''25001''; END'`)
	const slot = "SELECT pg_create_logical_replication_slot('s', 'test_decoding')"
	for _, c := range []struct{ sql, simple, extended string }{
		{"REINDEX TABLE parts", "LF007 ZI", "LF007 ZI"},
		{"REINDEX INDEX parts_pkey", "LF007 ZI", "LF007 ZI"},
		{"CLUSTER parts USING parts_pkey", "LF007 ZI", "LF007 ZI"},
		{"REINDEX DATABASE postgres", "LF007 ZI", "LF007 ZI"},
		{"REINDEX (VERBOSE) SCHEMA public", "LF007 ZI", "LF007 ZI"},
		{"REINDEX SYSTEM postgres", "LF007 ZI", "LF007 ZI"},
		{"CLUSTER", "LF007 ZI", "LF007 ZI"},
		{"REINDEX TABLE t", "REINDEX ZI", "REINDEX ZI"},
		{"DO 'BEGIN COMMIT; END'", "LF007 ZI", "LF007 ZI"},
		{"CALL commits()", "LF007 ZI", "LF007 ZI"},
		{"DO 'BEGIN NULL; END'", "DO ZI", "DO ZI"},
		{slot, "LF007 ZI", "LF007 ZI"},
		{"SELECT commits_too()", "2D000 ZI", "2D000 ZI"},
		{"SELECT raises()", "25001 ZI", "25001 ZI"},
		{"SELECT 1; REINDEX TABLE parts", "SELECT 1 25001 ZI", ""},
	} {
		t.Run(c.sql, func(t *testing.T) {
			f := s.taggedFrontend(0, "k", 1)
			f.send(query(c.sql))
			if got := f.ready(1); got != c.simple {
				t.Errorf("simple: got %s, want %s", got, c.simple)
			}
			if c.extended == "" {
				return
			}
			f.send(parts(c.sql, &pgproto3.Sync{})...)
			if got := f.ready(1); got != c.extended {
				t.Errorf("extended: got %s, want %s", got, c.extended)
			}
			f.send(query("BEGIN"), query("REINDEX TABLE parts"), query("ROLLBACK"))
			if got, want := f.ready(3), "BEGIN ZT 25001 ZE ROLLBACK ZI"; got != want {
				t.Errorf("in a block of the client's own: got %s, want %s", got, want)
			}
		})
	}
}
