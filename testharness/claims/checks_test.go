package claims_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fenceproxy/fenceproxy/testharness/environ"
	"github.com/fenceproxy/fenceproxy/testharness/postgres"
)

// fewMarks is what MARKS are measured against.
const fewMarks = 100

// BenchmarkCheck measures checks of one lock, each in a transaction of its own, in
// two databases of one server, with 100 marks and with MARKS of them: in turns, and
// within the server, so that no message is in the figures. Commits don't wait for
// the disk.
func BenchmarkCheck(b *testing.B) {
	const rounds = 11
	n := environ.Int(b, "MARKS", 10_000_000)
	if n < 1 {
		b.Fatalf("MARKS is %d, and a number above 0 is expected", n)
	}
	s := newStack(b)
	const many = "many"
	if err := errors.Join(s.CreateDatabase(b.Context(), many), s.Install(b.Context(), many)); err != nil {
		b.Fatal(err)
	}
	sessions := map[string]*measure{}
	for name, marks := range map[string]int{database: fewMarks, many: n} {
		root, err := pgx.Connect(b.Context(), s.DSN(postgres.Superuser, name))
		if err != nil {
			b.Fatal(err)
		}
		defer root.Close(context.Background())
		m := &measure{b: b, root: root}
		m.exec("SET synchronous_commit = off; SET fence.key = 'held'; SET fence.token = 1")
		m.exec("INSERT INTO fence.mark VALUES ('held', 1, '', 1, now(), '')")
		m.fill(1, marks-1)
		m.exec("VACUUM fence.mark")
		sessions[name] = m
	}
	for b.Loop() {
		var few, lots, ratios []float64
		for range rounds {
			few, lots = append(few, sessions[database].checks()), append(lots, sessions[many].checks())
			ratios = append(ratios, lots[len(lots)-1]/few[len(few)-1])
		}
		b.ReportMetric(median(few), fmt.Sprintf("µs/check-of-%d", fewMarks))
		b.ReportMetric(median(lots), fmt.Sprintf("µs/check-of-%d", n))
		b.ReportMetric(median(ratios), "ratio")
	}
}

// checks returns how many µs a check and its transaction take.
func (m *measure) checks() float64 {
	m.b.Helper()
	const n = 10_000
	began := time.Now()
	m.exec(fmt.Sprintf("DO $$ BEGIN FOR i IN 1..%d LOOP PERFORM fence.check(); COMMIT; END LOOP; END $$", n))
	return float64(time.Since(began).Microseconds()) / n
}
