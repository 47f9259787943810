package sqlrewrite_test

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	pgquery "github.com/pganalyze/pg_query_go/v6"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/fenceproxy/fenceproxy/sqlrewrite"
)

// An oracle is PostgreSQL's own scanner and grammar, with what pg_proc says of
// each built-in function.
type oracle struct {
	volatility map[string]string
}

func newOracle(t testing.TB) *oracle {
	t.Helper()
	f, err := os.Open("testdata/pg_proc.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	o := &oracle{volatility: map[string]string{}}
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if name, volatility, ok := strings.Cut(lines.Text(), " "); ok && name != "#" {
			o.volatility[name] = volatility
		}
	}
	return o
}

// harmlessVolatile are the volatile functions of pg_catalog that change
// nothing, by the manual.
const harmlessVolatile = ` clock_timestamp current_query currval gen_random_uuid lastval
 pg_blocking_pids pg_collation_actual_version pg_current_wal_flush_lsn pg_current_wal_insert_lsn
 pg_current_wal_lsn pg_database_size pg_indexes_size pg_is_in_recovery pg_is_wal_replay_paused
 pg_jit_available pg_last_wal_receive_lsn pg_last_wal_replay_lsn pg_last_xact_replay_timestamp
 pg_partition_ancestors pg_partition_tree pg_relation_size pg_safe_snapshot_blocking_pids
 pg_sequence_last_value pg_sleep pg_sleep_for pg_sleep_until pg_table_size pg_tablespace_size
 pg_total_relation_size pg_xact_commit_timestamp pg_xact_status random timeofday txid_status `

// harmfulStable are the functions that pg_proc calls stable or immutable
// although they run SQL from a string or from a table's name, or assign a
// transaction id.
const harmfulStable = ` cursor_to_xmlschema database_to_xml database_to_xml_and_xmlschema database_to_xmlschema
 pg_current_xact_id query_to_xml_and_xmlschema query_to_xmlschema schema_to_xml schema_to_xml_and_xmlschema
 schema_to_xmlschema table_to_xml table_to_xml_and_xmlschema table_to_xmlschema txid_current `

func listed(list, name string) bool {
	for _, n := range strings.Fields(list) {
		if n == name {
			return true
		}
	}
	return false
}

// harmless reports whether a call of the function of pg_catalog writes nothing.
func (o *oracle) harmless(name string) bool {
	switch o.volatility[name] {
	case "immutable", "stable":
		return !listed(harmfulStable, name)
	case "volatile":
		return listed(harmlessVolatile, name)
	}
	return false
}

// A span is the bytes of a statement.
type span struct{ Start, End int }

// statements are the spans and trees of text; ok is false where the grammar
// refuses the text.
func (o *oracle) statements(t testing.TB, text string) (spans []span, trees []*pgquery.Node, ok bool) {
	t.Helper()
	parsed, err := pgquery.Parse(text)
	if err != nil {
		return nil, nil, false
	}
	tokens := o.tokens(t, text)
	for _, s := range parsed.Stmts {
		from, to := int(s.StmtLocation), len(text)
		if s.StmtLen > 0 {
			to = from + int(s.StmtLen)
		}
		var sp *span
		for _, tok := range tokens {
			if tok.Start < from || tok.End > to {
				continue
			}
			if sp == nil {
				spans = append(spans, tok)
				sp = &spans[len(spans)-1]
			}
			sp.End = tok.End
		}
		trees = append(trees, s.Stmt)
	}
	return spans, trees, true
}

// tokens are the tokens of text that aren't comments.
func (o *oracle) tokens(t testing.TB, text string) []span {
	t.Helper()
	scanned, err := pgquery.Scan(text)
	if err != nil {
		t.Fatalf("scan of what was parsed, %q: %v", text, err)
	}
	var all []span
	for _, tok := range scanned.Tokens {
		if tok.Token != pgquery.Token_SQL_COMMENT && tok.Token != pgquery.Token_C_COMMENT {
			all = append(all, span{int(tok.Start), int(tok.End)})
		}
	}
	return all
}

// writes returns what in a statement's tree writes, or "".
func (o *oracle) writes(tree *pgquery.Node) string {
	switch n := tree.Node.(type) {
	case *pgquery.Node_SelectStmt, *pgquery.Node_ClosePortalStmt:
	case *pgquery.Node_ExplainStmt:
		for _, opt := range n.ExplainStmt.Options {
			if opt.GetDefElem().GetDefname() == "analyze" {
				return o.writes(n.ExplainStmt.Query)
			}
		}
		return ""
	case *pgquery.Node_DeclareCursorStmt:
		const withHold = 0x20 // CURSOR_OPT_HOLD, src/include/nodes/parsenodes.h
		if n.DeclareCursorStmt.Options&withHold != 0 {
			return "WITH HOLD"
		}
	case *pgquery.Node_CopyStmt:
		if c := n.CopyStmt; c.IsFrom || c.IsProgram || c.Filename != "" {
			return "COPY"
		}
	default:
		return fmt.Sprintf("%T", n)
	}
	return o.walk(tree.ProtoReflect())
}

// walk looks for writes in every message below m.
func (o *oracle) walk(m protoreflect.Message) string {
	switch name := m.Descriptor().Name(); name {
	case "InsertStmt", "UpdateStmt", "DeleteStmt", "MergeStmt", "IntoClause", "LockingClause":
		return string(name)
	case "FuncCall":
		if bad := o.call(m.Interface().(*pgquery.FuncCall)); bad != "" {
			return bad
		}
	case "RangeTableSample":
		method := names(m.Interface().(*pgquery.RangeTableSample).Method)
		if len(method) != 1 || method[0] != "bernoulli" && method[0] != "system" {
			return "TABLESAMPLE " + strings.Join(method, ".")
		}
	}
	found := ""
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.Message() == nil:
		case f.IsList():
			for i := 0; i < v.List().Len() && found == ""; i++ {
				found = o.walk(v.List().Get(i).Message())
			}
		default:
			found = o.walk(v.Message())
		}
		return found == ""
	})
	return found
}

// call returns the name of a function that may write. The grammar makes calls
// of some constructs itself: EXTRACT(…), AT TIME ZONE, LIKE … ESCAPE.
func (o *oracle) call(c *pgquery.FuncCall) string {
	parts := names(c.Funcname)
	name := parts[len(parts)-1]
	catalog := len(parts) == 1 || len(parts) == 2 && parts[0] == "pg_catalog"
	if catalog && (c.Funcformat == pgquery.CoercionForm_COERCE_SQL_SYNTAX || o.harmless(name)) {
		return ""
	}
	return strings.Join(parts, ".") + "()"
}

func names(nodes []*pgquery.Node) []string {
	var all []string
	for _, n := range nodes {
		all = append(all, n.GetString_().GetSval())
	}
	return all
}

// judge compares Split with the grammar. It reports whether the grammar takes
// the text at all.
func (o *oracle) judge(t testing.TB, text string) bool {
	t.Helper()
	want, trees, ok := o.statements(t, text)
	if !ok {
		return false
	}
	statements, err := sqlrewrite.Split(nil, []byte(text), sqlrewrite.Options{})
	if err != nil {
		t.Errorf("Split(%q): %v, but the grammar takes it", text, err)
		return true
	}
	var got []span
	for _, s := range statements {
		got = append(got, span{s.Start, s.End})
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Split(%q) (-grammar +got):\n%s", text, diff)
		return true
	}
	for i, s := range statements {
		if s.Class != sqlrewrite.Read {
			continue
		}
		if what := o.writes(trees[i]); what != "" {
			t.Errorf("%q is a read, but the grammar sees %s", text[s.Start:s.End], what)
		}
	}
	return true
}

// TestSplit_Grammar compares the whole corpus with PostgreSQL's grammar.
func TestSplit_Grammar(t *testing.T) {
	o := newOracle(t)
	statements := 0
	for _, text := range wholeCorpus(t) {
		if !o.judge(t, text) {
			t.Errorf("the grammar refuses %q", text)
			continue
		}
		statements += len(split(t, text, sqlrewrite.Options{}))
	}
	if statements < 500 {
		t.Errorf("the grammar took %d statements, want at least 500", statements)
	}
}

// TestSplit_Refused: text that the grammar refuses is split somehow, or is
// unterminated; it never panics, and PostgreSQL runs none of it either way.
func TestSplit_Refused(t *testing.T) {
	o := newOracle(t)
	for _, text := range corpus(t, "refused.sql") {
		if o.judge(t, text) {
			t.Errorf("the grammar takes %q", text)
		}
		_, err := sqlrewrite.Split(nil, []byte(text), sqlrewrite.Options{})
		if got, want := errors.Is(err, sqlrewrite.ErrUnterminated), strings.Contains(text, "unterminated"); got != want {
			t.Errorf("Split(%q): %v, want unterminated: %t", text, err, want)
		}
	}
}

// TestSplit_Functions: no function of pg_catalog that may write is on the list
// of those without side effects.
func TestSplit_Functions(t *testing.T) {
	o := newOracle(t)
	reads := 0
	for name := range o.volatility {
		s := one(t, "SELECT "+name+"(1)", sqlrewrite.Options{})
		if s.Class != sqlrewrite.Read {
			continue
		}
		if reads++; !o.harmless(name) {
			t.Errorf("%s() is a read", name)
		}
	}
	if reads < 400 {
		t.Errorf("%d functions are reads, want at least 400: is the list gone?", reads)
	}
}
