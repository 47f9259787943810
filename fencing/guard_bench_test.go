package fencing_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fenceproxy/fenceproxy/fencing"
	"github.com/fenceproxy/fenceproxy/testharness/postgres"
)

// guardWork is what BenchmarkGuard times: statements over rows of one key, on
// a table that is named w.
var guardWork = []struct {
	name string
	rows int
	run  func(ctx context.Context, conn *pgx.Conn, w string, rows int) error
}{
	{"INSERT", 1, insertRows}, {"INSERT", 1000, insertRows}, {"INSERT", 100_000, insertRows},
	{"UPDATE", 1, updateRows}, {"UPDATE", 1000, updateRows}, {"UPDATE", 100_000, updateRows},
	{"COPY", 1000, copyRows}, {"COPY", 100_000, copyRows},
}

func insertRows(ctx context.Context, conn *pgx.Conn, w string, rows int) error {
	_, err := conn.Exec(ctx, fmt.Sprintf("INSERT INTO %s SELECT n, 1, 'some text' FROM generate_series(1, %d) AS n", w, rows))
	return err
}

func updateRows(ctx context.Context, conn *pgx.Conn, w string, rows int) error {
	_, err := conn.Exec(ctx, fmt.Sprintf("UPDATE %s SET v = 'another' WHERE id BETWEEN -%d AND -1", w, rows))
	return err
}

func copyRows(ctx context.Context, conn *pgx.Conn, w string, rows int) error {
	var text strings.Builder
	for n := range rows {
		fmt.Fprintf(&text, "%d\t1\tsome text\n", n+1)
	}
	_, err := conn.PgConn().CopyFrom(ctx, strings.NewReader(text.String()), "COPY "+w+" FROM STDIN")
	return err
}

// BenchmarkGuard prints the table of docs/guards.md: what a row costs in tables
// with and without a guard, side by side, each the median of several rounds.
func BenchmarkGuard(b *testing.B) {
	srv := postgres.New(b, postgres.Options{})
	conn, err := pgx.Connect(b.Context(), srv.DSN(postgres.Superuser, "postgres")+"&default_query_exec_mode=simple_protocol")
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Close(context.Background())
	exec := func(sql string) {
		if _, err := conn.Exec(b.Context(), sql); err != nil {
			b.Fatalf("%s: %v", sql, err)
		}
	}
	if _, _, err := fencing.Install(b.Context(), conn); err != nil {
		b.Fatal(err)
	}
	exec("INSERT INTO fence.mark VALUES ('order:1', 42, '', 1, now(), ''); SET fence.key = 'order:1'; SET fence.token = 42")
	for _, w := range []string{"plain", "guarded"} {
		exec("CREATE TABLE " + w + " (id int PRIMARY KEY, k int, v text)")
		exec("CREATE TABLE " + w + "_parts (id int PRIMARY KEY, k int, v text) PARTITION BY RANGE (id)")
		exec("CREATE TABLE " + w + "_part PARTITION OF " + w + "_parts DEFAULT")
		for _, kind := range []string{"", "_parts"} {
			exec("INSERT INTO " + w + kind + " SELECT -n, 1, 'some text' FROM generate_series(1, 100000) AS n; ANALYZE " + w + kind)
		}
	}
	for _, w := range []string{"guarded", "guarded_parts"} {
		if _, err := protect(b.Context(), conn, w, "order:{k}"); err != nil {
			b.Fatal(err)
		}
	}
	fmt.Println("| statement | rows | table | guarded | | partitioned | guarded | |\n|---|---|---|---|---|---|---|---|")
	for _, work := range guardWork {
		var cells []string
		for _, kind := range []string{"", "_parts"} {
			exec("VACUUM plain" + kind + ", guarded" + kind) // what was undone before
			plain, guarded := sideBySide(exec, func(w string) time.Duration {
				begin := time.Now()
				if err := work.run(b.Context(), conn, w+kind, work.rows); err != nil {
					b.Fatal(err)
				}
				return time.Since(begin)
			}, work.rows)
			cells = append(cells, perRow(plain, work.rows), perRow(guarded, work.rows), fmt.Sprintf("× %.2f", float64(guarded)/float64(plain)))
		}
		fmt.Printf("| `%s` | %d | %s |\n", work.name, work.rows, strings.Join(cells, " | "))
	}
}

func perRow(d time.Duration, rows int) string {
	return fmt.Sprintf("%.2f µs", float64(d.Nanoseconds())/float64(rows)/1000)
}

// sideBySide times a statement in both tables by turns, each in a transaction
// that is undone, and returns the medians.
func sideBySide(exec func(string), timed func(w string) time.Duration, rows int) (plain, guarded time.Duration) {
	rounds := 3
	if rows < 100_000 {
		rounds = 31
	}
	took := map[string][]time.Duration{}
	for range rounds {
		for _, w := range []string{"plain", "guarded"} {
			exec("BEGIN")
			took[w] = append(took[w], timed(w))
			exec("ROLLBACK")
		}
	}
	for _, all := range took {
		slices.Sort(all)
	}
	return took["plain"][rounds/2], took["guarded"][rounds/2]
}
