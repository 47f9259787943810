package sqlrewrite_test

import (
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	pgquery "github.com/pganalyze/pg_query_go/v6"

	"github.com/fenceproxy/fenceproxy/sqlrewrite"
)

func seed(f *testing.F) {
	for _, name := range []string{"reads.sql", "writes.sql", "texts.sql", "refused.sql", "server.sql"} {
		for _, text := range corpus(f, name) {
			f.Add(text)
		}
	}
}

// comparable reports whether the oracle can be asked about text.
func comparable(text string) bool {
	return utf8.ValidString(text) && !strings.ContainsRune(text, 0)
}

// pieces are the tokens that sqlrewrite.Pieces finds too, by PostgreSQL's
// scanner. ok is false where that refuses the text, and where a line comment
// follows a string constant: the scanner of libpg_query makes tokens of
// comments, so it misses strings that go on behind one.
func pieces(text string) (all []sqlrewrite.Piece, ok bool) {
	scanned, err := pgquery.Scan(text)
	if err != nil {
		return nil, false
	}
	afterString := false
	for _, t := range scanned.Tokens {
		what := byte(0)
		switch t.Token {
		case pgquery.Token_SCONST, pgquery.Token_USCONST, pgquery.Token_BCONST, pgquery.Token_XCONST:
			what = 's'
		case pgquery.Token_ASCII_40, pgquery.Token_ASCII_41, pgquery.Token_ASCII_44, pgquery.Token_ASCII_59:
			what = text[t.Start]
		case pgquery.Token_IDENT, pgquery.Token_UIDENT:
			if text[t.End-1] == '"' {
				what = '"'
			}
		case pgquery.Token_SQL_COMMENT:
			if afterString {
				return nil, false
			}
		}
		afterString = what == 's'
		if what != 0 {
			all = append(all, sqlrewrite.Piece{What: what, Start: int(t.Start), End: int(t.End)})
		}
	}
	return all, true
}

// FuzzLexer compares strings, quoted identifiers and punctuation with
// PostgreSQL's scanner where that takes the text.
func FuzzLexer(f *testing.F) {
	seed(f)
	f.Fuzz(func(t *testing.T, text string) {
		got, err := sqlrewrite.Pieces([]byte(text), sqlrewrite.Options{})
		if !comparable(text) {
			return
		}
		want, ok := pieces(text)
		if !ok {
			return
		}
		if err != nil {
			t.Fatalf("%q: %v, but PostgreSQL scans it", text, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("%q (-PostgreSQL +got):\n%s", text, diff)
		}
	})
}

// FuzzSplit compares statements and verdicts with PostgreSQL's grammar, and
// puts statements in between and asks the grammar again.
func FuzzSplit(f *testing.F) {
	seed(f)
	o := newOracle(f)
	f.Fuzz(func(t *testing.T, text string) {
		for _, opts := range []sqlrewrite.Options{{}, {BackslashQuotes: true}, {UnsafeEncoding: true}} {
			checkShape(t, text, opts)
		}
		if !comparable(text) {
			return
		}
		if _, ok := pieces(text); !ok {
			return
		}
		if o.judge(t, text) {
			checkInsert(t, o, text)
		}
	})
}

// checkShape: statements are in order, not empty, inside the text and begin
// and end with a token; the reason lies inside its statement.
func checkShape(t *testing.T, text string, opts sqlrewrite.Options) {
	t.Helper()
	statements, err := sqlrewrite.Split(nil, []byte(text), opts)
	if err != nil {
		if len(statements) > 0 {
			t.Fatalf("%q: statements beside %v", text, err)
		}
		if !errors.Is(err, sqlrewrite.ErrUnterminated) && !errors.Is(err, sqlrewrite.ErrUnsafe) && !errors.Is(err, sqlrewrite.ErrUncertain) {
			t.Fatalf("%q: unknown error %v", text, err)
		}
		return
	}
	from := 0
	for _, s := range statements {
		if s.Start < from || s.End <= s.Start || s.End > len(text) {
			t.Fatalf("%q: statement %d–%d behind %d", text, s.Start, s.End, from)
		}
		if s.Why.Start < s.Start || s.Why.End > s.End || s.Why.End <= s.Why.Start {
			t.Fatalf("%q: statement %d–%d because of %d–%d", text, s.Start, s.End, s.Why.Start, s.Why.End)
		}
		sqlrewrite.Settings([]byte(text), s, opts)
		from = s.End
	}
}

// checkInsert puts a statement before each statement of a text that the
// grammar takes, and one behind the last. The grammar must take it and see the
// statements that were put in where they were put.
func checkInsert(t *testing.T, o *oracle, text string) {
	t.Helper()
	const before, after = "SELECT f();", "\n;SELECT f()"
	statements, err := sqlrewrite.Split(nil, []byte(text), sqlrewrite.Options{})
	if err != nil || len(statements) == 0 {
		return
	}
	var ins []sqlrewrite.Insertion
	for _, s := range statements {
		ins = append(ins, sqlrewrite.Insertion{At: s.Start, Text: before})
	}
	ins = append(ins, sqlrewrite.Insertion{At: len(text), Text: after})
	longer := string(sqlrewrite.Insert(nil, []byte(text), ins))
	spans, _, ok := o.statements(t, longer)
	if !ok {
		t.Fatalf("the grammar takes %q, but not %q", text, longer)
	}
	if got, want := len(spans), 2*len(statements)+1; got != want {
		t.Fatalf("%q: %d statements, want %d", longer, got, want)
	}
	for i, s := range spans {
		want := "SELECT f()"
		if i%2 == 1 {
			want = text[statements[i/2].Start:statements[i/2].End]
		}
		if got := longer[s.Start:s.End]; got != want {
			t.Fatalf("statement %d of %q: got %q, want %q", i, longer, got, want)
		}
	}
}
