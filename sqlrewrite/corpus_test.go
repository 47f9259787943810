package sqlrewrite_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fenceproxy/fenceproxy/sqlrewrite"
)

// corpus reads a file of testdata/corpus: a text a line, where ⏎ stands for a
// newline inside it.
func corpus(t testing.TB, name string) []string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", "corpus", name))
	if err != nil {
		t.Fatal(err)
	}
	var texts []string
	for line := range strings.Lines(string(b)) {
		texts = append(texts, strings.ReplaceAll(strings.TrimSuffix(line, "\n"), "⏎", "\n"))
	}
	return texts
}

// wholeCorpus is every text that PostgreSQL's grammar takes.
func wholeCorpus(t testing.TB) []string {
	t.Helper()
	var texts []string
	for _, name := range []string{"reads.sql", "writes.sql", "texts.sql"} {
		texts = append(texts, corpus(t, name)...)
	}
	return texts
}

func split(t testing.TB, text string, o sqlrewrite.Options) []sqlrewrite.Statement {
	t.Helper()
	got, err := sqlrewrite.Split(nil, []byte(text), o)
	if err != nil {
		t.Fatalf("Split(%q): %v", text, err)
	}
	return got
}

func one(t testing.TB, text string, o sqlrewrite.Options) sqlrewrite.Statement {
	t.Helper()
	got := split(t, text, o)
	if len(got) != 1 {
		t.Fatalf("Split(%q) has %d statements, want 1", text, len(got))
	}
	return got[0]
}

func TestSplit_Reads(t *testing.T) {
	for _, text := range corpus(t, "reads.sql") {
		s := one(t, text, sqlrewrite.Options{})
		if s.Class != sqlrewrite.Read {
			t.Errorf("%q: got %v because of %q (%v), want read", text, s.Class, text[s.Why.Start:s.Why.End], s.Why.Reason)
		}
	}
}

func TestSplit_Writes(t *testing.T) {
	for _, text := range corpus(t, "writes.sql") {
		if s := one(t, text, sqlrewrite.Options{}); s.Class != sqlrewrite.MayWrite {
			t.Errorf("%q: got %v, want may write", text, s.Class)
		}
	}
}

// TestSplit_NothingPlain: where a text may mean something else, nothing is a
// plain read, and what isn't a read keeps its class.
func TestSplit_NothingPlain(t *testing.T) {
	for _, o := range []sqlrewrite.Options{{BackslashQuotes: true}, {UnsafeEncoding: true}} {
		for _, text := range wholeCorpus(t) {
			got, err := sqlrewrite.Split(nil, []byte(text), o)
			if err != nil {
				continue
			}
			for _, s := range got {
				if s.Class == sqlrewrite.Read {
					t.Errorf("%+v: %q is a read", o, text[s.Start:s.End])
				}
			}
		}
		if got, want := one(t, "ROLLBACK", o).Class, sqlrewrite.Rollback; got != want {
			t.Errorf("%+v: ROLLBACK: got %v, want %v", o, got, want)
		}
	}
}
