package proxy

import (
	"strings"
	"testing"

	"github.com/fenceproxy/fenceproxy/sqlrewrite"
)

// TestPlanQuery shows the text that goes to the backend, with E for the early
// check and L for the late one, and what each of its statements is for.
func TestPlanQuery(t *testing.T) {
	for _, c := range []struct {
		name, text string
		txn        txn
		want       string
		purposes   string
	}{
		{"write", "DELETE FROM t", txn{}, "E;DELETE FROM t", "early client"},
		{"read", "SELECT 1", txn{}, "SELECT 1\n;L", "client late"},
		{"ends in a comment", "SELECT 1 -- c", txn{}, "SELECT 1 -- c\n;L", "client late"},
		{"ends in a semicolon", "SELECT 1;", txn{}, "SELECT 1;\n;L", "client late"},
		{"nothing", "", txn{}, "", ""},
		{"only a comment", "/* c */;", txn{}, "/* c */;", ""},
		{"read, then write", "SELECT 1; DELETE FROM t", txn{}, "SELECT 1; E;DELETE FROM t", "client early client"},
		{"after a comment", "/* c */ DELETE FROM t", txn{}, "/* c */ E;DELETE FROM t", "early client"},
		{"empty statements don't count", ";;DELETE FROM t;;", txn{}, ";;E;DELETE FROM t;;", "early client"},
		{"transactions", "DELETE FROM t; COMMIT; DELETE FROM t", txn{}, "E;DELETE FROM t; COMMIT; E;DELETE FROM t", "early client client early client"},
		{"block that reads", "BEGIN; SELECT 1; COMMIT", txn{}, "BEGIN; SELECT 1; L;COMMIT", "client client late-commit client"},
		{"block left open", "BEGIN; SELECT 1", txn{}, "BEGIN; SELECT 1", ""},
		{"in a checked block", "DELETE FROM t", txn{block: blockOpen, checked: true}, "DELETE FROM t", ""},
		{"COMMIT of an unchecked block", "COMMIT", txn{block: blockOpen, uncovered: true}, "L;COMMIT", "late-commit client"},
		{"COMMIT of a checked block", "COMMIT", txn{block: blockOpen, checked: true}, "COMMIT", ""},
		{"COMMIT of a failed block", "COMMIT", txn{block: blockFailed}, "COMMIT", ""},
		{"failed block, then more", "ROLLBACK; DELETE FROM t", txn{block: blockFailed}, "ROLLBACK; E;DELETE FROM t", "client early client"},
		{"back to a savepoint", "ROLLBACK TO s; DELETE FROM t", txn{block: blockOpen, checked: true}, "ROLLBACK TO s; E;DELETE FROM t", "client early client"},
		{"tag, then write", "SET fence.key = 'a'; SET fence.token = 1; DELETE FROM t", txn{}, "SET fence.key = 'a'; SET fence.token = 1; E;DELETE FROM t", "client client early client"},
	} {
		t.Run(c.name, func(t *testing.T) {
			stmts, err := sqlrewrite.Split(nil, []byte(c.text), sqlrewrite.Options{})
			if err != nil {
				t.Fatal(err)
			}
			p := planQuery(&c.txn, checks{early: earlySQL, late: lateSQL}, stmts, len(c.text))
			got := string(sqlrewrite.Insert(nil, []byte(c.text), p.insertions))
			got = strings.ReplaceAll(strings.ReplaceAll(got, lateSQL, "L"), earlySQL, "E")
			if got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
			var purposes []string
			for _, purpose := range p.purposes {
				purposes = append(purposes, purpose.String())
			}
			if got := strings.Join(purposes, " "); got != c.purposes {
				t.Errorf("purposes: got %s, want %s", got, c.purposes)
			}
			if got, want := p.lateCommit, strings.Contains(c.purposes, "late-commit"); got != want {
				t.Errorf("late before a COMMIT: got %v, want %v", got, want)
			}
			again, err := sqlrewrite.Split(nil, sqlrewrite.Insert(nil, []byte(c.text), p.insertions), sqlrewrite.Options{})
			if err != nil || p.purposes != nil && len(again) != len(p.purposes) {
				t.Errorf("the new text has %d statements, %v, want %d", len(again), err, len(p.purposes))
			}
		})
	}
}
