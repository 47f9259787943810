package check_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/fenceproxy/fenceproxy/testharness/history"
	"github.com/fenceproxy/fenceproxy/testharness/history/check"
)

// What is printed says what was broken then, unless it was another worker.
func TestReport_Print(t *testing.T) {
	s := takeover()
	op := s.write(10)
	s.Faults = []history.Fault{
		{Kind: "failover", Begin: op.Invoke, End: op.Return},
		{Kind: "pause worker", Target: "w", Worker: true, Begin: op.Invoke - 1, End: op.Invoke},
		{Kind: "pause worker", Target: "another", Worker: true, Begin: op.Invoke, End: op.Return},
		{Kind: "kill proxy", Target: "proxy-1", Begin: op.Return + 1, End: op.Return + 2},
	}
	var out strings.Builder
	check.Check(&s.History, check.NewLimits()).Print(&out)
	piece, _, _ := strings.Cut(out.String()[strings.Index(out.String(), "\nI1 order,"):], "\n\n")
	var got []string
	for line := range strings.Lines(piece) {
		if _, what, ok := strings.Cut(line, "fault: "); ok {
			got = append(got, strings.TrimSpace(what))
		}
	}
	if want := []string{"failover", "pause worker w"}; !slices.Equal(got, want) {
		t.Errorf("got faults %q, want %q, in:\n%s", got, want, piece)
	}
}

// However many reads missed something, what is printed says what one of them
// missed.
func TestReport_PrintExplains(t *testing.T) {
	s := takeover()
	slow := history.Op{Worker: "slow", Seq: 1, Kind: history.KindWrite, Tag: tag(key, 10), Rows: []history.Row{s.row(key, 10, 0)}, Invoke: 1}
	s.Ops = append(s.Ops, slow)
	for range 200 {
		s.read(20)
	}
	s.Tables.Rows = append(s.Tables.Rows, slow.Rows...)
	report := check.Check(&s.History, check.NewLimits())
	if got := len(verdict(report, check.Read).Violations); got < 200 {
		t.Errorf("got %d violations, want 200 at least", got)
	}
	var out strings.Builder
	report.Print(&out)
	if _, piece, _ := strings.Cut(out.String(), "\nI3 read barrier,"); !strings.Contains(piece, "slow write order:1 token 10: row 5") {
		t.Errorf("the write that was missed isn't in it:\n%s", piece)
	}
}
