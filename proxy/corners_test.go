package proxy_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgproto3"
)

// Whatever hides a write from whoever reads the text, a stale session's is not
// there afterwards.
func TestSession_StaleHidden(t *testing.T) {
	s := newStack(t, 2)
	s.exec(`CREATE TABLE other (id int);
		CREATE RULE also AS ON INSERT TO other DO ALSO INSERT INTO t VALUES (NEW.id, 'rule');
		CREATE VIEW v AS SELECT * FROM t;
		CREATE RULE instead AS ON UPDATE TO v DO INSTEAD INSERT INTO t VALUES (1, 'rule');
		CREATE FUNCTION atomic() RETURNS int BEGIN ATOMIC INSERT INTO t VALUES (1, 'atomic'); SELECT 1; END;
		CREATE FUNCTION plus(int, int) RETURNS int LANGUAGE sql AS 'INSERT INTO t VALUES ($1, ''operator'') RETURNING 1';
		CREATE OPERATOR <+> (FUNCTION = plus, LEFTARG = int, RIGHTARG = int);
		CREATE FUNCTION cast_writes(text) RETURNS point LANGUAGE sql AS 'INSERT INTO t VALUES (1, $1) RETURNING NULL::point';
		CREATE CAST (text AS point) WITH FUNCTION cast_writes(text);
		CREATE FUNCTION checks(int) RETURNS boolean LANGUAGE sql AS 'INSERT INTO t VALUES ($1, ''domain''); SELECT true';
		CREATE DOMAIN checked AS int CHECK (checks(VALUE));
		CREATE FUNCTION adds(int, int) RETURNS int LANGUAGE sql AS 'INSERT INTO t VALUES ($2, ''aggregate'') RETURNING 1';
		CREATE AGGREGATE adder (int) (SFUNC = adds, STYPE = int, INITCOND = '0');
		CREATE SCHEMA app; CREATE FUNCTION app.lower(text) RETURNS text LANGUAGE sql AS 'INSERT INTO public.t VALUES (1, ''lower'') RETURNING v';
		CREATE FUNCTION tags() RETURNS text LANGUAGE sql AS $$ SELECT set_config('fence.token', '0', false) $$`)
	for i, c := range []struct{ before, stale, want string }{
		{"", "INSERT INTO other VALUES (1)", "LF001"},
		{"", "UPDATE v SET v = 'a'", "LF001"},
		{"", "SELECT atomic()", "LF001"},
		{"", "CREATE OR REPLACE FUNCTION atomic() RETURNS int BEGIN ATOMIC INSERT INTO t VALUES (2, 'atomic'); SELECT 1; END; SELECT atomic()", "LF001"},
		{"", "SELECT 1 <+> 2", "LF001"},
		{"", "SELECT 'a'::text::point", "LF001"},
		{"", "SELECT 1::checked", "LF001"},
		{"", "SELECT adder(x) FROM generate_series(1, 2) x", "LF001"},
		{"SET search_path = app, pg_catalog, public", "SELECT lower('A')", "LF001"},
		{"", "EXPLAIN ANALYZE SELECT * FROM sneaky", "LF001"},
		{"", "EXPLAIN (COSTS off, \"analyze\") SELECT * FROM sneaky", "LF001"},
		{"", "COPY (SELECT * FROM sneaky) TO STDOUT", "LF001"},
		{"", "CREATE TABLE made AS SELECT * FROM sneaky", "LF001"},
		{"", "SELECT * INTO made FROM sneaky", "LF001"},
		{"", "WITH x AS (INSERT INTO t VALUES (1, 'with') RETURNING *) SELECT * FROM x", "LF001"},
		{"", "MERGE INTO t USING (VALUES (1)) n(id) ON t.id = n.id WHEN NOT MATCHED THEN INSERT VALUES (1, 'merge')", "LF001"},
		{"", "TABLE sneaky", "LF001"},
		{"", "SELECT * FROM t WHERE EXISTS (SELECT * FROM sneaky) OR EXISTS (TABLE sneaky)", "LF001"},
		{"PREPARE p AS SELECT * FROM sneaky", "EXECUTE p", "LF001"},
		{"PREPARE p AS SELECT * FROM sneaky", "EXPLAIN ANALYZE EXECUTE p", "LF001"},
		{"PREPARE p AS SELECT * FROM sneaky", "CREATE TABLE made AS EXECUTE p", "LF001"},
		{"BEGIN; DECLARE c CURSOR FOR SELECT * FROM sneaky", "MOVE c", "LF001"},
		{"BEGIN; SAVEPOINT a", "RELEASE a; SELECT * FROM sneaky; COMMIT", "LF005"},
		{"BEGIN; INSERT INTO other VALUES (7); ROLLBACK", "BEGIN; SAVEPOINT a; ROLLBACK TO a; SELECT * FROM sneaky; COMMIT", "LF001"},
		{"BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM t", "SELECT * FROM sneaky; COMMIT", "LF001"},
		{"BEGIN ISOLATION LEVEL SERIALIZABLE; SELECT count(*) FROM t", "INSERT INTO t VALUES (1, 'a')", "LF001"},
		{"BEGIN; SELECT 1; COMMIT AND CHAIN", "SELECT * FROM sneaky; COMMIT AND CHAIN", "LF001"},
		{"SET standard_conforming_strings = off", `SELECT 'a\'; SELECT 1 --'; DELETE FROM t; INSERT INTO t VALUES (1, 'a\\')`, "LF001"},
		{"SET standard_conforming_strings = off", `SELECT 'a\\'; INSERT INTO t VALUES (1, '\'')`, "LF001"},
		{"", "SELECT tags(); INSERT INTO t VALUES (1, 'a')", "LF001"},
	} {
		t.Run(c.stale, func(t *testing.T) {
			s.exec("TRUNCATE t; DROP TABLE IF EXISTS made")
			key := fmt.Sprintf("hidden%d", i)
			s.holders.hold(key, 1)
			conn := s.session(0, key, 1).PgConn()
			if c.before != "" {
				if _, err := conn.Exec(t.Context(), c.before).ReadAll(); err != nil {
					t.Fatal(err)
				}
			}
			s.raise(1, key, 2)
			_, err := conn.Exec(t.Context(), c.stale).ReadAll()
			if got := code(err); got != c.want {
				t.Errorf("got %q, want %q (%v)", got, c.want, err)
			}
			_, _ = conn.Exec(t.Context(), "COMMIT").ReadAll()
			if got := s.count("true"); got != 0 {
				t.Errorf("rows: got %d, want 0", got)
			}
		})
	}
}

// In the encodings whose bytes can look like a quote or a backslash a text with
// such a byte is refused; any other is guarded as ever.
func TestSession_UnsafeEncodings(t *testing.T) {
	s := newStack(t, 2)
	for _, encoding := range []string{"SJIS", "SHIFT_JIS_2004", "BIG5", "GBK", "GB18030", "UHC", "JOHAB"} {
		t.Run(encoding, func(t *testing.T) {
			s.exec("TRUNCATE t")
			s.holders.hold(encoding, 1)
			conn := s.session(0, encoding, 1).PgConn()
			for _, st := range []step{
				{"SET client_encoding = '" + encoding + "'", ""},
				{"INSERT INTO t VALUES (1, 'plain')", ""},
				{"SELECT '\x95\\'; INSERT INTO t VALUES (2, '\x95\\')", "LF007"},
				{"!", ""},
				{"SELECT '\x95\\'; INSERT INTO t VALUES (3, '\x95\\')", "LF007"},
				{"INSERT INTO t VALUES (4, 'plain')", "LF001"},
				{"SELECT count(*) FROM sneaky", "LF001"},
			} {
				if st.sql == "!" {
					s.raise(1, encoding, 2)
					continue
				}
				_, err := conn.Exec(t.Context(), st.sql).ReadAll()
				if got := code(err); got != st.want {
					t.Errorf("%q: got %q, want %q (%v)", st.sql, got, st.want, err)
				}
			}
			if got := s.count("true"); got != 1 {
				t.Errorf("rows: got %d, want 1", got)
			}
		})
	}
}

// set_config by a function-call message could set a tag that nobody sees: it is
// refused, also in a session that has none.
func TestSession_SetConfigByFunctionCall(t *testing.T) {
	s := newStack(t, 1)
	s.holders.hold("k", 1)
	call := &pgproto3.FunctionCall{Function: 2078, Arguments: [][]byte{[]byte("fence.key"), []byte("k"), []byte("f")}}
	for name, c := range map[string]struct {
		f     *frontend
		block bool
	}{
		"untagged":          {s.frontend(s.addrs[0]), false},
		"untagged, block":   {s.frontend(s.addrs[0]), true},
		"tagged":            {s.taggedFrontend(0, "k", 1), false},
		"tagged, and block": {s.taggedFrontend(0, "k", 1), true},
	} {
		status := "ZI"
		if c.block {
			c.f.send(query("BEGIN; SELECT 1"))
			c.f.ready(1)
			status = "ZE"
		}
		c.f.send(call)
		if got, want := c.f.ready(1), "LF007 "+status; got != want {
			t.Errorf("%s: got %s, want %s", name, got, want)
		}
		c.f.send(query("ROLLBACK; INSERT INTO t VALUES (1, 'a') ON CONFLICT DO NOTHING"))
		if got, want := c.f.ready(1), "ZI"; !strings.HasSuffix(got, want) || strings.Contains(got, "LF") {
			t.Errorf("%s, afterwards: got %s, want %s", name, got, want)
		}
		c.f.conn.Close()
	}
}

// A tag that is too long to be read is refused, and the session lives on.
func TestSession_TagTooLong(t *testing.T) {
	const long = "repeat('x', 1100000)"
	s := newStack(t, 1)
	f := s.frontend(s.addrs[0])
	for _, c := range []struct{ sql, want string }{
		{"RESET fence.key", "ZI"},
		{"BEGIN; SELECT set_config('fence.' || 'key', " + long + ", true) IS NULL", "ZT"},
		{"INSERT INTO t VALUES (1, 'a')", "LF009 ZE"},
		{"ROLLBACK", "ZI"},
		{"INSERT INTO t VALUES (1, 'a')", "ZI"},
	} {
		f.send(query(c.sql))
		if got := f.ready(1); !strings.HasSuffix(got, c.want) || !strings.Contains(c.want, "LF") && strings.Contains(got, "LF") {
			t.Errorf("%s: got %s, want %s", c.sql, got, c.want)
		}
	}
}
