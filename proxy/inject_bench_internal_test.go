package proxy

import (
	"testing"

	"github.com/fenceproxy/fenceproxy/proxy/queue"
	"github.com/fenceproxy/fenceproxy/sqlrewrite"
)

// BenchmarkInject is what the proxy adds to a fenced write: to the text of a
// Query, and to the messages of a prepared statement.
func BenchmarkInject(b *testing.B) {
	for _, c := range []struct{ name, text string }{
		{"update", "UPDATE pgbench_accounts SET abalance = abalance + -1712 WHERE aid = 87312;"},
		{"select", "SELECT abalance FROM pgbench_accounts WHERE aid = 4711;"},
		{"block", "BEGIN; UPDATE accounts SET balance = balance - 10 WHERE id = 1; UPDATE accounts SET balance = balance + 10 WHERE id = 2; COMMIT"},
	} {
		b.Run("query/"+c.name, func(b *testing.B) {
			text := []byte(c.text)
			stmts, err := sqlrewrite.Split(nil, text, sqlrewrite.Options{})
			if err != nil {
				b.Fatal(err)
			}
			var out []byte
			b.ReportAllocs()
			for b.Loop() {
				var t txn
				p := planQuery(&t, checks{early: earlySQL, late: lateSQL}, stmts, len(text))
				out = sqlrewrite.Insert(out[:0], text, p.insertions)
			}
		})
	}
	b.Run("prepared", func(b *testing.B) {
		var early batch // as a session has it
		b.ReportAllocs()
		for b.Loop() {
			early.reset()
			early.check(queue.Early)
		}
	})
}
