package scenario_test

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/fenceproxy/fenceproxy/testharness/scenario"
)

// row is a story's line in the table of docs/scenarios.md.
func row(s scenario.Story) string {
	number := ""
	if s.Case > 0 {
		number = fmt.Sprint(s.Case)
	}
	controls := make([]string, len(s.Controls))
	for i, arm := range s.Controls {
		controls[i] = arm.Short()
	}
	codes := make([]string, len(s.Codes))
	for i, code := range s.Codes {
		codes[i] = string(code)
	}
	return fmt.Sprintf("| `%s` | %s | %s | %s | %s |", s.Name, number, s.Title, strings.Join(controls, ", "), strings.Join(codes, ", "))
}

// The table of the documentation is that of the stories, line by line.
func TestStories_Documented(t *testing.T) {
	text, err := os.ReadFile("../../docs/scenarios.md")
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]bool{}
	for _, line := range strings.Split(string(text), "\n") {
		if strings.HasPrefix(line, "| `") {
			got[line] = true
		}
	}
	for _, s := range scenario.Stories() {
		if want := row(s); !got[want] {
			t.Errorf("docs/scenarios.md lacks\n%s", want)
		}
	}
	if len(got) != len(scenario.Stories()) {
		t.Errorf("got %d lines in the table, want %d", len(got), len(scenario.Stories()))
	}
}

// Each way in which lock holders go wrong, as docs/proof.md numbers them, can be
// watched.
func TestStories_EveryCase(t *testing.T) {
	text, err := os.ReadFile("../../docs/proof.md")
	if err != nil {
		t.Fatal(err)
	}
	told := map[string]bool{}
	for _, s := range scenario.Stories() {
		told[fmt.Sprint(s.Case)] = true
	}
	cases := regexp.MustCompile(`(?m)^\| (\d+) \|`).FindAllStringSubmatch(string(text), -1)
	if len(cases) < 25 {
		t.Fatalf("got %d cases in docs/proof.md, want 25 at least", len(cases))
	}
	for _, c := range cases {
		if !told[c[1]] {
			t.Errorf("case %s has no scenario", c[1])
		}
	}
}
