package proxy_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/fenceproxy/fenceproxy/fencing"
	"github.com/fenceproxy/fenceproxy/proxy"
	"github.com/fenceproxy/fenceproxy/testharness/samples"
)

// What explain says of statements that are often misjudged.
func TestExplain(t *testing.T) {
	const early, late, none, refused = proxy.PlaceEarly, proxy.PlaceLate, proxy.PlaceNone, proxy.PlaceRefused
	type want struct {
		check proxy.Placement
		words string // that decided
		where string // in Where
	}
	for _, c := range []struct {
		text  string
		wants []want
	}{
		{"SELECT nextval('s')", []want{{early, "nextval", "before the statement"}}},
		{"SELECT pg_advisory_lock(1)", []want{{early, "pg_advisory_lock", ""}}},
		{"SELECT * FROM writing_function()", []want{{early, "writing_function", ""}}},
		{"SELECT 1 INTO t", []want{{early, "INTO", ""}}},
		{"SELECT * FROM t FOR UPDATE", []want{{early, "UPDATE", ""}}},
		{"SELECT * FROM t FOR NO KEY UPDATE SKIP LOCKED", []want{{early, "FOR NO", ""}}},
		{"WITH d AS (DELETE FROM t RETURNING *) SELECT * FROM d", []want{{early, "DELETE", ""}}},
		{"EXPLAIN ANALYZE INSERT INTO t VALUES (1)", []want{{early, "INSERT", ""}}},
		{"EXPLAIN (ANALYZE off) INSERT INTO t VALUES (1)", []want{{early, "INSERT", ""}}},
		{"EXPLAIN INSERT INTO t VALUES (1)", []want{{late, "EXPLAIN", "after the statement"}}},
		{"/* c */ INSERT INTO t VALUES (1)", []want{{early, "INSERT", ""}}},
		{"-- c\nDELETE FROM t", []want{{early, "DELETE", ""}}},
		{"SELECT 1; DELETE FROM t", []want{{late, "SELECT", "after the statement"}, {early, "DELETE", ""}}},
		{"PREPARE p AS DELETE FROM t; EXECUTE p", []want{{late, "PREPARE", ""}, {early, "EXECUTE", ""}}},
		{"DO $$ BEGIN END $$", []want{{early, "DO", ""}}},
		{"CALL p()", []want{{early, "CALL", ""}}},
		{"COPY t FROM STDIN", []want{{early, "FROM", ""}}},
		{"COPY (DELETE FROM t RETURNING *) TO STDOUT", []want{{early, "DELETE", ""}}},
		{"COPY t TO PROGRAM 'cat'", []want{{early, "PROGRAM", ""}}},
		{"COPY t TO STDOUT", []want{{late, "COPY", ""}}},
		{"SELECT pg_catalog.set_config('fence.key', 'a', false)", []want{{none, "set_config", "claimed before"}}},
		{"SELECT lo_create(0)", []want{{early, "lo_create", ""}}},
		{"SELECT query_to_xml('delete …', true, true, '')", []want{{early, "query_to_xml", ""}}},
		{"BEGIN; DECLARE c CURSOR FOR SELECT f(); FETCH c; COMMIT", []want{
			{none, "BEGIN", "first statement that may write"}, {early, "f", ""}, {none, "FETCH", "before statement 2 covers it"}, {none, "COMMIT", "before statement 2 covers it"}}},
		{"BEGIN; SELECT 1; COMMIT", []want{{none, "BEGIN", ""}, {late, "SELECT", "before the COMMIT, statement 3,"}, {late, "COMMIT", "before the statement"}}},
		{"BEGIN; SELECT 1; ROLLBACK", []want{{none, "BEGIN", ""}, {none, "SELECT", "rolled back"}, {none, "ROLLBACK", "nothing is committed"}}},
		{"BEGIN; UPDATE t SET i = 1; ROLLBACK TO a; UPDATE t SET i = 1", []want{
			{none, "BEGIN", ""}, {early, "UPDATE", ""}, {none, "ROLLBACK", "checked again"}, {early, "UPDATE", ""}}},
		{"VACUUM", []want{{refused, "VACUUM", "can't run in a transaction"}}},
		{"BEGIN; PREPARE TRANSACTION 'x'; SELECT 1", []want{{none, "BEGIN", ""}, {refused, "PREPARE", "PREPARE TRANSACTION in a tagged session"}, {late, "SELECT", "after the statement"}}},
		{"LOCK TABLE t", []want{{none, "LOCK", "refuses it outside a transaction block"}}},
		{"SHOW all; DISCARD ALL", []want{{none, "SHOW", "settings of the session only"}, {none, "DISCARD", "the tag is claimed"}}},
	} {
		t.Run(c.text, func(t *testing.T) {
			all, err := proxy.Explain([]byte(c.text), proxy.ExplainOptions{})
			if err != nil || len(all) != len(c.wants) {
				t.Fatalf("got %v, %v, want %d statements", all, err, len(c.wants))
			}
			for i, x := range all {
				w, words := c.wants[i], x.Statement.Why.In([]byte(c.text))
				if x.Check != w.check || words != w.words || !strings.Contains(x.Where, w.where) {
					t.Errorf("statement %d: got %v, %q, %q, want %v, %q, %q", i+1, x.Check, words, x.Where, w.check, w.words, w.where)
				}
			}
		})
	}
}

// One message is checked, and refused, as a whole.
func TestExplain_Together(t *testing.T) {
	together := proxy.ExplainOptions{Together: true}
	for _, c := range []struct{ text, checks string }{
		{"SELECT 1; SELECT 2", "late late"},
		{"SELECT 1; DELETE FROM t", "late early"},
		{"UPDATE t SET i = 1; COMMIT; UPDATE t SET i = 2", "early none early"},
		{"SELECT 1; VACUUM", "none refused"},
		{"LOCK TABLE t; SELECT 1", "late late"},
	} {
		all, err := proxy.Explain([]byte(c.text), together)
		var checks []string
		for _, x := range all {
			checks = append(checks, x.Check.String())
		}
		if got := strings.Join(checks, " "); err != nil || got != c.checks {
			t.Errorf("%s: got %s, %v, want %s", c.text, got, err, c.checks)
		}
	}
}

func TestExplain_Refused(t *testing.T) {
	for name, c := range map[string]struct {
		text  string
		how   proxy.ExplainOptions
		proxy bool // the proxy refuses it, and not PostgreSQL
		want  string
	}{
		"unterminated": {"SELECT 'x", proxy.ExplainOptions{}, false, "PostgreSQL refuses the whole text: unterminated"},
		"zero byte":    {"SELECT 1\x00; DELETE FROM t", proxy.ExplainOptions{}, false, "08P01"},
		"encoding":     {"SELECT '\x83\x5c'", proxy.ExplainOptions{ClientEncoding: "sjis"}, true, "not_fenceable: the text can't be split with certainty: byte"},
		"long":         {strings.Repeat(" ", 16<<20) + "SELECT 1", proxy.ExplainOptions{}, true, "over the limit"},
	} {
		all, err := proxy.Explain([]byte(c.text), c.how)
		var refusal *fencing.Error
		if all != nil || err == nil || !strings.Contains(err.Error(), c.want) || errors.As(err, &refusal) != c.proxy {
			t.Errorf("%s: got %v, %v, want %q, by the proxy %t", name, all, err, c.want, c.proxy)
		}
	}
	all, err := proxy.Explain([]byte(`SELECT '\'; DELETE FROM t --'`), proxy.ExplainOptions{BackslashQuotes: true})
	if err != nil || len(all) != 1 || all[0].Check != proxy.PlaceEarly {
		t.Errorf("standard_conforming_strings off: got %v, %v, want one statement, checked early", all, err)
	}
}

// A session does what explain says: the checks that it sends are counted.
func TestExplain_AsSessions(t *testing.T) {
	s := newStack(t, 0)
	registry := prometheus.NewRegistry()
	s.addProxy(s.pg.Addr(), func(server *proxy.Server) { server.Metrics = proxy.NewMetrics(registry) })
	s.exec("CREATE SEQUENCE s; CREATE PROCEDURE p() LANGUAGE plpgsql AS 'BEGIN NULL; END'")
	s.holders.hold("k", 1)
	for _, text := range []string{
		"SELECT 1", "SELECT nextval('s')", "SELECT * FROM sneaky", "TABLE t", "EXPLAIN SELECT 1", "EXPLAIN ANALYZE SELECT writes()",
		"INSERT INTO t VALUES (1)", "SHOW all", "SET work_mem = '1MB'", "CALL p()", "DO ''", "VACUUM", "PREPARE q AS DELETE FROM t; EXECUTE q",
		"LOCK TABLE t", "DECLARE c CURSOR FOR SELECT 1", "BEGIN; SELECT 1; COMMIT", "BEGIN; SELECT 1; ROLLBACK", "BEGIN; COMMIT",
		"BEGIN; LOCK TABLE t; TABLE t; UPDATE t SET v = ''; COMMIT AND CHAIN; SELECT 1; COMMIT",
		"BEGIN; SAVEPOINT a; UPDATE t SET v = ''; ROLLBACK TO a; UPDATE t SET v = ''; RELEASE a; SELECT 1; COMMIT",
		"BEGIN; DECLARE c CURSOR WITH HOLD FOR SELECT writes(); COMMIT; CLOSE c", "BEGIN; SELECT 1; SET LOCAL fence.tokens = '{}'; SELECT 1; COMMIT",
		"DEALLOCATE ALL; SELECT 1", "CREATE TABLE u (i int); DROP TABLE u", "NOTIFY n", "CHECKPOINT",
	} {
		for _, together := range []bool{false, true} {
			conn := s.session(0, "k", 1)
			all, err := proxy.Explain([]byte(text), proxy.ExplainOptions{Together: together})
			if err != nil {
				t.Fatal(err)
			}
			before := checksSent(t, registry)
			sendExplained(t, conn, text, all, together)
			after := checksSent(t, registry)
			early, late := explainedChecks(all)
			if got, want := [2]int{after[0] - before[0], after[1] - before[1]}, [2]int{early, late}; got != want {
				t.Errorf("%s (together: %t): the session sent %v checks early and late, want %v as explained", text, together, got, want)
			}
			conn.Close(t.Context())
		}
	}
}

// sendExplained sends a text in one message or in one for each statement.
// Whether PostgreSQL likes it doesn't matter, but for what follows in a block.
func sendExplained(t *testing.T, conn *pgx.Conn, text string, all []proxy.Explanation, together bool) {
	t.Helper()
	if together {
		_ = simple.run(t.Context(), conn, text)
		return
	}
	for _, x := range all {
		err := simple.run(t.Context(), conn, text[x.Statement.Start:x.Statement.End])
		if refused := code(err) == string(fencing.CodeNotFenceable); refused != (x.Check == proxy.PlaceRefused) {
			t.Errorf("%s: got %v, want a refusal: %v", text, err, x.Check)
		}
		if conn.PgConn().TxStatus() == 'E' {
			t.Fatalf("%s: got %v, want a block that goes on", text, err)
		}
	}
}

// explainedChecks counts the checks that explanations tell of. Statements that
// wait for the same late check name it in the same words.
func explainedChecks(all []proxy.Explanation) (early, late int) {
	lates := map[string]bool{}
	for i, x := range all {
		switch {
		case x.Check == proxy.PlaceEarly:
			early++
		case x.Check == proxy.PlaceLate && strings.HasPrefix(x.Where, "after the last"):
			lates[x.Where] = true
		case x.Check == proxy.PlaceLate && (strings.HasPrefix(x.Where, "before the statement") || strings.HasPrefix(x.Where, "before the tag changes, ") ||
			strings.HasPrefix(x.Where, "after the statement")):
			lates[x.Where+string(rune(i))] = true
		}
	}
	return early, len(lates)
}

func checksSent(t *testing.T, registry *prometheus.Registry) [2]int {
	t.Helper()
	all := samples.Gather(t, registry)
	return [2]int{int(all["checks_total early"]), int(all["checks_total late"])}
}

// A session without a tag is told what its writes would hear where that is
// refused.
func TestExplain_Untagged(t *testing.T) {
	text := []byte("SELECT reads(); INSERT INTO t VALUES (1); VACUUM; PREPARE TRANSACTION 'x'")
	all, err := proxy.Explain(text, proxy.ExplainOptions{Untagged: true})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []proxy.Placement{proxy.PlaceLate, proxy.PlaceEarly, proxy.PlaceRefused, proxy.PlaceEarly} {
		if got := all[i].Check; got != want {
			t.Errorf("statement %d: got %v, want %v", i+1, got, want)
		}
	}
	if hint := all[2].Refusal.Hint; !strings.Contains(hint, "policy") {
		t.Errorf("got hint %q, want one that helps where all must be tagged", hint)
	}
}
