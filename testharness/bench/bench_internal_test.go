package main

import (
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/fenceproxy/fenceproxy/testharness/command"
)

var nan = math.NaN()

// round is a sample of a rate and a p99.
func round(perSecond, slow float64) sample {
	s := nothing()
	s[rate], s[p99] = perSecond, slow
	return s
}

// rowOf is what a contender did in rounds.
func rowOf(workloadName string, clients int, name string, rounds ...sample) row {
	return row{workload: &workload{name: workloadName, clients: clients}, contender: contender{name: name}, rounds: rounds}
}

func TestSpreadOf(t *testing.T) {
	for _, c := range []struct {
		name   string
		values []float64
		want   spread
	}{
		{"one", []float64{2}, spread{2, 2, 2}},
		{"odd", []float64{9, 1, 2}, spread{2, 1, 9}},
		{"even", []float64{4, 1, 2, 9}, spread{3, 1, 9}},
		{"some not measured", []float64{nan, 1, nan, 3, 2}, spread{2, 1, 3}},
		{"none", []float64{nan}, spread{nan, nan, nan}},
	} {
		if diff := cmp.Diff(c.want, spreadOf(c.values), cmp.AllowUnexported(spread{}), cmpopts.EquateNaNs()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
	}
}

func TestSample_Took(t *testing.T) {
	var times []time.Duration
	for i := 150; i > 0; i-- {
		times = append(times, time.Duration(i)*time.Millisecond)
	}
	s := nothing()
	s.took(times)
	if s[p50] != 75 || s[p99] != 149 {
		t.Errorf("got %v and %v ms, want 75 and 149", s[p50], s[p99])
	}
}

// A ratio is of the same rounds: one that the machine slowed down for both
// changes nothing.
func TestRow_Against(t *testing.T) {
	ours := rowOf("w", 1, "a", round(80, nan), round(8, nan), round(90, nan))
	theirs := rowOf("w", 1, "b", round(100, nan), round(10, nan), round(100, nan))
	want := spread{0.8, 0.8, 0.9}
	if got := ours.against(theirs, rate); got != want {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestReadTimes(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	from, to := time.Unix(1700000000, 500_000_000), time.Unix(1700000001, 0)
	read := func() ([]time.Duration, error) { return readTimes(filepath.Join(dir, "log.*"), from, to) }
	write("log.1", "0 1 70 0 1700000000 499999\n0 2 250 0 1700000000 500000\n0 3 100 0 1700000000 999999\n0 4 80 0 1700000001 0\n")
	write("log.1.1", "1 1 3000 0 1700000000 700000\n")
	got, err := read()
	want := []time.Duration{250 * time.Microsecond, 100 * time.Microsecond, 3 * time.Millisecond}
	if err != nil || !cmp.Equal(got, want) {
		t.Errorf("got %v, %v, want %v", got, err, want)
	}
	for name, text := range map[string]string{"no time": "0 1\n", "one that failed": "0 1 failed 0 1700000000 700000\n"} {
		write("log.2", text)
		if _, err := read(); err == nil {
			t.Errorf("%s: got nil, want an error", name)
		}
	}
}

func parsed(t *testing.T, args ...string) options {
	t.Helper()
	o, err := parse(args, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// ids are the rows that options select.
func ids(t *testing.T, o options) []string {
	t.Helper()
	some, err := selected(plan(o), o)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, w := range some {
		for _, c := range w.contenders {
			all = append(all, w.id(c))
		}
	}
	return all
}

func TestSelected(t *testing.T) {
	got := ids(t, parsed(t, "-only", `^select, prepared/(8|32)/(direct|fenceproxy tagged)$`))
	want := []string{
		"select, prepared/8/direct", "select, prepared/8/fenceproxy tagged",
		"select, prepared/32/direct", "select, prepared/32/fenceproxy tagged",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	all, quick := ids(t, parsed(t)), ids(t, parsed(t, "-quick"))
	if len(quick) == 0 || len(quick) > len(all)/3 {
		t.Errorf("got %d rows in a quick run, of %d", len(quick), len(all))
	}
	seen := map[string]bool{}
	for _, id := range all {
		if seen[id] {
			t.Errorf("there are two rows %q", id)
		}
		seen[id] = true
	}
	for _, only := range []string{"no such row", "("} {
		o := parsed(t, "-only", only)
		if _, err := selected(plan(o), o); err == nil {
			t.Errorf("%q: got nil, want an error", only)
		}
	}
}

// Every goal is about rows that a full run has.
func TestGoals_HaveRows(t *testing.T) {
	o := parsed(t)
	have := map[string]bool{}
	for _, id := range ids(t, o) {
		have[id] = true
	}
	for _, g := range goals(o) {
		if (len(g.points) == 0) == (g.elsewhere == "") {
			t.Errorf("%s: it is measured nowhere, or twice", g.what)
		}
		for _, p := range g.points {
			for _, name := range []string{p.name, p.against} {
				w := &workload{name: p.workload, clients: p.clients}
				if id := w.id(contender{name: name}); name != "" && !have[id] {
					t.Errorf("%s: there is no row %q", g.what, id)
				}
			}
		}
	}
}

func TestReached(t *testing.T) {
	o := options{quick: true}
	rows := []row{
		rowOf(selectPrepared, 8, "PgBouncer", round(100, 2), round(100, 2)),
		rowOf(selectPrepared, 8, "fenceproxy", round(120, 2.2), round(110, 2)),
		rowOf(takeoverName, 1, holders()[0].name, round(nan, 300)),
		rowOf(takeoverName, 1, holders()[1].name, round(nan, 300.1)),
	}
	var got []string
	for _, cells := range reached(rows, o)[1:] {
		got = append(got, strings.Join(cells[1:], ": "))
	}
	want := []string{
		"≥ 1: select, prepared, 8: fenceproxy: 1.15 (1.10–1.20): met",
		"≤ 1: select, prepared, 8: fenceproxy: 1.05 (1.00–1.10): **not met** ([why](fast-path.md#what-a-relayed-message-costs))",
		"≤ 300 ms: takeover, 1: holder at the same fenceproxy: 300.00 (300.00–300.00): met",
		"≤ 300 ms: takeover, 1: holder at another fenceproxy: 300.10 (300.10–300.10): **not met** ([why](fast-path.md#what-a-takeover-waits-for))",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	// A page tells of what was not measured, too.
	if full := reached(rows, options{}); len(full) < 20 || full[1][4] != "not measured by this run" {
		t.Errorf("got %d rows, the first %v", len(full), full[1])
	}
}

func TestPage(t *testing.T) {
	failed := rowOf("update", 1, "HAProxy")
	failed.err = errors.New("it ended")
	rows := []row{
		rowOf("update", 1, "direct", round(1000, 2.5), round(1100, 2.5), round(900, 2.5)),
		rowOf("update", 1, "fenceproxy", round(500, 5), round(550, 5), round(630, 5)),
		failed,
	}
	want := strings.TrimPrefix(`
| workload | clients | way        | a second  | of direct        | p50 ms | p99 ms | CPU µs | user | kB |
|----------|---------|------------|-----------|------------------|--------|--------|--------|------|----|
| update   | 1       | direct     | 1000 ±10% | 1.00 (1.00–1.00) | –      | 2.500  | –      | –    | –  |
| update   | 1       | fenceproxy | 550 ±12%  | 0.50 (0.50–0.70) | –      | 5.000  | –      | –    | –  |
| update   | 1       | HAProxy    | –         | failed           | –      | –      | –      | –    | –  |

update/1/HAProxy failed: it ended
`, "\n")
	got := page([]fact{{"machine", "a fast one"}}, options{}, rows)
	if !strings.Contains(got, want) {
		t.Errorf("got %s\nwant in it %s", got, want)
	}
	for name := range scripts {
		if strings.Contains(scripts[name], "\t") {
			t.Errorf("script %q has a tab", name)
		}
	}
}

// A goal that isn't reached names a heading that is there.
func TestGoals_Why(t *testing.T) {
	for _, g := range goals(parsed(t)) {
		if g.elsewhere != "" {
			continue
		}
		file, anchor, _ := strings.Cut(g.why, "#")
		text, err := os.ReadFile(filepath.Join("../../docs", file))
		if err != nil {
			t.Fatal(err)
		}
		found := false
		for _, match := range regexp.MustCompile(`(?m)^## (.*)$`).FindAllStringSubmatch(string(text), -1) {
			heading := strings.ReplaceAll(strings.ToLower(match[1]), ",", "")
			found = found || strings.ReplaceAll(heading, " ", "-") == anchor
		}
		if !found {
			t.Errorf("%s: %s has no heading %s", g.what, file, anchor)
		}
	}
}

// What the page says of the command is what the Makefile has.
func TestPage_Targets(t *testing.T) {
	makefile, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	text := page(nil, parsed(t), nil)
	for _, match := range regexp.MustCompile("`(?:make )?(bench[a-z-]*)").FindAllStringSubmatch(text, -1) {
		if !strings.Contains(string(makefile), "\n"+match[1]+": ") {
			t.Errorf("the page names the target %s, and the Makefile doesn't have it", match[1])
		}
	}
}

func TestOptions_WholePage(t *testing.T) {
	for _, c := range []struct {
		args []string
		want bool
	}{
		{nil, true},
		{[]string{"-rounds", "5", "-seconds", "1"}, true},
		{[]string{"-rounds", "4"}, false},
		{[]string{"-only", "update"}, false},
		{[]string{"-quick", "-rounds", "5"}, false},
	} {
		if got := parsed(t, c.args...).wholePage(); got != c.want {
			t.Errorf("%q: got %v, want %v", c.args, got, c.want)
		}
	}
}

func TestRun_Usage(t *testing.T) {
	for _, args := range [][]string{{"-nonsense"}, {"argument"}, {"-rounds", "-1"}} {
		if err := run(t.Context(), args, io.Discard, io.Discard); !errors.Is(err, command.ErrUsage) {
			t.Errorf("%q: got %v, want a usage error", args, err)
		}
	}
}
