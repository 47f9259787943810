package queue_test

import (
	"encoding/binary"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/proxy/queue"
	"github.com/fenceproxy/fenceproxy/proxy/wire"
	"github.com/fenceproxy/fenceproxy/testharness/postgres"
)

// A message is one that a client sends, with the entry that goes with it; a
// Flush has none.
type message struct {
	bytes []byte
	kind  queue.Kind
	none  bool
}

func parse(name, sql string) message {
	return message{bytes: wire.AppendParse(nil, name, sql), kind: queue.Parse}
}

func bind(portal, name string) message {
	return message{bytes: wire.AppendBind(nil, portal, name), kind: queue.Bind}
}

func execute(portal string, rows uint32) message {
	return message{bytes: wire.Frame(nil, wire.Execute, []byte(portal+"\x00"), binary.BigEndian.AppendUint32(nil, rows)), kind: queue.Execute}
}

func describe(what byte, name string) message {
	kind := queue.DescribePortal
	if what == 'S' {
		kind = queue.DescribeStatement
	}
	return message{bytes: wire.Frame(nil, wire.Describe, []byte{what}, []byte(name+"\x00")), kind: kind}
}

func closes(what byte, name string) message {
	return message{bytes: wire.AppendClose(nil, what, name), kind: queue.Close}
}

func query(sql string) message {
	return message{bytes: wire.AppendQuery(nil, sql), kind: queue.Query}
}

// call is a FunctionCall of a function without arguments.
func call(oid uint32) message {
	return message{bytes: wire.Frame(nil, wire.FunctionCall, binary.BigEndian.AppendUint32(nil, oid), make([]byte, 6)), kind: queue.Function}
}

func data(text string) message {
	return message{bytes: wire.Frame(nil, wire.CopyData, []byte(text)), kind: queue.CopyData}
}

var (
	syncs = message{bytes: wire.AppendSync(nil), kind: queue.Sync}
	flush = message{bytes: wire.Frame(nil, wire.Flush), none: true}
	done  = message{bytes: wire.Frame(nil, wire.CopyDone), kind: queue.CopyEnd}
	fails = message{bytes: wire.Frame(nil, wire.CopyFail, []byte("no\x00")), kind: queue.CopyEnd}
)

// once is P B E of a text.
func once(sql string) []message { return []message{parse("", sql), bind("", ""), execute("", 0)} }

// A case is what a client sends at once and what PostgreSQL answers, without
// notices and the like.
type conversation struct {
	name string
	sent [][]message
	want string
}

func one(m ...message) []message { return m }

const (
	randomOID = 1598 // pg_catalog.random()
	divideSQL = "SELECT 1/n FROM zero"
	copyIn    = "COPY sink FROM STDIN"
)

var conversations = []conversation{
	{"B E S that fails, then P D H and S", [][]message{one(parse("a", divideSQL), bind("", "a"), execute("", 0), syncs, parse("b", "SELECT 1"), describe('S', "b"), flush, syncs)}, "12EZ1tTZ"},
	{"syntax error", [][]message{one(parse("", "select syntax error"), syncs)}, "EZ"},
	{"insert and an error in one segment", [][]message{once("INSERT INTO sink VALUES (10)"), once(divideSQL), one(syncs)}, "12C12EZ"},
	{"error, Query discarded, Sync", [][]message{once(divideSQL), one(query("RELEASE SAVEPOINT x"), syncs)}, "12EZ"},
	{"error, all else discarded", [][]message{once(divideSQL), one(parse("", "x"), describe('S', ""), closes('S', ""), call(randomOID), data("x"), fails, flush, syncs)}, "12EZ"},
	{"P D H, then B E S", [][]message{one(parse("", "SELECT 1"), describe('S', ""), flush, bind("", ""), execute("", 0), syncs)}, "1tT2DCZ"},
	{"portal lives on over Flush", [][]message{one(parse("", "SELECT * FROM five"), bind("p", ""), describe('P', "p"), flush, execute("p", 2), flush, execute("p", 2), flush, execute("p", 2), syncs)}, "12TDDsDDsDCZ"},
	{"P B E Q S", [][]message{once("SELECT 1"), one(query("SELECT 2"), syncs)}, "12DCTDCZZ"},
	{"Sync alone", [][]message{one(syncs, syncs, syncs)}, "ZZZ"},
	{"deferred constraint at Sync", [][]message{once("INSERT INTO child VALUES (1, 99)"), one(syncs)}, "12CEZ"},
	{"deferred constraint at the end of a Query", [][]message{one(query("INSERT INTO child VALUES (1, 99); SELECT 1"))}, "CTDEZ"},
	{"deferred constraint at COMMIT", [][]message{one(query("BEGIN; INSERT INTO child VALUES (1, 99)")), once("COMMIT"), one(syncs)}, "CCZ12EZ"},
	{"notices and settings in between", [][]message{once("DO $$ BEGIN RAISE NOTICE 'a'; END $$"), once("SET DateStyle = 'German'"), one(syncs), once("SET DateStyle = 'ISO'"), one(syncs)}, "12C12CZ12CZ"},

	{"Describe without parameters or rows", [][]message{one(parse("", "SET DateStyle = 'ISO'"), describe('S', ""), bind("", ""), describe('P', ""), execute("", 0), syncs)}, "1tn2nCZ"},
	{"empty statement", [][]message{once(""), one(syncs)}, "12IZ"},
	{"empty statement described", [][]message{one(parse("", ""), describe('S', ""), bind("", ""), describe('P', ""), execute("", 0), syncs)}, "1tn2nIZ"},
	{"empty Queries", [][]message{one(query(""), query(";"), query("-- c"), query(" ; ;"))}, "IZIZIZIZ"},
	{"empty statement among others", [][]message{one(query("SELECT 1;;SELECT 2"))}, "TDCTDCZ"},
	{"unknown statement", [][]message{one(bind("", "nobody"), execute("", 0), syncs)}, "EZ"},
	{"unknown portal", [][]message{one(execute("nobody", 0), syncs)}, "EZ"},
	{"second Bind of a portal", [][]message{one(parse("", "SELECT 1"), bind("p", ""), bind("p", ""), execute("p", 0), syncs)}, "12EZ"},
	{"Close of what doesn't exist", [][]message{one(closes('S', "nobody"), closes('P', "nobody"), syncs)}, "33Z"},
	{"Query drops the unnamed statement", [][]message{one(parse("", "SELECT 1"), query("SELECT 2"), bind("", ""), syncs)}, "1TDCZEZ"},
	{"rewritten to nothing", [][]message{one(query("INSERT INTO ruled VALUES (1); SELECT 1"))}, "CTDCZ"},
	{"rewritten to several", [][]message{one(query("INSERT INTO doubled VALUES (1); SELECT 1"))}, "CTDCZ"},
	{"rewritten to a query", [][]message{one(query("INSERT INTO asked VALUES (1); SELECT 1"))}, "TDCTDCZ"},
	{"statements that are executed", [][]message{one(query("PREPARE p AS SELECT 1; EXECUTE p; DEALLOCATE p"))}, "CTDCCZ"},
	{"cursor", [][]message{one(query("BEGIN; DECLARE c CURSOR FOR SELECT 1; FETCH c; CLOSE c; COMMIT"))}, "CCTDCCCZ"},
	{"EXPLAIN and SHOW", [][]message{one(query("EXPLAIN SELECT 1; SHOW DateStyle"))}, "TDCTDCZ"},
	{"CALL with a result", [][]message{one(query("CALL answers(1)"))}, "TDCZ"},
	{"COMMIT that rolls back", [][]message{one(query("BEGIN"), query(divideSQL), query("SELECT 1; COMMIT"), query("COMMIT"))}, "CZTEZEZCZ"},
	{"transactions in a Query", [][]message{one(query("BEGIN; SELECT 1; COMMIT; SELECT 2; ROLLBACK; BEGIN; COMMIT AND CHAIN; ROLLBACK"))}, "CTDCCTDCCCCCZ"},
	{"body of a function", [][]message{one(query("CREATE OR REPLACE FUNCTION atomic() RETURNS int BEGIN ATOMIC SELECT 1; SELECT 2; END; SELECT 1"))}, "CTDCZ"},

	{"function call", [][]message{one(call(randomOID), call(randomOID), query("SELECT 1"))}, "VZVZTDCZ"},
	{"function call that fails", [][]message{one(call(1), call(randomOID))}, "EZVZ"},
	{"function call in a failed block", [][]message{one(query("BEGIN"), query(divideSQL), call(randomOID), query("ROLLBACK"))}, "CZTEZEZCZ"},

	{"copy", [][]message{one(query(copyIn), data("20\n"), data("21\n"), done)}, "GCZ"},
	{"copy, the Sync ignored", [][]message{once(copyIn), one(syncs, data("22\n"), flush, data("23\n"), done, syncs)}, "12GCZ"},
	{"copy, Syncs ignored everywhere", [][]message{once(copyIn), one(syncs, syncs, data("24\n"), syncs, done, syncs)}, "12GCZ"},
	{"copy without a Sync", [][]message{once(copyIn), one(data("25\n"), done), once("SELECT 1"), one(syncs)}, "12GC12DCZ"},
	{"copy into a missing table", [][]message{one(query("COPY nobody FROM STDIN"), data("1\n"), done)}, "EZ"},
	{"copy into a missing table, optimistic", [][]message{one(parse("", "COPY nobody FROM STDIN"), bind("", ""), execute("", 0), syncs, data("1\n"), done, syncs)}, "12EZZ"},
	{"copy into a view", [][]message{once("COPY v FROM STDIN"), one(syncs, data("1\n"), done, syncs)}, "12GEZZ"},
	{"copy into a view, more to come", [][]message{once("COPY v FROM STDIN"), one(syncs, data("1\n"), done, syncs), once("SELECT 1"), one(syncs)}, "12GEZZ12DCZ"},
	{"copy into a view, a Query to come", [][]message{once("COPY v FROM STDIN"), one(syncs, data("1\n"), done, syncs, query("SELECT 1"))}, "12GEZZTDCZ"},
	{"copy whose trigger refuses it", [][]message{once("COPY guarded FROM STDIN"), one(syncs, data("1\n"), done, syncs, call(randomOID))}, "12GEZZVZ"},
	{"copy of bad data", [][]message{once(copyIn), one(syncs, data("bad\n"), data("26\n"), done, syncs)}, "12GEZ"},
	{"copy of bad data, more to come", [][]message{once(copyIn), one(syncs, data("bad\n"), done, syncs), once("SELECT 1"), one(syncs)}, "12GEZ12DCZ"},
	{"copy of bad data, a Query to come", [][]message{once(copyIn), one(syncs, data("bad\n"), done, syncs, query("SELECT 1"))}, "12GEZTDCZ"},
	{"copy of bad data, Syncs everywhere", [][]message{once(copyIn), one(syncs, data("bad\n"), syncs, data("1\n"), syncs, done, syncs)}, "12GEZZZ"},
	{"copy that fails at its end, Syncs everywhere", [][]message{once("COPY checked FROM STDIN"), one(syncs, data("1\n"), syncs, data("1\n"), syncs, done, syncs)}, "12GEZ"},
	{"copy that the client gives up", [][]message{once(copyIn), one(syncs, data("27\n"), fails, syncs)}, "12GEZ"},
	{"copy in a Query that the client gives up", [][]message{one(query(copyIn+"; SELECT 1"), fails)}, "GEZ"},
	{"copy in a Query into a view", [][]message{one(query("COPY v FROM STDIN"), data("1\n"), done, syncs)}, "GEZZ"},
	{"two copies in a Query", [][]message{one(query(copyIn+";"+copyIn+"; SELECT 1"), data("28\n"), done, data("29\n"), done)}, "GCGCTDCZ"},
	{"two copies in a Query, Syncs ignored", [][]message{one(query(copyIn+";"+copyIn), syncs, data("30\n"), done, data("31\n"), syncs, done, syncs)}, "GCGCZZ"},
	{"copy data without a copy", [][]message{one(data("x"), done, fails, query("SELECT 1"), data("x"), done), once("SELECT 1"), one(fails, syncs)}, "TDCZ12DCZ"},
	{"copy out", [][]message{one(query("COPY five TO STDOUT; SELECT 1"))}, "HdddddcCTDCZ"},
	{"copy out, extended", [][]message{once("COPY five TO STDOUT"), one(syncs)}, "12HdddddcCZ"},
	{"copy out that fails", [][]message{once("COPY (SELECT 1/(n-3) FROM five) TO STDOUT"), one(syncs)}, "12HddEZ"},
	{"rows of a writing statement", [][]message{one(query("INSERT INTO sink VALUES (40), (41) RETURNING id"))}, "TDDCZ"},
}

const schema = `
	CREATE TABLE t (id int PRIMARY KEY);
	CREATE TABLE sink (id int);
	CREATE TABLE zero AS SELECT 0 AS n;
	CREATE TABLE five AS SELECT n FROM generate_series(1, 5) AS n;
	CREATE TABLE child (id int, parent int REFERENCES t DEFERRABLE INITIALLY DEFERRED);
	CREATE VIEW v AS SELECT id FROM t;
	CREATE TABLE guarded (id int);
	CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'no'; END $$;
	CREATE TRIGGER refuse BEFORE INSERT ON guarded EXECUTE FUNCTION refuse();
	CREATE TABLE checked (id int);
	CREATE TRIGGER refuse AFTER INSERT ON checked EXECUTE FUNCTION refuse();
	CREATE TABLE ruled (id int);
	CREATE RULE nothing AS ON INSERT TO ruled DO INSTEAD NOTHING;
	CREATE TABLE doubled (id int);
	CREATE RULE more AS ON INSERT TO doubled DO ALSO INSERT INTO sink VALUES (new.id);
	CREATE TABLE asked (id int);
	CREATE RULE asks AS ON INSERT TO asked DO INSTEAD SELECT new.id;
	CREATE PROCEDURE answers(INOUT n int) LANGUAGE sql AS 'SELECT n + 1'`

// A line is a plain connection to PostgreSQL.
type line struct {
	t    *testing.T
	conn net.Conn
	r    *wire.Reader
}

func dial(t *testing.T, pg *postgres.Server) *line {
	t.Helper()
	conn, err := net.Dial("tcp", pg.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(10 * time.Second))
	body := "\x00\x03\x00\x00user\x00postgres\x00database\x00postgres\x00\x00"
	packet := append(binary.BigEndian.AppendUint32(nil, uint32(len(body)+4)), body...)
	if _, err := conn.Write(packet); err != nil {
		t.Fatal(err)
	}
	l := &line{t, conn, wire.NewReader(conn)}
	for l.next() != wire.ReadyForQuery {
	}
	return l
}

// next reads a message and returns its type.
func (l *line) next() byte {
	l.t.Helper()
	typ, _, err := l.r.Next()
	if err == nil {
		err = l.r.Skip()
	}
	if err != nil {
		l.t.Fatalf("read from PostgreSQL: %v", err)
	}
	return typ
}

func (l *line) send(m message) {
	if _, err := l.conn.Write(m.bytes); err != nil {
		l.t.Errorf("write to PostgreSQL: %v", err)
	}
}

func asynchronous(typ byte) bool { return strings.IndexByte("NSA", typ) >= 0 }

// TestQueue_PostgreSQL holds the queue against the real server: each
// conversation is answered as it says, and the queue takes every answer,
// whether all requests are announced at once or one by one while the answers
// come in.
func TestQueue_PostgreSQL(t *testing.T) {
	pg := postgres.New(t, postgres.Options{})
	setup := dial(t, pg)
	setup.send(query(schema))
	for typ := setup.next(); typ != wire.ReadyForQuery; typ = setup.next() {
		if typ == wire.ErrorResponse {
			t.Fatal("the schema is refused")
		}
	}
	for _, c := range conversations {
		t.Run(c.name, func(t *testing.T) {
			sent := slices.Concat(c.sent...)
			if got := atOnce(dial(t, pg), sent, len(c.want)); got != c.want {
				t.Errorf("at once: got %s, want %s", got, c.want)
			}
			if got := oneByOne(dial(t, pg), sent, len(c.want)); got != c.want {
				t.Errorf("one by one: got %s, want %s", got, c.want)
			}
		})
	}
}

// atOnce sends everything, then gives the queue n replies.
func atOnce(l *line, sent []message, n int) (got string) {
	var q queue.Queue
	for _, m := range sent {
		if !m.none {
			q.Push(queue.Entry{Kind: m.kind})
		}
		l.send(m)
	}
	for len(got) < n {
		got += take(l.t, &q, l.next())
	}
	return got + quiet(l, &q)
}

// oneByOne announces and sends while the replies come in.
func oneByOne(l *line, sent []message, n int) (got string) {
	var q queue.Queue
	var mu sync.Mutex
	var writer sync.WaitGroup
	writer.Add(1)
	go func() {
		defer writer.Done()
		for i, m := range sent {
			mu.Lock()
			if !m.none {
				q.Push(queue.Entry{Kind: m.kind})
			}
			mu.Unlock()
			l.send(m)
			if i%2 == 0 {
				l.send(flush)
			}
		}
	}()
	defer writer.Wait()
	for len(got) < n {
		typ := l.next()
		mu.Lock()
		got += take(l.t, &q, typ)
		mu.Unlock()
	}
	writer.Wait()
	return got + quiet(l, &q)
}

// take gives the queue a reply of the client's and returns its letter.
func take(t *testing.T, q *queue.Queue, typ byte) string {
	t.Helper()
	out, err := q.Reply(typ)
	if err != nil {
		t.Fatal(err)
	}
	if out.Verdict != queue.Forward {
		t.Errorf("%q: got verdict %v, want it forwarded", typ, out.Verdict)
	}
	if err := q.Audit(); err != nil {
		t.Error(err)
	}
	if asynchronous(typ) {
		return ""
	}
	return string(typ)
}

// quiet checks that nothing more is due or comes, with one more request. It
// returns what came before its answer.
func quiet(l *line, q *queue.Queue) (extra string) {
	l.t.Helper()
	settled(l.t, q)
	l.send(query("SHOW server_version"))
	q.Push(queue.Entry{Kind: queue.Query})
	for {
		got := take(l.t, q, l.next())
		if got == string(wire.RowDescription) {
			break
		}
		extra += got
	}
	for range 3 { // D C Z
		take(l.t, q, l.next())
	}
	settled(l.t, q)
	return extra
}
