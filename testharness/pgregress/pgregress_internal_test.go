package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseRegress(t *testing.T) {
	got := parseRegress(`(using postmaster on 127.0.0.1, port 5432)
============== dropping database "regression"         ==============
test test_setup                   ... ok         1234 ms
parallel group (3 tests):  char boolean strings
     boolean                      ... ok           56 ms
     char                         ... FAILED       78 ms
     strings                      ... FAILED (test process exited with exit code 2)       78 ms
test stats                        ... failed (ignored)       78 ms
========================
 2 of 5 tests failed.
`)
	var want []result
	for _, test := range []struct {
		name   string
		passed bool
	}{{"test_setup", true}, {"boolean", true}, {"char", false}, {"strings", false}, {"stats", false}} {
		want = append(want, result{test: test.name, passed: test.passed})
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(result{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestReadExpected(t *testing.T) {
	found, err := readExpected()
	if err != nil {
		t.Fatal(err)
	}
	if got, want := found["regress"]["prepared_xacts"], "PREPARE TRANSACTION is refused"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	for name := range found {
		if name != "regress" && name != "isolation" {
			t.Errorf("testdata/tagged has a suite %q, which isn't run tagged", name)
		}
	}
	if _, err := parseExpected("regress boolean\n"); err == nil {
		t.Error("a line without a reason: got nil, want an error")
	}
}

func TestFenceable(t *testing.T) {
	for sql, want := range map[string]string{
		"VACUUM ANALYZE tenk1;": "ANALYZE tenk1;",
		"VACUUM;":               "ANALYZE;",
		"vacuum (freeze, disable_page_skipping) a.b;":  "ANALYZE a.b;",
		"VACUUM FULL FREEZE t(a, b);":                  "ANALYZE t(a, b);",
		"CREATE INDEX CONCURRENTLY i ON t (a);":        "CREATE INDEX i ON t (a);",
		"drop index concurrently i;":                   "drop index i;",
		"REFRESH MATERIALIZED VIEW CONCURRENTLY m;":    "REFRESH MATERIALIZED VIEW CONCURRENTLY m;",
		"-- VACUUM t;\nSELECT 1;\n":                    "-- VACUUM t;\nSELECT 1;\n",
		"ALTER TABLE t SET (vacuum_truncate = false);": "ALTER TABLE t SET (vacuum_truncate = false);",
	} {
		if got := fenceable(sql); got != want {
			t.Errorf("%s: got %q, want %q", sql, got, want)
		}
	}
}

// file writes a file and returns where it is.
func file(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "out")
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return name
}

func TestCompare(t *testing.T) {
	known := differences{"s": {"t": "because"}}
	a, b := file(t, "a"), file(t, "b")
	for _, c := range []struct {
		name            string
		direct, through []result
		leg             leg
		exact           bool
		known           differences
		wrong           string // why, of the one that is wrong
		expected        int
	}{
		{name: "both pass", direct: []result{{"t", true, a}}, through: []result{{"t", true, b}}, leg: proxied},
		{name: "both fail alike", direct: []result{{"t", false, a}}, through: []result{{"t", false, a}}, leg: proxied},
		{name: "both fail", direct: []result{{"t", false, a}}, through: []result{{"t", false, b}}, leg: proxied, wrong: "fails straight, and in another way through the proxy"},
		{name: "one fails straight", direct: []result{{"t", false, a}}, through: []result{{"t", true, b}}, leg: proxied},
		{name: "one fails through the proxy", direct: []result{{"t", true, a}}, through: []result{{"t", false, b}}, leg: proxied, known: known, wrong: "fails only through the proxy"},
		{name: "known where tagged", direct: []result{{"t", true, a}}, through: []result{{"t", false, b}}, leg: tagged, known: known, expected: 1},
		{name: "known, and passes", direct: []result{{"t", true, a}}, through: []result{{"t", true, b}}, leg: tagged, known: known, wrong: "passes, against what testdata/tagged says"},
		{name: "another output", direct: []result{{"t", true, a}}, through: []result{{"t", true, b}}, leg: proxied, exact: true, wrong: "says something else through the proxy"},
		{name: "the same output", direct: []result{{"t", true, a}}, through: []result{{"t", true, a}}, leg: proxied, exact: true},
		{name: "not run through the proxy", direct: []result{{"t", true, a}}, leg: proxied, wrong: "didn't run through the proxy"},
		{name: "not run straight", through: []result{{"t", true, a}}, leg: proxied, wrong: "didn't run straight"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, err := compare(suite{name: "s", exact: c.exact}, c.leg, c.direct, c.through, c.known)
			if err != nil {
				t.Fatal(err)
			}
			got := ""
			for _, w := range r.wrong {
				got += w.why
			}
			if got != c.wrong || len(r.expected) != c.expected {
				t.Errorf("got %q and %d expected, want %q and %d", got, len(r.expected), c.wrong, c.expected)
			}
			var table bytes.Buffer
			if err := report(&table, []row{r}, "/out"); errors.Is(err, errDiffers) != (c.wrong != "") {
				t.Errorf("got %v", err)
			}
			if !strings.Contains(table.String(), c.wrong) {
				t.Errorf("the report doesn't tell:\n%s", table.String())
			}
		})
	}
}
