package proxy_test

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgproto3"
)

// A conversation of single messages, in parts.
func parts(all ...any) (messages []pgproto3.FrontendMessage) {
	for _, part := range all {
		switch part := part.(type) {
		case string:
			messages = append(messages, execute(part)...)
		case pgproto3.FrontendMessage:
			messages = append(messages, part)
		}
	}
	return messages
}

func parse(name, sql string) pgproto3.FrontendMessage {
	return &pgproto3.Parse{Name: name, Query: sql}
}

func bind(portal, name string) pgproto3.FrontendMessage {
	return &pgproto3.Bind{DestinationPortal: portal, PreparedStatement: name}
}

func readies(messages []pgproto3.FrontendMessage) (n int) {
	for _, m := range messages {
		switch m.(type) {
		case *pgproto3.Query, *pgproto3.Sync:
			n++
		}
	}
	return n
}

// What a session has said before a higher claim through another proxy, and
// what it says after: nothing of it may be seen after the claim was answered.
// Each is a way round a check that a proxy could be led to take.
func TestSession_StaleByOddMessages(t *testing.T) {
	s := newStack(t, 2)
	s.exec(`CREATE FUNCTION reads() RETURNS int LANGUAGE sql VOLATILE AS 'SELECT 1';
		CREATE FUNCTION writes_row(v int) RETURNS bool LANGUAGE plpgsql VOLATILE AS $$ BEGIN INSERT INTO t VALUES (v, 'domain'); RETURN true; END $$;
		CREATE FUNCTION plans() RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT writes()';
		CREATE DOMAIN checked AS int CHECK (writes_row(VALUE));
		CREATE PROCEDURE thirds() LANGUAGE plpgsql AS $$ BEGIN COMMIT; INSERT INTO t VALUES (1, 'a'); COMMIT; END $$`)
	var domain uint32
	if err := s.admin.QueryRow(t.Context(), "SELECT 'checked'::regtype::oid").Scan(&domain); err != nil {
		t.Fatal(err)
	}
	const insert = "INSERT INTO t VALUES (1, 'a')"
	sync, run := &pgproto3.Sync{}, &pgproto3.Execute{}
	drop := func(name string) pgproto3.FrontendMessage { return &pgproto3.Close{ObjectType: 'S', Name: name} }
	long, cut := strings.Repeat("n", 9000), strings.Repeat("n", 63)
	for name, c := range map[string]struct {
		untagged bool // until it says so
		before   []pgproto3.FrontendMessage
		after    []pgproto3.FrontendMessage
	}{
		"a name that a failed segment would have changed": {
			before: parts(parse("x", insert), sync),
			after:  parts("SELECT 1/0", drop("x"), parse("x", "ROLLBACK"), sync, bind("", "x"), run, sync)},
		"a name longer than any buffer": {
			before: parts(parse(long, insert), parse("", "BEGIN"), sync),
			after:  parts(bind("", long), run, sync)},
		"two names that are one to the server": {
			before: parts(parse(cut+"1", "BEGIN"), drop(cut+"2"), parse(cut+"2", insert), sync),
			after:  parts(bind("", cut+"1"), run, sync)},
		"a parameter whose domain writes": {
			after: parts(&pgproto3.Parse{Query: "SELECT $1", ParameterOIDs: []uint32{domain}}, &pgproto3.Bind{Parameters: [][]byte{[]byte("7")}}, sync)},
		"a plan that writes": {
			after: parts(parse("", "SELECT plans()"), bind("", ""), sync)},
		"a cursor whose plan writes, beside a setting": {
			after: parts(query("SET application_name = 'a'; DECLARE c CURSOR FOR SELECT plans()"))},
		"a tag that is taken off after a view wrote": {
			after: parts("SELECT * FROM sneaky", "RESET fence.key", "RESET fence.token", sync)},
		"a transaction that turns read-only after a view wrote": {
			before: parts(query("BEGIN; SELECT * FROM sneaky"), query("SET TRANSACTION READ ONLY; SELECT reads()")),
			after:  parts(query("COMMIT"))},
		"a subtransaction that was read-only": {untagged: true,
			before: parts(query("BEGIN; SAVEPOINT a"), query("SET LOCAL fence.key = 'KEY'; SET LOCAL fence.token = 1"), query("SET TRANSACTION READ ONLY"), query("SELECT reads()"), query("RELEASE a")),
			after:  parts(query(insert), query("COMMIT"))},
		"a cursor that is held, from before the tag": {untagged: true,
			before: parts(query("BEGIN; DECLARE c CURSOR WITH HOLD FOR SELECT writes()"), query("SET LOCAL fence.key = 'KEY'; SET LOCAL fence.token = 1")),
			after:  parts(query("COMMIT"))},
		"a tag that a failed segment would have taken off": {
			after: parts("RESET fence.key", "RESET fence.token", "SELECT 1/0", sync, "ROLLBACK", "DO $$ BEGIN "+insert+"; END $$", sync)},
		"strings that mean something else since the last Sync": {
			after: parts("SET standard_conforming_strings = off", query(`SELECT '\'; UPDATE t SET id = 1; SELECT '; `+insert+` --'`), sync)},
		"CALL once more after it was refused": {
			after: parts(parse("p", "CALL thirds()"), bind("", "p"), run, sync, bind("", "p"), run, sync)},
	} {
		t.Run(name, func(t *testing.T) {
			s.t = t
			s.exec("TRUNCATE t")
			key := t.Name()
			s.holders.hold(key, 1)
			var f *frontend
			if c.untagged {
				f = s.frontend(s.addrs[0])
			} else {
				f = s.taggedFrontend(0, key, 1)
			}
			for _, m := range c.before {
				if q, ok := m.(*pgproto3.Query); ok {
					q.String = strings.ReplaceAll(q.String, "KEY", key)
				}
			}
			f.send(c.before...)
			f.ready(readies(c.before))
			s.raise(1, key, 2)
			rows := s.count("true")
			f.send(c.after...)
			t.Logf("answers: %s", f.ready(readies(c.after)))
			if got := s.count("true"); got != rows {
				t.Errorf("rows when the claim was answered: %d, then %d", rows, got)
			}
		})
	}
}

// A tag may come in the middle of a segment, by any protocol.
func TestSession_TagInOpenSegment(t *testing.T) {
	s := newStack(t, 1)
	s.holders.hold("k", 1)
	f := s.frontend(s.addrs[0])
	f.send(parts("SELECT 1", query("SET fence.key = 'k'; SET fence.token = 1"), &pgproto3.Sync{})...)
	if got, want := f.ready(2), "SELECT 1 SET SET ZI ZI"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// A request where a COPY waits for data ends the session, as in PostgreSQL.
func TestSession_QueryDuringCopy(t *testing.T) {
	s := newStack(t, 1)
	s.holders.hold("k", 1)
	f := s.taggedFrontend(0, "k", 1)
	f.send(query("COPY t FROM STDIN"))
	f.until('G')
	f.send(query("INSERT INTO t VALUES (1, 'a')"))
	if got, want := f.until('E'), "08P01"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// A COPY by a statement that the proxy isn't sure of: its first Sync is
// ignored by the server, and nothing hidden goes into it.
func TestSession_CopyByUnsureStatement(t *testing.T) {
	s := newStack(t, 1)
	s.holders.hold("k", 1)
	f := s.taggedFrontend(0, "k", 1)
	sync, run := &pgproto3.Sync{}, &pgproto3.Execute{}
	f.send(parts(parse("c", "COPY t FROM STDIN"), "SELECT 1/0", sync)...)
	f.ready(1)
	f.send(parse("c", "COPY t FROM STDIN"), sync, parse("c", "COPY t FROM STDIN"), sync)
	f.ready(2)
	f.send(parts(bind("", "c"), run, sync, &pgproto3.CopyData{Data: []byte("1\ta\n")}, &pgproto3.CopyDone{}, sync)...)
	if got, want := f.ready(1), "COPY 1 ZI"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// COMMIT behind a COPY whose first Sync was ignored: the server sends nothing
// of itself, and the proxy has to ask.
func TestSession_CommitBehindCopy(t *testing.T) {
	s := newStack(t, 1)
	s.holders.hold("k", 1)
	f := s.taggedFrontend(0, "k", 1)
	f.send(query("BEGIN"))
	f.ready(1)
	sync := &pgproto3.Sync{}
	f.send(parts("COPY t FROM STDIN", sync, &pgproto3.CopyData{Data: []byte("1\ta\n")}, &pgproto3.CopyDone{}, "COMMIT", sync)...)
	if got, want := f.ready(1), "COPY 1 COMMIT ZI"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// A higher token in a segment that has been checked under a lower one: the
// claim would wait for its own session, and end it.
func TestSession_RaisesOwnInsideSegment(t *testing.T) {
	s := newStack(t, 1)
	s.holders.hold("k", 1)
	f := s.taggedFrontend(0, "k", 1)
	s.holders.hold("k", 2)
	f.send(parts("INSERT INTO t VALUES (1, 'a')", &pgproto3.Flush{})...)
	f.until('C')
	f.send(parts("SET fence.token = 2", &pgproto3.Sync{})...)
	if got, want := f.ready(1), "LF009 ZI"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// PREPARE TRANSACTION is refused also where the tag comes or goes beside it.
func TestSession_PrepareTransactionAndTag(t *testing.T) {
	s := newStack(t, 1)
	s.holders.hold("k", 1)
	const tag, write, prepare = "SET fence.key = 'k'; SET fence.token = 1", "INSERT INTO t VALUES (1, 'a')", "PREPARE TRANSACTION 'p'"
	for name, sqls := range map[string][]string{
		"tag in the same text":    {tag + "; BEGIN; " + write + "; " + prepare},
		"tag taken off":           {tag, "BEGIN; " + write, "RESET fence.key; RESET fence.token", prepare},
		"tag of this transaction": {"BEGIN; SET LOCAL fence.key = 'k'; SET LOCAL fence.token = 1", write, "SET LOCAL fence.key = ''; SET LOCAL fence.token = ''", prepare},
	} {
		f := s.frontend(s.addrs[0])
		got := ""
		for _, sql := range sqls {
			f.send(query(sql))
			got = f.ready(1)
		}
		if !strings.HasPrefix(got, "LF007") {
			t.Errorf("%s: got %s, want LF007", name, got)
		}
		f.conn.Close()
	}
	f := s.taggedFrontend(0, "k", 1)
	f.send(query("BEGIN; SELECT 1/0"))
	f.ready(1)
	f.send(query("ROLLBACK; BEGIN; " + write + "; " + prepare))
	if got, want := f.ready(1), "25P02 ZE"; got != want {
		t.Errorf("out of a failed block: got %s, want %s", got, want)
	}
}

// A text that can't be parsed points to where, in the text that was sent.
func TestSession_SyntaxErrorPosition(t *testing.T) {
	s := newStack(t, 1)
	s.holders.hold("k", 1)
	c := s.session(0, "k", 1)
	for sql, want := range map[string]int32{"selec": 1, "INSERT INTO t VALUES (1, 'a'); selec": 32, "SELECT 1; selec": 11} {
		_, err := c.PgConn().Exec(t.Context(), sql).ReadAll()
		if e := pgError(err); e == nil || e.Position != want {
			t.Errorf("%s: got %+v, want position %d", sql, e, want)
		}
	}
}
