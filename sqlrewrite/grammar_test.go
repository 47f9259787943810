package sqlrewrite_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	pgquery "github.com/pganalyze/pg_query_go/v6"

	"github.com/fenceproxy/fenceproxy/sqlrewrite"
	"github.com/fenceproxy/fenceproxy/testharness/environ"
)

// What make grammar sets: the folder of PostgreSQL's own regression suite, and
// how many texts are made of what is in it, from which seed. Unset, the corpus
// is all there is, and a few texts are made of it.
const (
	suiteVariable = "FENCEPROXY_GRAMMAR_SUITE"
	countVariable = "FENCEPROXY_GRAMMAR_TEXTS"
	seedVariable  = "FENCEPROXY_GRAMMAR_SEED"
)

// A script is the statements of one file.
type script struct {
	name       string
	statements []string
}

// scripts are the corpus and the files of the suite.
func scripts(t testing.TB) []script {
	t.Helper()
	all := []script{{"corpus", wholeCorpus(t)}}
	suite := os.Getenv(suiteVariable)
	if suite == "" {
		return all
	}
	files, err := filepath.Glob(filepath.Join(suite, "*", "sql", "*.sql"))
	if err != nil || len(files) < 100 {
		t.Fatalf("%s=%s has %d scripts (%v), want at least 100", suiteVariable, suite, len(files), err)
	}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, script{filepath.Base(file), parts(withoutPsql(string(b)))})
	}
	return all
}

// withoutPsql takes out what is psql's: its commands, and the rows of a COPY.
func withoutPsql(text string) string {
	var out strings.Builder
	rows := false
	for line := range strings.Lines(text) {
		trimmed := strings.ToLower(strings.TrimSpace(line))
		switch {
		case rows:
			rows = trimmed != `\.`
			continue
		case strings.HasPrefix(trimmed, `\`):
			out.WriteString(";\n") // \gexec and its like end a statement
			continue
		}
		rows = strings.HasPrefix(trimmed, "copy ") && strings.Contains(trimmed, "from stdin") && strings.Contains(trimmed, ";")
		out.WriteString(line)
	}
	return out.String()
}

// parts cuts a text at its semicolons by PostgreSQL's scanner, and where that
// refuses the text at the ends of lines.
func parts(text string) []string {
	if all, err := pgquery.SplitWithScanner(text, true); err == nil {
		return all
	}
	return strings.SplitAfter(text, ";\n")
}

// TestSplit_Scripts: of every script that PostgreSQL tests itself with, each
// statement alone, and all of a file together, is split as the grammar does,
// and nothing that writes is a read.
func TestSplit_Scripts(t *testing.T) {
	o := newOracle(t)
	taken, refused := 0, 0
	for _, s := range scripts(t) {
		var good []string
		for _, text := range s.statements {
			if _, ok := pieces(text); comparable(text) && ok && o.judge(t, text) {
				good = append(good, text)
			} else {
				refused++
			}
		}
		taken += len(good)
		if whole := strings.Join(good, "\n;"); !o.judge(t, whole) {
			t.Errorf("%s: the grammar refuses the statements of the file together", s.name)
		}
		if t.Failed() {
			t.Fatalf("in %s", s.name)
		}
	}
	t.Logf("%d statements that the grammar takes, %d that it refuses", taken, refused)
	if least := 500; taken < least {
		t.Errorf("the grammar took %d statements, want at least %d", taken, least)
	}
}

// TestSplit_Mutants: the same for texts that are made of those, by chance.
func TestSplit_Mutants(t *testing.T) {
	o := newOracle(t)
	var texts []string
	for _, s := range scripts(t) {
		for _, text := range s.statements {
			if comparable(text) && len(text) < 4096 {
				texts = append(texts, text)
			}
		}
	}
	count, seed := environ.Int(t, countVariable, 3000), environ.Int(t, seedVariable, 1)
	r := rand.New(rand.NewPCG(uint64(seed), 0))
	taken, reads := 0, 0
	for range count {
		text := mutant(r, texts)
		for _, opts := range []sqlrewrite.Options{{}, {BackslashQuotes: true}, {UnsafeEncoding: true}} {
			checkShape(t, text, opts)
		}
		if _, ok := pieces(text); !comparable(text) || !ok || !o.judge(t, text) {
			continue
		}
		taken++
		if got := split(t, text, sqlrewrite.Options{}); len(got) > 0 && got[0].Class == sqlrewrite.Read {
			reads++
		}
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
	t.Logf("%d texts from seed %d: the grammar takes %d, of which %d begin with a read", count, seed, taken, reads)
	if taken < count/20 || reads < taken/50 {
		t.Errorf("of %d texts the grammar took %d, and %d began with a read: too few to tell anything", count, taken, reads)
	}
}

// bits are what is put into texts: what opens and closes, and what makes a
// write of a read.
var bits = strings.Split(`'|"|$$|$a$|/*|*/|--|;|(|)|,|.|::|E'|U&'|U&"|\|\'|''|""|||BEGIN ATOMIC|END|CASE|BEGIN|COMMIT|`+
	`INTO x|INTO|FOR UPDATE|FOR NO KEY UPDATE|FOR SHARE|FOR KEY SHARE|INSERT INTO t VALUES (1)|DELETE FROM t|UPDATE t SET a = 1|MERGE|`+
	`f(1)|nextval('s')|lower('x')|"lower"('x')|public.lower('x')|pg_catalog . lower ( 'x' )|set_config('a', 'b', false)|WITH x AS (DELETE FROM t RETURNING *) |`+
	`WITH x AS (SELECT 1) |EXPLAIN |EXPLAIN ANALYZE |EXPLAIN (ANALYZE false) |EXPLAIN (VERBOSE, ANALYZE) |DECLARE c CURSOR FOR |DECLARE c CURSOR WITH HOLD FOR |`+
	`COPY (|) TO STDOUT|) TO 'file'|TABLESAMPLE system (1)|TABLESAMPLE f (1)|WITHIN GROUP (ORDER BY a)|FILTER (WHERE f(1) > 0)|OVER (ORDER BY f(1))|`+
	`OPERATOR(pg_catalog.+)|LATERAL f(1)|ROWS FROM (f(1))|1e5|0x1F|$1|N'a'|B'1'|X'1F'|=|+|-|*|/|a|AS|AS v(a, b)|f|é`, "|")

// mutant makes a text out of one or two others.
func mutant(r *rand.Rand, texts []string) string {
	text := texts[r.IntN(len(texts))]
	for range 1 + r.IntN(3) {
		at := place(r, text)
		switch r.IntN(6) {
		case 0: // a bit more
			text = text[:at] + " " + bits[r.IntN(len(bits))] + " " + text[at:]
		case 1: // a bit more, close by
			text = text[:at] + bits[r.IntN(len(bits))] + text[at:]
		case 2: // some less
			if end := place(r, text); end > at && end-at < 32 {
				text = text[:at] + text[end:]
			}
		case 3: // one before another
			text = bits[r.IntN(len(bits))] + " " + text
		case 4: // one behind another
			text += ";" + texts[r.IntN(len(texts))]
		case 5: // one inside another
			text = fmt.Sprintf("%s (%s) %s", text[:at], texts[r.IntN(len(texts))], text[at:])
		}
	}
	return text
}

// place is somewhere in a text, mostly at the edge of a word.
func place(r *rand.Rand, text string) int {
	at := r.IntN(len(text) + 1)
	if r.IntN(4) > 0 {
		if n := strings.IndexAny(text[at:], " \n(),;'"); n >= 0 {
			at += n
		}
	}
	return at
}
