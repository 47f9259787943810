package proxy

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/fencing"
	"github.com/fenceproxy/fenceproxy/proxy/wire"
	"github.com/fenceproxy/fenceproxy/sqlrewrite"
	"github.com/fenceproxy/fenceproxy/testharness/postgres"
)

// A follower is a session reduced to its mirror: it sends segments to a real
// PostgreSQL and does with the mirror what the two pumps do.
type follower struct {
	t      *testing.T
	conn   net.Conn
	reader *wire.Reader
	mirror mirror
	txn    txn
	status byte
	due    []told // segments whose replies haven't been read
	log    []string
	sure   int // comparisons made
}

// told is what the request side says of a segment.
type told struct {
	ends   ends
	tagged bool
}

func follow(t *testing.T, addr, options string) *follower {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	conn.SetDeadline(time.Now().Add(time.Minute))
	body := "\x00\x03\x00\x00user\x00postgres\x00options\x00" + options + "\x00\x00"
	if _, err := conn.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(body)+4)), body...)); err != nil {
		t.Fatal(err)
	}
	f := &follower{t: t, conn: conn, reader: wire.NewReader(conn)}
	f.ready()
	if options != "" {
		v := f.current()
		f.mirror.load(v, false)
		f.mirror.reset = v
	}
	return f
}

// ready reads to the next ReadyForQuery.
func (f *follower) ready() (row []string, failed bool) {
	f.t.Helper()
	for {
		typ, n, err := f.reader.Next()
		if err != nil {
			f.t.Fatalf("read from PostgreSQL: %v", err)
		}
		body, err := f.reader.Read(n)
		if err != nil {
			f.t.Fatalf("read from PostgreSQL: %v", err)
		}
		switch typ {
		case wire.DataRow:
			if row, err = wire.ReadRow(body); err != nil {
				f.t.Fatal(err)
			}
		case wire.ErrorResponse:
			failed = true
		case wire.ReadyForQuery:
			f.status = body[0]
			return row, failed
		}
	}
}

func (f *follower) send(bytes []byte) {
	f.t.Helper()
	if _, err := f.conn.Write(bytes); err != nil {
		f.t.Fatal(err)
	}
}

// current asks PostgreSQL for the settings.
func (f *follower) current() values {
	f.t.Helper()
	f.send(wire.AppendQuery(nil, readbackSQL))
	row, failed := f.ready()
	if failed || len(row) != 3 {
		f.t.Fatalf("the readback got %q", row)
	}
	return values{key: row[0], token: row[1], tokens: row[2]}
}

// drain reads all replies that are due, as the reply pump does.
func (f *follower) drain() {
	f.t.Helper()
	for _, seg := range f.due {
		_, failed := f.ready()
		f.mirror.ready(f.status, failed, seg.ends, seg.tagged)
	}
	f.due = nil
}

// settle is session.settle.
func (f *follower) settle() {
	f.t.Helper()
	f.txn = txn{block: blockUnknown, uncovered: true}
	if len(f.due) > 0 {
		return
	}
	f.txn.block = blockOf(f.status)
	if f.mirror.unsure && f.txn.block != blockFailed {
		v := f.current()
		f.mirror.ready(f.status, false, 0, false)
		f.mirror.load(v, f.status != wire.StatusIdle)
	}
}

// run sends statements as one segment, in the given protocol; piped, it leaves
// the replies due.
func (f *follower) run(texts []string, extended, piped bool) {
	f.t.Helper()
	f.log = append(f.log, fmt.Sprintf("%s (extended %v, piped %v)", strings.Join(texts, "; "), extended, piped))
	if !extended {
		f.drain()
	}
	f.settle()
	var seg told
	var bytes []byte
	for _, text := range texts {
		stmts, err := sqlrewrite.Split(nil, []byte(text), sqlrewrite.Options{})
		if err != nil || len(stmts) != 1 {
			f.t.Fatalf("%s: %d statements, %v", text, len(stmts), err)
		}
		st := stmts[0]
		if f.txn.block == blockUnknown && blockMatters(st.Class, st.Flags) {
			f.drain()
			f.txn.block = blockOf(f.status)
		}
		if settings := sqlrewrite.Settings([]byte(text), st, sqlrewrite.Options{}); len(settings) > 0 {
			f.mirror.apply(settings, len(f.due) > 0)
			seg.tagged = true
		}
		f.txn.step(st.Class, st.Flags)
		if extended {
			bytes = wire.AppendExecute(wire.AppendBind(wire.AppendParse(bytes, "", text), "", ""), "")
		}
	}
	seg.ends = f.txn.sync()
	if extended {
		bytes = wire.AppendSync(bytes)
	} else {
		bytes = wire.AppendQuery(nil, strings.Join(texts, ";"))
	}
	f.due = append(f.due, seg)
	f.send(bytes)
	if !piped {
		f.drain()
		f.compare()
	}
}

// compare is the promise: a mirror that isn't unsure says what current_setting
// says. In a failed block nothing can be asked.
func (f *follower) compare() {
	f.t.Helper()
	if f.mirror.unsure || f.status == wire.StatusFailed {
		return
	}
	f.sure++
	got := f.mirror.now
	got.outdated = false
	if want := f.current(); got != want {
		f.t.Errorf("got %+v, PostgreSQL says %+v, after\n\t%s", got, want, strings.Join(f.log, "\n\t"))
	}
}

// texts are what a random session does, the frequent ones more than once.
var texts = []string{
	"SET fence.key = 'a'", "SET fence.key TO b", "SET LOCAL fence.key = 'c'", "SET fence.key = ''",
	"SET fence.token = 1", "SET LOCAL fence.token = 2", "SET SESSION fence.token = '3'",
	`SET fence.tokens = '{"a": 1}'`, "SET LOCAL fence.tokens = ''",
	"RESET fence.key", "RESET fence.token", "RESET ALL", "SET fence.key TO DEFAULT", "SET LOCAL fence.token TO DEFAULT",
	"SELECT set_config('fence.key', 'd', false)", "SELECT set_config('fence.token', '4', true)", "SELECT set_config('fence.key', NULL, true)",
	"DO $$ BEGIN PERFORM set_config('fence.key', 'e', false); END $$",
	"BEGIN", "BEGIN", "BEGIN", "COMMIT", "COMMIT", "ROLLBACK", "ROLLBACK", "COMMIT AND CHAIN", "ROLLBACK AND CHAIN",
	"SAVEPOINT s", "SAVEPOINT s", "ROLLBACK TO s", "RELEASE s",
	"SELECT 1/n FROM zero", "SELECT 1", "INSERT INTO child VALUES (99)",
}

// TestMirror_PostgreSQL lets random sessions change, commit and undo settings
// in every way, and compares the mirror with PostgreSQL after each segment.
func TestMirror_PostgreSQL(t *testing.T) {
	pg := postgres.New(t, postgres.Options{})
	setup := follow(t, pg.Addr(), "")
	setup.send(wire.AppendQuery(nil, `CREATE TABLE zero AS SELECT 0 AS n; CREATE TABLE parent (id int PRIMARY KEY);
		CREATE TABLE child (id int REFERENCES parent DEFERRABLE INITIALLY DEFERRED)`))
	if _, failed := setup.ready(); failed {
		t.Fatal("the schema is refused")
	}
	setup.conn.Close()
	sure, all := 0, 0
	for seed := range uint64(100) {
		random := rand.New(rand.NewPCG(seed, 0))
		f := follow(t, pg.Addr(), []string{"", "-c fence.key=s -c fence.token=9"}[seed%2])
		for range 20 {
			texts := pick(random)
			extended := random.IntN(2) == 0
			f.run(texts, extended, extended && random.IntN(2) == 0)
			all++
		}
		f.drain()
		f.compare()
		f.conn.Close()
		sure += f.sure
		if t.Failed() {
			t.Fatalf("with seed %d", seed)
		}
	}
	if sure < all/4 {
		t.Errorf("the mirror was sure of itself after %d segments of %d: the test shows little", sure, all)
	}
}

func pick(random *rand.Rand) []string {
	if random.IntN(20) == 0 {
		return []string{"DISCARD ALL"}
	}
	var picked []string
	for range 1 + random.IntN(4) {
		picked = append(picked, texts[random.IntN(len(texts))])
	}
	return picked
}

// Sequences that a mirror gets wrong easily. Each ends in a comparison.
func TestMirror_Sequences(t *testing.T) {
	pg := postgres.New(t, postgres.Options{})
	for _, c := range []struct {
		name     string
		segments []string // statements split by "; "
	}{
		{"set in a transaction, then rolled back", []string{"BEGIN; SET fence.key = 'a'", "ROLLBACK"}},
		{"local, over a session value", []string{"SET fence.key = 'a'", "BEGIN; SET LOCAL fence.key = 'b'", "SELECT 1", "COMMIT"}},
		{"local, then for the session", []string{"BEGIN; SET LOCAL fence.key = 'a'; SET fence.key = 'b'", "COMMIT"}},
		{"for the session, then local", []string{"BEGIN; SET fence.key = 'a'; SET LOCAL fence.key = 'b'", "COMMIT"}},
		{"local, then reset all", []string{"BEGIN; SET LOCAL fence.key = 'a'; RESET ALL", "COMMIT"}},
		{"local outside a block", []string{"SET LOCAL fence.key = 'a'"}},
		{"undone by an error", []string{"SET fence.key = 'a'; SELECT 1/0"}},
		{"committed, then an error in the same text", []string{"BEGIN; SET fence.key = 'a'", "COMMIT; SELECT 1/0"}},
		{"rolled back, then an error in the same text", []string{"BEGIN; SET fence.key = 'a'", "ROLLBACK; SELECT 1/0"}},
		{"an error before the COMMIT in the same text", []string{"BEGIN; SET fence.key = 'a'", "SELECT 1/0; COMMIT", "ROLLBACK"}},
		{"COMMIT of a failed block", []string{"BEGIN; SET fence.key = 'a'", "SELECT 1/0", "COMMIT"}},
		{"committed, then another rolled back", []string{"BEGIN; SET fence.key = 'a'", "COMMIT; BEGIN; ROLLBACK"}},
		{"PREPARE TRANSACTION of a failed block", []string{"BEGIN; SET fence.key = 'a'", "SELECT 1/0", "PREPARE TRANSACTION 'x'"}},
		{"chained", []string{"BEGIN; SET fence.key = 'a'", "COMMIT AND CHAIN", "SET fence.key = 'b'", "ROLLBACK"}},
		{"BEGIN takes the text before it in", []string{"SET fence.key = 'a'; BEGIN", "ROLLBACK"}},
		{"back to a savepoint", []string{"BEGIN; SET fence.key = 'a'; SAVEPOINT s", "SET fence.key = 'b'", "ROLLBACK TO s", "COMMIT"}},
		{"back from a failure", []string{"BEGIN; SET fence.key = 'a'; SAVEPOINT s", "SELECT 1/0", "ROLLBACK TO s", "COMMIT"}},
	} {
		for _, extended := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/extended=%v", c.name, extended), func(t *testing.T) {
				f := follow(t, pg.Addr(), "")
				defer f.conn.Close()
				for _, segment := range c.segments {
					f.run(strings.Split(segment, "; "), extended, false)
				}
			})
		}
	}
}

// What a pipeline that fails in its middle leaves behind.
func TestMirror_Pipeline(t *testing.T) {
	pg := postgres.New(t, postgres.Options{})
	for _, segments := range [][]string{
		{"SET fence.key = 'a'", "RESET fence.key; SELECT 1/0"},
		{"SET fence.key = 'a'; SELECT 1/0", "SET fence.token = 1"},
		{"BEGIN; SET fence.key = 'a'", "SELECT 1/0", "ROLLBACK; SET fence.token = 1"},
	} {
		f := follow(t, pg.Addr(), "")
		for _, segment := range segments {
			f.run(strings.Split(segment, "; "), true, true)
		}
		f.drain()
		f.compare()
		f.conn.Close()
	}
}

// However a failed block ends, nothing of what it set is left, even where the
// request side didn't see its end coming.
func TestMirror_FailedBlock(t *testing.T) {
	var m mirror
	m.apply([]sqlrewrite.Setting{{Kind: sqlrewrite.Set, Name: fencing.SettingKey, Value: "a"}}, false)
	m.ready(wire.StatusBlock, false, 0, true)
	m.ready(wire.StatusFailed, true, 0, false)
	m.ready(wire.StatusIdle, false, 0, false)
	if m.now != (values{}) || m.unsure {
		t.Errorf("got %+v, unsure %v, want nothing, false", m.now, m.unsure)
	}
}

func TestMirror_Tag(t *testing.T) {
	set := func(name, value string) sqlrewrite.Setting {
		return sqlrewrite.Setting{Kind: sqlrewrite.Set, Name: name, Value: value}
	}
	reset := func(name string) sqlrewrite.Setting { return sqlrewrite.Setting{Kind: sqlrewrite.Reset, Name: name} }
	const key, token, tokens = fencing.SettingKey, fencing.SettingToken, fencing.SettingTokens
	for _, c := range []struct {
		name     string
		settings []sqlrewrite.Setting
		want     string // the tag, "incomplete" or "malformed"
	}{
		{"nothing", nil, ""},
		{"key and token", []sqlrewrite.Setting{set(key, "a"), set(token, "1")}, "a token 1"},
		{"token and key", []sqlrewrite.Setting{set(token, "1"), set(key, "a")}, "a token 1"},
		{"key alone", []sqlrewrite.Setting{set(key, "a")}, "incomplete"},
		{"token alone", []sqlrewrite.Setting{set(token, "1")}, "incomplete"},
		{"new key, old token", []sqlrewrite.Setting{set(key, "a"), set(token, "1"), set(key, "b")}, "incomplete"},
		{"new key, then a token", []sqlrewrite.Setting{set(key, "a"), set(token, "1"), set(key, "b"), set(token, "2")}, "b token 2"},
		{"key taken away", []sqlrewrite.Setting{set(key, "a"), set(token, "1"), reset(key)}, "incomplete"},
		{"key taken away, then a new one", []sqlrewrite.Setting{set(key, "a"), set(token, "1"), reset(key), set(key, "b")}, "incomplete"},
		{"key emptied, then a new one", []sqlrewrite.Setting{set(key, "a"), set(token, "1"), set(key, ""), set(key, "b"), set(token, "2")}, "b token 2"},
		{"both taken away", []sqlrewrite.Setting{set(key, "a"), set(token, "1"), reset(token), reset(key)}, ""},
		{"both taken away, token last", []sqlrewrite.Setting{set(key, "a"), set(token, "1"), reset(key), reset(token)}, ""},
		{"both taken away, then set anew", []sqlrewrite.Setting{set(key, "a"), set(token, "1"), reset(key), reset(token), set(token, "2"), set(key, "b")}, "b token 2"},
		{"several", []sqlrewrite.Setting{set(tokens, `{"b": 2, "a": 1}`)}, "a token 1, b token 2"},
		{"union", []sqlrewrite.Setting{set(tokens, `{"b": 2}`), set(key, "a"), set(token, "1")}, "a token 1, b token 2"},
		{"several and a key alone", []sqlrewrite.Setting{set(tokens, `{"b": 2}`), set(key, "a")}, "incomplete"},
		{"no number", []sqlrewrite.Setting{set(key, "a"), set(token, "x")}, "malformed"},
	} {
		var m mirror
		for i := range c.settings {
			copied := m // read in between, as a claim that is refused does
			copied.tag()
			m = copied
			m.apply(c.settings[i:i+1], false)
		}
		tag, incomplete, err := m.tag()
		got := tag.String()
		if incomplete {
			got = "incomplete"
		} else if err != nil {
			got = "malformed"
		}
		if got != c.want {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
}
