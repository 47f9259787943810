package main

import (
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fenceproxy/fenceproxy/testharness/command"
)

// root of the repository, from the folder that this test runs in.
const root = "../.."

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, file))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// Each mutant fits the source as it is, so that none is forgotten when the code
// around it changes.
func TestAll_Apply(t *testing.T) {
	seen, of := map[string]bool{}, map[invariant]int{}
	for _, m := range all() {
		if seen[m.name] {
			t.Errorf("two mutants are named %s", m.name)
		}
		seen[m.name] = true
		of[m.breaks]++
		if m.test.says == "" {
			t.Errorf("%s: its test may go red for any reason", m.name)
		}
		texts := map[string]string{}
		for _, e := range m.edits {
			if texts[e.file] == "" {
				texts[e.file] = read(t, e.file)
			}
			changed, err := e.apply(texts[e.file])
			if err != nil {
				t.Errorf("%s: %v", m.name, err)
				continue
			}
			texts[e.file] = changed
		}
	}
	for _, i := range invariants() {
		if of[i] == 0 {
			t.Errorf("no mutant breaks %s", i)
		}
	}
	listed := 0
	for _, some := range parts() {
		listed += len(some)
	}
	if len(all()) != listed {
		t.Errorf("got %d mutants sorted by invariant, want all %d", len(all()), listed)
	}
}

// testsIn returns the names of the tests in a folder.
func testsIn(t *testing.T, folder string) map[string]bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, folder, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range parsed.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil {
				names[f.Name.Name] = true
			}
		}
	}
	return names
}

// The table of mutants in docs/proof.md is what there is.
func TestProof(t *testing.T) {
	if want := table(all()); !strings.Contains(read(t, "docs/proof.md"), want) {
		t.Errorf("docs/proof.md has not the table that `go run ./testharness/mutants -list` prints:\n%s", want)
	}
}

// The tests that pages name are there.
func TestProof_Tests(t *testing.T) {
	pages, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	in, named := map[string]map[string]bool{}, 0
	for _, page := range pages {
		page := "docs/" + filepath.Base(page)
		for _, name := range regexp.MustCompile("`([a-z/]+)\\.(Test\\w+)`").FindAllStringSubmatch(read(t, page), -1) {
			folder, test := name[1], name[2]
			if in[folder] == nil {
				in[folder] = testsIn(t, folder)
			}
			if !in[folder][test] {
				t.Errorf("%s names %s.%s, which isn't there", page, folder, test)
			}
			named++
		}
	}
	if named == 0 {
		t.Error("no page names a test")
	}
}

// Every case has a test.
func TestProof_Cases(t *testing.T) {
	var got, want []string
	for line := range strings.Lines(read(t, "docs/proof.md")) {
		number, rest, _ := strings.Cut(strings.TrimPrefix(line, "| "), " | ")
		if _, err := strconv.Atoi(number); err != nil || !strings.Contains(rest, ".Test") {
			continue
		}
		got = append(got, number)
	}
	for i := range 25 {
		want = append(want, strconv.Itoa(i+1))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("cases with a test (-want +got):\n%s", diff)
	}
}

func TestEdit_Apply(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"once":  {"a b", "c b"},
		"never": {"b", ""},
		"twice": {"a a", ""},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := edit{"f", "a", "c"}.apply(c.text)
			if got != c.want || (err == nil) != (c.want != "") {
				t.Errorf("got %q, %v, want %q", got, err, c.want)
			}
		})
	}
}

// A chaos run is of one mutant.
func TestRun_BuildsOne(t *testing.T) {
	var said strings.Builder
	err := run(t.Context(), []string{"-build", t.TempDir()}, io.Discard, &said)
	if !errors.Is(err, command.ErrUsage) || !strings.Contains(said.String(), "one mutant") {
		t.Errorf("got %v and %q, want it to ask for one mutant", err, said.String())
	}
}
