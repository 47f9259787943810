package proxy_test

import (
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgproto3"
)

func parseAs(name, sql string) pgproto3.FrontendMessage {
	return &pgproto3.Parse{Name: name, Query: sql}
}

// executeNamed is Bind and Execute of a prepared statement.
func executeNamed(name string) []pgproto3.FrontendMessage {
	return []pgproto3.FrontendMessage{&pgproto3.Bind{PreparedStatement: name}, &pgproto3.Execute{}}
}

func join(parts ...[]pgproto3.FrontendMessage) (all []pgproto3.FrontendMessage) {
	for _, p := range parts {
		all = append(all, p...)
	}
	return all
}

// replies is how many ReadyForQuery the messages cause.
func replies(messages []pgproto3.FrontendMessage) (n int) {
	for _, m := range messages {
		switch m.(type) {
		case *pgproto3.Sync, *pgproto3.Query:
			n++
		}
	}
	return n
}

func one(m ...pgproto3.FrontendMessage) []pgproto3.FrontendMessage { return m }

var syncs = one(&pgproto3.Sync{})

// renames are the ways in which a name comes to stand for another statement: in
// a session without a tag yet, and by code that nobody reads.
var renames = map[string]struct {
	sql    string
	tagged bool
}{
	"untagged": {"DEALLOCATE b; PREPARE b AS ", false},
	"code":     {"SELECT rename()", true},
}

// A prepared statement that code has put in the place of another one is checked
// as what it may be, a write, whatever the name stood for.
func TestSession_StaleUnderName(t *testing.T) {
	s := newStack(t, 2)
	const insert = "INSERT INTO t VALUES (1, 'a')"
	s.exec("CREATE FUNCTION rename() RETURNS void LANGUAGE plpgsql AS $$ BEGIN EXECUTE 'DEALLOCATE b'; EXECUTE $p$PREPARE b AS " + insert + "$p$; END $$")
	b := executeNamed("b")
	stale := map[string][]pgproto3.FrontendMessage{
		"alone":              join(b, syncs),
		"and a read":         join(b, execute("SELECT 1"), syncs),
		"and a commit":       join(b, execute("COMMIT"), syncs),
		"and a block":        join(b, execute("BEGIN"), execute("COMMIT"), syncs),
		"and a query":        join(b, one(query("SELECT 1")), syncs),
		"in a block":         join(one(query("BEGIN")), b, syncs, one(query("COMMIT"))),
		"before a new tag":   join(b, execute("SET fence.key = 'other'; "), execute("SET fence.token = 1"), syncs),
		"before no tag":      join(one(query("BEGIN")), b, execute("SELECT set_config('fence.key', '', true), set_config('fence.token', '', true)"), syncs, one(query("COMMIT"))),
		"ended by discard":   join(b, execute("DISCARD ALL"), syncs),
		"behind a savepoint": join(one(query("BEGIN; SAVEPOINT x")), b, syncs, one(query("RELEASE x; COMMIT"))),
	}
	n := 0
	for _, was := range []string{"", "BEGIN", "SET work_mem = '1MB'", "SHOW work_mem", "SELECT 1", "COMMIT", "ROLLBACK", "COMMIT AND CHAIN", "DEALLOCATE nope",
		"DISCARD PLANS", "DISCARD ALL", "SAVEPOINT s", "RELEASE s", "ROLLBACK TO s", "CALL nope()", "SELECT set_config('fence.key', 'k', false)"} {
		for how, rename := range renames {
			for name, messages := range stale {
				t.Run(was+"/"+how+"/"+name, func(t *testing.T) {
					s.t = t
					s.exec("TRUNCATE t")
					n++
					key := "name" + strconv.Itoa(n)
					s.holders.hold(key, 1)
					s.holders.hold("other", 1)
					f := s.frontend(s.addrs[0])
					defer f.conn.Close()
					tag := one(query("SET fence.key = '" + key + "'; SET fence.token = 1"))
					sql := one(query(strings.Replace(rename.sql, "AS ", "AS "+insert, 1)))
					before := join(one(parseAs("b", was)), syncs, sql, tag)
					if rename.tagged {
						before = join(tag, one(parseAs("b", was)), syncs, sql)
					}
					f.send(before...)
					f.ready(3)
					s.raise(1, key, 2)
					f.send(messages...)
					f.send(query("COMMIT"))
					got := f.rest()
					if rows := s.count("true"); rows != 0 {
						t.Errorf("rows: got %d, want 0 (%s)", rows, got)
					}
				})
			}
		}
	}
}

// Whoever holds the lock gets PostgreSQL's answers of what was prepared, and
// hears of a BEGIN that is none.
func TestSession_NamedTransactions(t *testing.T) {
	s := newStack(t, 1)
	s.exec("CREATE FUNCTION rename() RETURNS void LANGUAGE plpgsql AS $$ BEGIN EXECUTE 'DEALLOCATE b'; EXECUTE 'PREPARE b AS SELECT 1'; END $$")
	s.holders.hold("k", 1)
	f := s.taggedFrontend(0, "k", 1)
	f.send(parseAs("begin", "BEGIN"), parseAs("commit", "COMMIT"), parseAs("set", "SET TRANSACTION ISOLATION LEVEL SERIALIZABLE"), parseAs("show", "SHOW transaction_isolation"),
		parseAs("none", ""), parseAs("write", "INSERT INTO t VALUES (1, 'a') ON CONFLICT DO NOTHING"), parseAs("b", "BEGIN"), parseAs("discard", "DISCARD PLANS"), &pgproto3.Sync{})
	f.ready(1)
	for _, c := range []struct {
		name     string
		messages []pgproto3.FrontendMessage
		want     string
	}{
		{"segments", join(executeNamed("begin"), syncs, executeNamed("set"), syncs, executeNamed("show"), syncs, executeNamed("write"), syncs, executeNamed("commit"), syncs), "BEGIN ZT SET ZT SHOW ZT INSERT 0 1 ZT COMMIT ZI"},
		{"one segment", join(executeNamed("begin"), executeNamed("set"), executeNamed("write"), executeNamed("commit"), syncs), "BEGIN SET INSERT 0 0 COMMIT ZI"},
		{"twice", join(executeNamed("begin"), executeNamed("begin"), syncs, executeNamed("commit"), executeNamed("commit"), syncs), "BEGIN BEGIN ZT COMMIT COMMIT ZI"},
		{"failed", join(executeNamed("begin"), execute("SELECT 1/0"), syncs, executeNamed("begin"), syncs, executeNamed("commit"), syncs), "BEGIN 22012 ZE 25P02 ZE ROLLBACK ZI"},
		{"outside", join(executeNamed("show"), executeNamed("none"), executeNamed("discard"), syncs), "SHOW DISCARD PLANS ZI"},
		{"given away", join(one(query("SELECT rename()")), executeNamed("b"), syncs), "SELECT 1 ZI SELECT 1 LF007 ZI"},
	} {
		f.send(c.messages...)
		if got := f.ready(replies(c.messages)); got != c.want {
			t.Errorf("%s: got %s, want %s", c.name, got, c.want)
		}
	}
}
