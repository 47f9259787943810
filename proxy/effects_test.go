package proxy_test

import (
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5/pgproto3"
)

// What a stale session does beside writing rows of its own text: whatever does
// the writing, and whenever, nothing of it is left.
func TestSession_StaleEffects(t *testing.T) {
	s := newStack(t, 2)
	s.exec(`CREATE ROLE other; GRANT ALL ON t TO other; GRANT USAGE ON SCHEMA fence TO other;
		CREATE TABLE later (id int, v text);
		CREATE FUNCTION later() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO t VALUES (NEW.id, 'later'); RETURN NULL; END $$;
		CREATE CONSTRAINT TRIGGER later AFTER INSERT ON later DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION later();
		CREATE FUNCTION into_later() RETURNS int LANGUAGE sql AS 'INSERT INTO later VALUES (1) RETURNING 1';
		CREATE VIEW deferred AS SELECT into_later();
		CREATE FUNCTION definer() RETURNS int LANGUAGE sql SECURITY DEFINER SET search_path = public AS 'INSERT INTO t VALUES (1, ''definer'') RETURNING 1';
		CREATE FUNCTION holds() RETURNS int LANGUAGE plpgsql AS $$ BEGIN EXECUTE 'DECLARE h CURSOR WITH HOLD FOR SELECT * FROM sneaky'; RETURN 1; END $$;
		CREATE FUNCTION volatile() RETURNS int LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN RETURN writes(); END $$;
		CREATE TABLE generated (id int, v int GENERATED ALWAYS AS (id + volatile()) STORED);
		CREATE TABLE plain (id int, v text);
		CREATE FUNCTION copies() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO t VALUES (NEW.id, 'copied'); RETURN NEW; END $$;
		CREATE TRIGGER copies BEFORE INSERT ON plain FOR EACH ROW EXECUTE FUNCTION copies();
		CREATE VIEW planned AS SELECT 1 AS id; CREATE TABLE locked AS TABLE planned;
		SELECT lo_create(7); TRUNCATE t`)
	for i, c := range []struct {
		name          string
		before, stale []pgproto3.FrontendMessage
		meanwhile     string // what others do
	}{
		{"deferred trigger", nil, one(query("BEGIN"), query("INSERT INTO later VALUES (1)"), query("COMMIT")), ""},
		{"deferred trigger behind a view", nil, one(query("BEGIN; SELECT * FROM deferred"), query("COMMIT")), ""},
		{"deferred trigger behind a view, pipelined", nil, join(execute("SELECT * FROM deferred"), syncs), ""},
		{"deferred trigger made immediate", nil, one(query("BEGIN; SELECT * FROM deferred; SET CONSTRAINTS ALL IMMEDIATE"), query("COMMIT")), ""},
		{"cursor with hold of a function", nil, one(query("SELECT holds()")), ""},
		{"security definer", nil, one(query("SELECT definer()")), ""},
		{"another role", one(query("SET ROLE other")), one(query("INSERT INTO t VALUES (1, 'role')")), ""},
		{"another role's definer", one(query("SET ROLE other")), one(query("SELECT definer()")), ""},
		{"session authorization", one(query("SET SESSION AUTHORIZATION other")), one(query("INSERT INTO t VALUES (1, 'role')")), ""},
		{"generated column", nil, one(query("INSERT INTO generated VALUES (1)")), ""},
		{"COPY with a trigger", nil, one(query("COPY plain FROM STDIN"), &pgproto3.CopyData{Data: []byte("1\ta\n")}, &pgproto3.CopyDone{}), ""},
		{"COPY with a trigger, pipelined", nil, join(execute("COPY plain FROM STDIN"), one(&pgproto3.CopyData{Data: []byte("1\ta\n")}, &pgproto3.CopyDone{}, &pgproto3.Sync{})), ""},
		{"a plan that changes", join(one(parseAs("x", "SELECT * FROM planned")), syncs, one(query("SELECT 1"))), join(executeNamed("x"), syncs), "CREATE OR REPLACE VIEW planned AS SELECT x AS id FROM sneaky"},
		{"large object", nil, one(query("SELECT lo_put(7, 0, 'x')")), ""},
		{"large object, descriptors", nil, one(query("BEGIN; SELECT lowrite(lo_open(7, 131072), 'x')"), query("COMMIT")), ""},
		{"large object, by function call", nil, one(query("BEGIN"), &pgproto3.FunctionCall{Function: 957, Arguments: [][]byte{{0, 0, 0, 0}, []byte("x")}}, query("COMMIT")), ""},
		{"message in the log", nil, one(query("SELECT pg_logical_emit_message(true, 'a', 'x')")), ""},
		{"rows locked", nil, one(query("SELECT * FROM locked FOR UPDATE")), ""},
		{"table made to be dropped", nil, one(query("CREATE TEMP TABLE x ON COMMIT DROP AS SELECT * FROM sneaky")), ""},
		{"temporary table", nil, one(query("CREATE TEMP TABLE x AS SELECT * FROM sneaky")), ""},
		{"query in XML", nil, one(query("SELECT query_to_xml('SELECT * FROM sneaky', true, false, '')")), ""},
		{"sampled", nil, one(query("SELECT * FROM locked TABLESAMPLE BERNOULLI (writes())")), ""},
		{"limited", nil, one(query("SELECT 1 LIMIT (SELECT x FROM sneaky)")), ""},
		{"counted by COPY", nil, one(query("COPY (TABLE sneaky) TO STDOUT")), ""},
		{"refreshed", nil, one(query("CREATE MATERIALIZED VIEW m AS SELECT * FROM sneaky")), ""},
		{"analyzed", nil, one(query("ANALYZE locked")), ""},
		{"commented", nil, one(query("COMMENT ON TABLE t IS 'stale'")), ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			s.t = t
			key := fmt.Sprintf("effect%d", i)
			s.holders.hold(key, 1)
			f := s.taggedFrontend(0, key, 1)
			defer f.conn.Close()
			if _, err := f.play(c.before); err != nil {
				t.Fatal(err)
			}
			s.exec(c.meanwhile)
			s.raise(1, key, 2)
			got, _ := f.play(append(c.stale, query("COMMIT")))
			left := 0
			if err := s.admin.QueryRow(t.Context(), `SELECT (SELECT count(*) FROM t) + (SELECT count(*) FROM later) + (SELECT count(*) FROM plain) + (SELECT count(*) FROM pg_largeobject)
				+ (SELECT count(*) FROM pg_class WHERE relname IN ('x', 'm')) + (SELECT count(*) FROM pg_description WHERE description = 'stale')`).Scan(&left); err != nil {
				t.Fatal(err)
			}
			if left != 0 {
				t.Errorf("left: got %d, want 0 (%s)", left, got)
			}
		})
	}
}
