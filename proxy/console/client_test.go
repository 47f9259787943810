package console_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fenceproxy/fenceproxy/fencing"
	"github.com/fenceproxy/fenceproxy/proxy/console"
	"github.com/fenceproxy/fenceproxy/proxy/live"
	"github.com/fenceproxy/fenceproxy/proxy/wire"
)

// A world is all that a console looks at, and what was done to it.
type world struct {
	sessions []live.Session
	marks    map[string][]fencing.ListedMark // by database
	failing  map[string]error
	locks    console.Locks
	killed   []uint64
}

func (w *world) LiveSessions() []live.Session { return w.sessions }
func (w *world) Kill(_ context.Context, n uint64, _ string) bool {
	w.killed = append(w.killed, n)
	return true
}
func (w *world) Databases() []string  { return []string{"a", "b"} }
func (w *world) GrantListing() string { return "GRANT it" }
func (w *world) ListMarks(_ context.Context, database string, what fencing.Listing) (all []fencing.ListedMark, more bool, err error) {
	for _, m := range w.marks[database] {
		if m.Key > what.After && strings.HasPrefix(m.Key, what.Prefix) {
			all = append(all, m)
		}
	}
	if len(all) > what.Most {
		return all[:what.Most], true, w.failing[database]
	}
	return all, false, w.failing[database]
}
func (w *world) Settings() []live.Setting                      { return nil }
func (w *world) Stats() ([]live.Stat, error)                   { return nil, nil }
func (w *world) Reload(context.Context) (live.Reloaded, error) { return live.Reloaded{}, nil }
func (w *world) may(context.Context) (console.Access, error)   { return console.Administer, nil }
func (w *world) console() *console.Console {
	return &console.Console{Server: w, Marks: w, Locks: w.locks, Program: w, Journal: live.NewJournal(), Version: "v"}
}

// A line is a client of a console without a network.
type line struct {
	t      testing.TB
	out    bytes.Buffer
	writer *wire.Writer
	client *console.Client
	from   int // the first column of rows that answered returns
}

func newLine(t testing.TB, w *world) *line {
	l := &line{t: t}
	l.writer = wire.NewWriter(&l.out)
	l.client = w.console().NewClient(l.writer, console.Peer{Role: "dba", Access: console.Administer, Again: w.may})
	return l
}

func (l *line) take(kind byte, body string) *line {
	l.t.Helper()
	if err := l.client.Take(l.t.Context(), kind, []byte(body)); err != nil {
		l.t.Fatalf("%c: %v", kind, err)
	}
	return l
}

// answered returns the letters of what came, with the tag, the code, the status or
// the first value behind each that has one.
func (l *line) answered() string {
	l.t.Helper()
	if err := l.writer.Flush(); err != nil {
		l.t.Fatal(err)
	}
	r := wire.NewServerReader(&l.out)
	var said []string
	for {
		kind, n, err := r.Next()
		if err != nil {
			l.out.Reset()
			return strings.Join(said, " ")
		}
		body, err := r.Read(n)
		if err != nil {
			l.t.Fatal(err)
		}
		word := string(kind)
		switch kind {
		case wire.CommandComplete:
			word += ":" + strings.TrimRight(string(body), "\x00")
		case wire.ErrorResponse, wire.NoticeResponse:
			report, err := wire.ReadReport(body)
			if err != nil {
				l.t.Fatal(err)
			}
			word += ":" + report.Code
			if kind == wire.NoticeResponse && report.Code == "00000" {
				word += "(" + report.Message + ")"
			}
		case wire.ReadyForQuery:
			word += ":" + string(body)
		case wire.DataRow:
			row, err := wire.ReadRow(body)
			if err != nil {
				l.t.Fatal(err)
			}
			word += ":" + strings.Join(row[l.from:min(l.from+2, len(row))], ",")
		}
		said = append(said, word)
	}
}

const none = "\x00\x00" // no formats, types or parameters

func parse(name, text string) string  { return name + "\x00" + text + "\x00" + none }
func bind(portal, name string) string { return portal + "\x00" + name + "\x00" + none + none + none }
func bindText(value string) string {
	return "\x00\x00" + none + "\x00\x01" + string(binary.BigEndian.AppendUint32(nil, uint32(len(value)))) + value + none
}
func execute(portal string, most byte) string { return portal + "\x00\x00\x00\x00" + string(most) }

// Each text of the simple protocol is answered as PostgreSQL answers the like.
func TestClient_Simple(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"nothing", "", "I Z:I"},
		{"a comment", "-- ping", "I Z:I"},
		{"a value", "SELECT 1", "T D:1 C:SELECT 1 Z:I"},
		{"a text", "select 'it''s' AS x", "T D:it's C:SELECT 1 Z:I"},
		{"the version", "SELECT pg_catalog.version()", "T D:v C:SELECT 1 Z:I"},
		{"an expression", "SELECT 1 + 1", "E:0A000 Z:I"},
		{"a view without rows", "SHOW KEYS", "T C:SHOW Z:I"},
		{"comments inside", "/* a /* b */ c */ show -- d\n version /* e */", "T D:v C:SHOW Z:I"},
		{"several", "SHOW VERSION; SELECT 2;; SHOW VERSION", "T D:v C:SHOW T D:2 C:SELECT 1 T D:v C:SHOW Z:I"},
		{"up to the fault", "SELECT 1; nonsense; SELECT 2", "T D:1 C:SELECT 1 E:42601 Z:I"},
		{"a block", "BEGIN; SELECT 1; COMMIT", "C:BEGIN T D:1 C:SELECT 1 C:COMMIT Z:I"},
		{"an open block", "START TRANSACTION READ ONLY", "C:BEGIN Z:T"},
		{"a failed block", "BEGIN; nonsense", "C:BEGIN E:42601 Z:E"},
		{"no block", "COMMIT", "N:25P01 C:COMMIT Z:I"},
		{"a block in a block", "BEGIN; BEGIN", "C:BEGIN N:25001 C:BEGIN Z:T"},
		{"settings", "SET a.b = 'c'; RESET ALL; SET client_encoding TO 'UTF-8'; SET NAMES 'utf8'", "C:SET C:RESET C:SET C:SET Z:I"},
		{"an encoding", "SET client_encoding = 'LATIN1'", "E:0A000 Z:I"},
		{"a driver's question", "SHOW TRANSACTION ISOLATION LEVEL; SHOW standard_conforming_strings", "T D:read committed C:SHOW T D:on C:SHOW Z:I"},
		{"a parameter", "SHOW MARKS $1", "E:42P02 Z:I"},
		{"no end", "SHOW MARKS 'a", "E:42601 Z:I"},
		{"a number for a prefix", "SHOW MARKS 5", "E:42601 Z:I"},
		{"a text for a number", "SHOW KEYS LIMIT 'x'", "E:42601 Z:I"},
		{"a number in quotes", "SHOW KEYS LIMIT '5'; KILL '4'", "T C:SHOW E:42704 Z:I"},
		{"a limit twice", "SHOW KEYS LIMIT 1 LIMIT 2", "E:42601 Z:I"},
		{"an option that isn't there", "SHOW KEYS AFTER 'a'", "E:42601 Z:I"},
		{"too large a limit", "SHOW KEYS LIMIT 99999999999999999999", "E:22023 Z:I"},
		{"kill whom", "KILL", "E:42601 Z:I"},
		{"kill nobody", "KILL 4", "E:42704 Z:I"},
		{"too many", strings.Repeat("SELECT 1;", 101), "E:54000 Z:I"},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLine(t, &world{})
			if got := l.take(wire.Query, c.text+"\x00").answered(); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}

// After a failed statement a block takes its end only.
func TestClient_FailedBlock(t *testing.T) {
	l := newLine(t, &world{})
	l.take(wire.Query, "BEGIN; nonsense\x00").answered()
	for _, c := range []struct{ text, want string }{
		{"SELECT 1", "E:25P02 Z:E"}, {"SHOW KEYS", "E:25P02 Z:E"}, {"COMMIT", "C:ROLLBACK Z:I"}, {"SELECT 1", "T D:1 C:SELECT 1 Z:I"},
	} {
		if got := l.take(wire.Query, c.text+"\x00").answered(); got != c.want {
			t.Errorf("%s: got %s, want %s", c.text, got, c.want)
		}
	}
}

// The extended protocol: statements and portals, parameters, rows in parts, and
// faults up to the next Sync.
func TestClient_Extended(t *testing.T) {
	type message struct {
		kind byte
		body string
	}
	sync := message{wire.Sync, ""}
	sessions := func(text string) []message {
		return []message{{wire.Parse, parse("s", text)}, {wire.Bind, bind("p", "s")}}
	}
	for _, c := range []struct {
		name     string
		messages []message
		want     string
	}{
		{"unnamed", []message{{wire.Parse, parse("", "SHOW VERSION")}, {wire.Bind, bind("", "")}, {wire.Describe, "P\x00"}, {wire.Execute, execute("", 0)}, sync},
			"1 2 T D:v C:SHOW Z:I"},
		{"described", []message{{wire.Parse, parse("s", "SHOW MARKS $1 LIMIT $2")}, {wire.Describe, "Ss\x00"}, sync}, "1 t T Z:I"},
		{"a statement without rows", []message{{wire.Parse, parse("s", "BEGIN")}, {wire.Describe, "Ss\x00"}, {wire.Bind, bind("", "s")}, {wire.Execute, execute("", 0)}, sync},
			"1 t n 2 C:BEGIN Z:T"},
		{"empty", []message{{wire.Parse, parse("", " ; ")}, {wire.Bind, bind("", "")}, {wire.Describe, "P\x00"}, {wire.Execute, execute("", 0)}, sync}, "1 2 n I Z:I"},
		{"rows in parts", append(sessions("SHOW HELP"), message{wire.Execute, execute("p", 1)}, message{wire.Execute, execute("p", 1)}, sync),
			"1 2 D:SHOW KEYS ['prefix'] [LIMIT n],the locks that sessions of this proxy are tagged with, by database and key s " +
				"D:SHOW SESSIONS [LIMIT n],the sessions of this proxy, by number s Z:I"},
		{"a portal ends with the segment", append(sessions("SHOW VERSION"), sync, message{wire.Execute, execute("p", 0)}, sync), "1 2 Z:I E:34000 Z:I"},
		{"a statement stays", append(sessions("SHOW VERSION"), sync, message{wire.Bind, bind("", "s")}, message{wire.Execute, execute("", 0)}, sync), "1 2 Z:I 2 D:v C:SHOW Z:I"},
		{"closed", append(sessions("SHOW VERSION"), message{wire.Close, "Ss\x00"}, message{wire.Close, "Snone\x00"}, message{wire.Bind, bind("", "s")}, sync), "1 2 3 3 E:26000 Z:I"},
		{"deallocated", append(sessions("SHOW VERSION"), sync, message{wire.Query, "DEALLOCATE s\x00"}, message{wire.Query, "DEALLOCATE s\x00"}), "1 2 Z:I C:DEALLOCATE Z:I E:26000 Z:I"},
		{"a name twice", []message{{wire.Parse, parse("s", "SELECT 1")}, {wire.Parse, parse("s", "SELECT 1")}, sync}, "1 E:42P05 Z:I"},
		{"skipped after a fault", []message{{wire.Parse, parse("", "nonsense")}, {wire.Bind, bind("", "")}, {wire.Query, "SELECT 1\x00"}, sync, {wire.Query, "SELECT 1\x00"}},
			"E:42601 Z:I T D:1 C:SELECT 1 Z:I"},
		{"two statements", []message{{wire.Parse, parse("", "SELECT 1; SELECT 2")}, sync}, "E:42601 Z:I"},
		{"a parameter", []message{{wire.Parse, parse("", "SHOW MARKS $1")}, {wire.Bind, bindText("k")}, {wire.Execute, execute("", 0)}, sync}, "1 2 C:SHOW Z:I"},
		{"a number as text", []message{{wire.Parse, parse("", "SHOW MARKS LIMIT $1")}, {wire.Bind, bindText("1x")}, {wire.Execute, execute("", 0)}, sync}, "1 2 E:22023 Z:I"},
		{"none given", []message{{wire.Parse, parse("", "SHOW MARKS $1")}, {wire.Bind, bind("", "")}, sync}, "1 E:08P01 Z:I"},
		{"no such parameter", []message{{wire.Parse, parse("", "SHOW MARKS $9")}, sync}, "E:42601 Z:I"},
		{"a function call", []message{{wire.FunctionCall, "\x00\x00\x00\x01"}}, "E:0A000 Z:I"},
		{"as many rows as there are", append(sessions("SHOW VERSION"), message{wire.Execute, execute("p", 1)}, message{wire.Execute, execute("p", 1)}, message{wire.Execute, execute("p", 1)}, sync),
			"1 2 D:v s C:SHOW C:SHOW Z:I"},
		{"a failed block", []message{{wire.Query, "BEGIN; nonsense\x00"}, {wire.Parse, parse("", "SELECT 1")}, sync,
			{wire.Parse, parse("", "ROLLBACK")}, {wire.Bind, bind("", "")}, {wire.Execute, execute("", 0)}, sync}, "C:BEGIN E:42601 Z:E E:25P02 Z:E 1 2 C:ROLLBACK Z:I"},
		{"bound before its block failed", []message{{wire.Parse, parse("s", "SELECT 1")}, sync, {wire.Query, "BEGIN; nonsense\x00"}, {wire.Bind, bind("", "s")}, sync},
			"1 Z:I C:BEGIN E:42601 Z:E E:25P02 Z:E"},
		{"the unnamed one is gone with a bad one", []message{{wire.Parse, parse("", "SELECT 1")}, {wire.Parse, parse("", "nonsense")}, sync, {wire.Bind, bind("", "")}, sync}, "1 E:42601 Z:I E:26000 Z:I"},
		{"it stays beside a named one", []message{{wire.Parse, parse("", "SELECT 1")}, {wire.Parse, parse("s", "SELECT 2")}, {wire.Bind, bind("", "")}, {wire.Execute, execute("", 0)}, sync}, "1 1 2 D:1 C:SELECT 1 Z:I"},
		{"no text", []message{{wire.Parse, parse("", "SHOW \xff")}, sync, {wire.Parse, parse("", "SHOW MARKS $1")}, {wire.Bind, bindText("\xff")}, sync, {wire.Query, "SHOW \xff\x00"}}, "E:22021 Z:I 1 E:22021 Z:I E:22021 Z:I"},
		{"stray copy data", []message{{wire.CopyData, "x"}, {wire.CopyDone, ""}, {wire.Flush, ""}, sync}, "Z:I"},
		{"malformed", []message{{wire.Bind, "\x00"}, sync, {wire.Execute, "\x00"}, sync, {wire.Describe, "X\x00"}, sync, {wire.Parse, "a\x00b"}, sync}, "E:08P01 Z:I E:08P01 Z:I E:08P01 Z:I E:08P01 Z:I"},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLine(t, &world{})
			for _, m := range c.messages {
				l.take(m.kind, m.body)
			}
			if got := l.answered(); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

// One client can't have the console hold more and more.
func TestClient_Bounds(t *testing.T) {
	l := newLine(t, &world{})
	for n := range 101 {
		l.take(wire.Parse, parse(fmt.Sprint("s", n), "SELECT 1"))
	}
	if got := l.take(wire.Sync, "").answered(); !strings.HasSuffix(got, "1 E:54000 Z:I") {
		t.Errorf("101 statements: got %s", got[max(0, len(got)-40):])
	}
	for n := range 17 {
		l.take(wire.Bind, bind(fmt.Sprint("p", n), "s1"))
	}
	if got := l.take(wire.Sync, "").answered(); !strings.HasSuffix(got, "2 E:54000 Z:I") {
		t.Errorf("17 portals: got %s", got[max(0, len(got)-40):])
	}
	if err := l.client.TooLong(wire.Query); err != nil {
		t.Errorf("a long message: got %v", err)
	}
	if got := l.answered(); got != "E:54000 Z:I" {
		t.Errorf("a long message: got %s", got)
	}
}

// Marks of several databases are shown in one order, page by page, none twice and
// none left out; a database that doesn't answer is told of.
func TestClient_MarksPages(t *testing.T) {
	w := &world{marks: map[string][]fencing.ListedMark{}}
	for _, m := range []struct{ database, keys string }{{"a", "k1 k2 k4 k5"}, {"b", "k2 k3 k5 k6"}} {
		for _, key := range strings.Fields(m.keys) {
			w.marks[m.database] = append(w.marks[m.database], fencing.ListedMark{Database: m.database, Key: key, Token: 1})
		}
	}
	l := newLine(t, w)
	var got []string
	for _, text := range []string{"SHOW MARKS 'k' LIMIT 2", "SHOW MARKS 'k' AFTER 'k2' LIMIT 2", "SHOW MARKS 'k' AFTER 'k4' LIMIT 2", "SHOW MARKS 'x'"} {
		got = append(got, l.take(wire.Query, text+"\x00").answered())
	}
	want := []string{
		"N:00000(there are more: SHOW MARKS 'k' AFTER 'k2' LIMIT 2) T D:a,k1 D:a,k2 D:b,k2 C:SHOW Z:I", // both of k2
		"N:00000(there are more: SHOW MARKS 'k' AFTER 'k4' LIMIT 2) T D:b,k3 D:a,k4 C:SHOW Z:I",
		"N:00000(there are more: SHOW MARKS 'k' AFTER 'k5' LIMIT 2) T D:a,k5 D:b,k5 C:SHOW Z:I",
		"T C:SHOW Z:I",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	w.marks["a"] = append(w.marks["a"], fencing.ListedMark{Database: "a", Key: "z\x1b[7m"}, fencing.ListedMark{Database: "a", Key: "z~"})
	if got := l.take(wire.Query, "SHOW MARKS 'z' LIMIT 1\x00").answered(); got != "N:00000(there are more: SHOW MARKS … AFTER $1, with the last key as the parameter) T D:a,z\x1b[7m C:SHOW Z:I" {
		t.Errorf("a key that isn't for terminals: got %q", got)
	}
	w.marks["a"] = w.marks["a"][:4]
	w.failing = map[string]error{"b": fmt.Errorf("x: %w", fencing.ErrMayNotList)}
	if got := l.take(wire.Query, "SHOW MARKS LIMIT 9\x00").answered(); got != "N:01000 T D:a,k1 D:a,k2 D:a,k4 D:a,k5 C:SHOW Z:I" {
		t.Errorf("one that may not be read: got %s", got)
	}
	w.failing["a"] = w.failing["b"]
	if got := l.take(wire.Query, "SHOW MARKS\x00").answered(); got != "E:42501 Z:I" {
		t.Errorf("none that may be read: got %s", got)
	}
}

// KILL ends the one session that is meant, or none.
func TestClient_Kill(t *testing.T) {
	w := &world{sessions: []live.Session{{ID: 1, PID: 70}, {ID: 2, PID: 71}, {ID: 3, PID: 71}, {ID: 4}}}
	l := newLine(t, w)
	for _, c := range []struct{ text, want string }{
		{"KILL 70", "C:KILL Z:I"}, {"KILL 71", "E:21000 Z:I"}, {"KILL SESSION 3", "C:KILL Z:I"}, {"KILL 0", "E:42704 Z:I"},
		{"KILL 4", "E:42704 Z:I"}, {"KILL SESSION 4", "C:KILL Z:I"}, {"KILL SESSION 5", "E:42704 Z:I"},
	} {
		if got := l.take(wire.Query, c.text+"\x00").answered(); got != c.want {
			t.Errorf("%s: got %s, want %s", c.text, got, c.want)
		}
	}
	if diff := cmp.Diff([]uint64{1, 3, 4}, w.killed); diff != "" {
		t.Errorf("killed (-want +got):\n%s", diff)
	}
}

// Whatever a client sends, it gets an answer or the end, and nothing panics.
func FuzzClient_Take(f *testing.F) {
	for _, seed := range []string{parse("s", "SHOW MARKS $1 AFTER $2 LIMIT $3"), bindText("k"), execute("", 1), "SHOW KEYS 'a' LIMIT 1\x00", "Ss\x00"} {
		for _, kind := range []byte("PBEQDCSHFd") {
			f.Add(kind, seed)
		}
	}
	f.Fuzz(func(t *testing.T, kind byte, body string) {
		l := newLine(t, &world{})
		for _, b := range []string{parse("", "SHOW MARKS $1"), body} {
			if err := l.client.Take(t.Context(), kind, []byte(b)); err != nil {
				return
			}
		}
		if err := l.client.Take(t.Context(), wire.Sync, nil); err != nil {
			t.Fatal(err)
		}
		if got := l.answered(); !strings.Contains(got, "Z:") {
			t.Errorf("got %q, want an answer", got)
		}
	})
}
