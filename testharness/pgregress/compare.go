package main

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
)

// differences are the tests of each suite that may fail in a tagged session,
// and why.
type differences map[string]map[string]string

//go:embed testdata/tagged
var taggedDifferences string

// readExpected reads lines of `suite test reason`; # begins a comment.
func readExpected() (differences, error) { return parseExpected(taggedDifferences) }

func parseExpected(text string) (differences, error) {
	found := differences{}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		fields := strings.SplitN(line, " ", 3)
		if len(fields) < 3 {
			return nil, fmt.Errorf("testdata/tagged: %q is not `suite test reason`", line)
		}
		if found[fields[0]] == nil {
			found[fields[0]] = map[string]string{}
		}
		found[fields[0]][fields[1]] = fields[2]
	}
	return found, nil
}

// A row is what the proxy made of a suite.
type row struct {
	suite    string
	leg      leg
	tests    int
	straight []string // tests that fail on the straight leg
	proxied  []string // tests that fail on the leg of the proxy
	expected []string // those that testdata says differ, and do
	wrong    []wrong
}

// A wrong is a test that the row fails for.
type wrong struct{ test, why, output string }

// compare holds the results of a leg of the proxy against those of the leg
// beside it.
func compare(s suite, l leg, direct, through []result, expected differences) (row, error) {
	r := row{suite: s.name, leg: l, tests: len(through)}
	before := map[string]result{}
	for _, d := range direct {
		before[d.test] = d
		if !d.passed {
			r.straight = append(r.straight, d.test)
		}
	}
	for _, p := range through {
		if !p.passed {
			r.proxied = append(r.proxied, p.test)
		}
		why, err := difference(s, before, p)
		if err != nil {
			return r, err
		}
		delete(before, p.test)
		_, known := expected[s.name][p.test]
		known = known && l == tagged
		switch {
		case why != "" && known:
			r.expected = append(r.expected, p.test)
		case why != "":
			r.wrong = append(r.wrong, wrong{p.test, why, p.output})
		case known:
			r.wrong = append(r.wrong, wrong{p.test, "passes, against what testdata/tagged says", p.output})
		}
	}
	for _, d := range direct {
		if _, left := before[d.test]; left {
			r.wrong = append(r.wrong, wrong{d.test, "didn't run through the proxy", d.output})
		}
	}
	return r, nil
}

// difference says what the proxy changed about a test; "" is nothing.
func difference(s suite, direct map[string]result, p result) (string, error) {
	d, found := direct[p.test]
	switch {
	case !found:
		return "didn't run straight", nil
	case d.passed && !p.passed:
		return "fails only through the proxy", nil
	case !s.exact && (p.passed || d.output == ""):
		return "", nil
	}
	same, err := sameText(d.output, p.output)
	switch {
	case err != nil:
		return "", err
	case same:
		return "", nil
	case p.passed:
		return "says something else through the proxy", nil
	default:
		return "fails straight, and in another way through the proxy", nil
	}
}

// sameText compares two files. One that isn't there is empty.
func sameText(a, b string) (bool, error) {
	var texts [2][]byte
	for i, name := range []string{a, b} {
		text, err := os.ReadFile(name)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return false, fmt.Errorf("compare outputs: %w", err)
		}
		texts[i] = text
	}
	return bytes.Equal(texts[0], texts[1]), nil
}

// report prints the table, and what is wrong below it.
func report(w io.Writer, rows []row, out string) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "suite\tsession\ttests\tfailed straight\tfailed proxied\tdiffer as known\tdiffer")
	bad := false
	for _, r := range rows {
		session := "untagged"
		if r.leg == tagged {
			session = "tagged"
		}
		fmt.Fprintf(table, "%s\t%s\t%d\t%d\t%d\t%d\t%d\n", r.suite, session, r.tests, len(r.straight), len(r.proxied), len(r.expected), len(r.wrong))
		bad = bad || len(r.wrong) > 0
	}
	if err := table.Flush(); err != nil {
		return err
	}
	for _, r := range rows {
		slices.Sort(r.straight)
		if len(r.straight) > 0 {
			fmt.Fprintf(w, "\n%s, %v: fail without the proxy too: %s\n", r.suite, r.leg, strings.Join(r.straight, ", "))
		}
		for _, found := range r.wrong {
			fmt.Fprintf(w, "\n%s, %v: %s: %s\n  %s\n", r.suite, r.leg, found.test, found.why, found.output)
		}
	}
	if bad {
		fmt.Fprintf(w, "\nThe output of all legs, with pg_regress's regression.diffs, is in %s\n", out)
		return errDiffers
	}
	return nil
}
