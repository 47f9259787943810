package sqlrewrite_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fenceproxy/fenceproxy/sqlrewrite"
)

func TestSplit_Boundaries(t *testing.T) {
	for _, c := range []struct {
		name, text string
		opts       sqlrewrite.Options
		want       []string
	}{
		{"nothing", "", sqlrewrite.Options{}, nil},
		{"semicolons only", " ;; /* c */ ; -- d", sqlrewrite.Options{}, nil},
		{"comments around", "/* a */ SELECT 1 /* b */ ; -- c\nSELECT 2 -- d", sqlrewrite.Options{}, []string{"SELECT 1", "SELECT 2"}},
		{"comment inside", "SELECT /* ; */ 1", sqlrewrite.Options{}, []string{"SELECT /* ; */ 1"}},
		{"a comment ends a line", "SELECT 1 -- a;\r; SELECT 2", sqlrewrite.Options{}, []string{"SELECT 1", "SELECT 2"}},
		{"vertical tab", "SELECT\v1\f;SELECT 2", sqlrewrite.Options{}, []string{"SELECT\v1", "SELECT 2"}},
		{"a string goes on behind a comment", "SELECT E'a' -- x\n '\\';'; SELECT 2", sqlrewrite.Options{}, []string{"SELECT E'a' -- x\n '\\';'", "SELECT 2"}},
		{"a string does not go on in the same line", "SELECT E'a' '\\'; SELECT 2", sqlrewrite.Options{}, []string{"SELECT E'a' '\\'", "SELECT 2"}},
		{"a string does not go on behind a block comment", "SELECT E'a' /*\n*/\n'\\'; SELECT 2", sqlrewrite.Options{}, []string{"SELECT E'a' /*\n*/\n'\\'", "SELECT 2"}},
		{"conforming strings", `SELECT '\'; DELETE FROM t --'`, sqlrewrite.Options{}, []string{`SELECT '\'`, "DELETE FROM t"}},
		{"backslash quotes", `SELECT '\'; DELETE FROM t --'; SELECT 2`, sqlrewrite.Options{BackslashQuotes: true}, []string{`SELECT '\'; DELETE FROM t --'`, "SELECT 2"}},
		{"backslash quotes in a bit string", `SELECT B'\'; SELECT 2`, sqlrewrite.Options{BackslashQuotes: true}, []string{`SELECT B'\'`, "SELECT 2"}},
		{"backslash quotes in a national string", `SELECT N'\';'; SELECT 2`, sqlrewrite.Options{BackslashQuotes: true}, []string{`SELECT N'\';'`, "SELECT 2"}},
		{"not a dollar quote", "SELECT a$$; SELECT $1$$;$$", sqlrewrite.Options{}, []string{"SELECT a$$", "SELECT $1$$;$$"}},
		{"version 14 words behind numbers", "SELECT 1a$$; SELECT $1b$$; SELECT 2", sqlrewrite.Options{}, []string{"SELECT 1a$$", "SELECT $1b$$", "SELECT 2"}},
		{"version 14 strings behind numbers", "SELECT 1e'\\';'; SELECT 2", sqlrewrite.Options{}, []string{"SELECT 1e'\\';'", "SELECT 2"}},
		{"body", "CREATE FUNCTION f() RETURNS int BEGIN ATOMIC a; END; SELECT 2", sqlrewrite.Options{}, []string{"CREATE FUNCTION f() RETURNS int BEGIN ATOMIC a; END", "SELECT 2"}},
		{"no body", "CREATE TABLE f AS SELECT begin atomic; END; SELECT 2", sqlrewrite.Options{}, []string{"CREATE TABLE f AS SELECT begin atomic", "END", "SELECT 2"}},
		{"quoted words make no body", `CREATE FUNCTION f() RETURNS "begin" ATOMIC a; END`, sqlrewrite.Options{}, []string{`CREATE FUNCTION f() RETURNS "begin" ATOMIC a`, "END"}},
		{"ASCII in an unsafe encoding", "SELECT 'a'; SELECT 2", sqlrewrite.Options{UnsafeEncoding: true}, []string{"SELECT 'a'", "SELECT 2"}},
		{"invalid UTF-8", "SELECT '\xff;'; SELECT \xfe", sqlrewrite.Options{}, []string{"SELECT '\xff;'", "SELECT \xfe"}},
	} {
		var got []string
		for _, s := range split(t, c.text, c.opts) {
			got = append(got, c.text[s.Start:s.End])
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s: %q (-want +got):\n%s", c.name, c.text, diff)
		}
	}
}

func TestSplit_Errors(t *testing.T) {
	for _, c := range []struct {
		text string
		opts sqlrewrite.Options
		want error
	}{
		{"SELECT 1; SELECT 'a", sqlrewrite.Options{}, sqlrewrite.ErrUnterminated},
		{"SELECT 'a''", sqlrewrite.Options{}, sqlrewrite.ErrUnterminated},
		{`SELECT E'a\'`, sqlrewrite.Options{}, sqlrewrite.ErrUnterminated},
		{`SELECT E'a\`, sqlrewrite.Options{}, sqlrewrite.ErrUnterminated},
		{`SELECT 'a\'`, sqlrewrite.Options{BackslashQuotes: true}, sqlrewrite.ErrUnterminated},
		{"SELECT 'a'\n'b", sqlrewrite.Options{}, sqlrewrite.ErrUnterminated},
		{`SELECT "a`, sqlrewrite.Options{}, sqlrewrite.ErrUnterminated},
		{`SELECT U&"a""`, sqlrewrite.Options{}, sqlrewrite.ErrUnterminated},
		{"SELECT $a$ $b$", sqlrewrite.Options{}, sqlrewrite.ErrUnterminated},
		{"SELECT /* /* */", sqlrewrite.Options{}, sqlrewrite.ErrUnterminated},
		{"/*/", sqlrewrite.Options{}, sqlrewrite.ErrUnterminated},
		{"SELECT 1\x00; DELETE FROM t", sqlrewrite.Options{}, sqlrewrite.ErrUncertain},
		{"SELECT '\x81\\'; DELETE FROM t --'", sqlrewrite.Options{UnsafeEncoding: true}, sqlrewrite.ErrUncertain},
		{`SELECT U&'\'; DELETE FROM t --'`, sqlrewrite.Options{BackslashQuotes: true}, sqlrewrite.ErrUnsafe},
	} {
		got, err := sqlrewrite.Split([]sqlrewrite.Statement{{End: 7}}, []byte(c.text), c.opts)
		if !errors.Is(err, c.want) || len(got) != 1 || got[0].End != 7 {
			t.Errorf("Split(%q): got %v, %v, want only what was there and %v", c.text, got, err, c.want)
		}
	}
}

// typical are statements as applications send them.
var typical = []struct{ name, text string }{
	{"begin", "BEGIN"},
	{"select", "SELECT abalance FROM pgbench_accounts WHERE aid = 4711;"},
	{"update", "UPDATE pgbench_accounts SET abalance = abalance + -1712 WHERE aid = 87312;"},
	{"insert", "INSERT INTO orders (customer_id, total, note) VALUES ($1, $2, $3) RETURNING id"},
	{"join", "SELECT o.id, o.total, count(l.id) AS lines FROM orders o JOIN lines l ON l.order_id = o.id WHERE o.customer_id = $1 AND o.created_at > now() - interval '1 day' GROUP BY o.id ORDER BY o.id DESC LIMIT 20"},
	{"block", "BEGIN; UPDATE accounts SET balance = balance - 10 WHERE id = 1; UPDATE accounts SET balance = balance + 10 WHERE id = 2; COMMIT"},
	{"tag", "SET fence.key = 'order:8472'; SET fence.token = 42"},
}

func TestSplit_AllocatesNothing(t *testing.T) {
	dst := make([]sqlrewrite.Statement, 0, 8)
	for _, c := range typical {
		text := []byte(c.text)
		got := testing.AllocsPerRun(100, func() {
			if _, err := sqlrewrite.Split(dst, text, sqlrewrite.Options{}); err != nil {
				t.Fatal(err)
			}
		})
		if got != 0 {
			t.Errorf("%s: %v allocations, want 0", c.name, got)
		}
	}
}

func BenchmarkSplit(b *testing.B) {
	dst := make([]sqlrewrite.Statement, 0, 8)
	for _, c := range typical {
		b.Run(c.name, func(b *testing.B) {
			text := []byte(c.text)
			b.SetBytes(int64(len(text)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := sqlrewrite.Split(dst, text, sqlrewrite.Options{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkSplit_Hostile: texts that a lexer without care goes through many
// times over. Time per byte must not grow with the length.
func BenchmarkSplit_Hostile(b *testing.B) {
	for _, c := range []struct{ name, begin, part, end string }{
		{"backslashes", "SELECT E'", `\\`, "'"},
		{"escaped quotes", "SELECT E'", `\'`, "'"},
		{"comments", "SELECT ", "/*", strings.Repeat("*/", 1<<17)},
		{"stars", "/*", "*/ /*", "*/"},
		{"continuations", "SELECT 'a'", "\n--\n", "+"},
		{"dollars", "SELECT ", "$a", "$"},
		{"mentions", "SELECT ", "fence  ", "f"},
		{"configs", "SELECT ", "set_config(  ", "f"},
		{"escapes", "SELECT ", `\0 `, "f"},
		{"parentheses", "", "(", ""},
		{"semicolons", "", "a;", ""},
	} {
		b.Run(c.name, func(b *testing.B) {
			text := []byte(c.begin + strings.Repeat(c.part, 1<<17) + c.end)
			b.SetBytes(int64(len(text)))
			var dst []sqlrewrite.Statement
			for b.Loop() {
				dst, _ = sqlrewrite.Split(dst[:0], text, sqlrewrite.Options{})
			}
		})
	}
}

func BenchmarkMentionsFence(b *testing.B) {
	for _, c := range typical {
		b.Run(c.name, func(b *testing.B) {
			text := []byte(c.text)
			b.SetBytes(int64(len(text)))
			b.ReportAllocs()
			for b.Loop() {
				sqlrewrite.MentionsFence(text)
			}
		})
	}
}

// A keyword is its letters in either case, and no other byte in place of one.
func TestSplit_KeywordLetters(t *testing.T) {
	for _, keyword := range []string{"select", "discard"} {
		plain, err := sqlrewrite.Split(nil, []byte(keyword+" all"), sqlrewrite.Options{})
		if err != nil || plain[0].Class == sqlrewrite.MayWrite {
			t.Fatalf("%s: got %v, %v", keyword, plain, err)
		}
		for at := range keyword {
			for c := 1; c < 256; c++ {
				text := []byte(keyword + " all")
				if text[at] = byte(c); c == '\'' || c == '"' || c == ';' || c == '-' || c == '/' {
					continue // begins something else, or ends the statement
				}
				got, err := sqlrewrite.Split(nil, text, sqlrewrite.Options{})
				same := bytes.EqualFold(text[:len(keyword)], []byte(keyword))
				switch {
				case err != nil || len(got) == 0:
					t.Errorf("%q: got %v, %v", text, got, err)
				case same && got[0].Class != plain[0].Class, !same && at > 0 && got[0].Class == plain[0].Class:
					t.Errorf("%q: got %v", text, got[0].Class)
				}
			}
		}
	}
}
