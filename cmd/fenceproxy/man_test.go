package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// manText is what people read of a page, with one space between words. mandoc also
// says whether it is well made.
func manText(t testing.TB, path string) string {
	t.Helper()
	if out, err := exec.Command("mandoc", "-Tlint", "-Wwarning", path).CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("%v\n%s", err, out)
	}
	out, err := exec.Command("mandoc", "-Tascii", "-Kutf-8", "-Owidth=200", path).Output()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	var plain strings.Builder
	for i := range len(out) {
		// What is bold is written twice, with a backspace between.
		if out[i] != '\b' && (i+1 == len(out) || out[i+1] != '\b') {
			plain.WriteByte(out[i])
		}
	}
	return strings.Join(strings.Fields(plain.String()), " ")
}

// Each page has all that the help text has, since both are made of the same.
func TestMan_Pages(t *testing.T) {
	dir := t.TempDir()
	if code, _, stderr := program(t, []string{"SOURCE_DATE_EPOCH=86400"}, "man", dir); code != 0 {
		t.Fatalf("got exit %d: %s", code, stderr)
	}
	root := newRoot(environment{lookup: os.LookupEnv})
	for _, cmd := range append(root.Commands(), root) {
		if !cmd.IsAvailableCommand() && cmd != root {
			continue
		}
		path := filepath.Join(dir, strings.ReplaceAll(cmd.CommandPath(), " ", "-")+".1")
		shown := manText(t, path)
		for _, want := range []string{cmd.Short, "1970-01-02", "User Commands"} {
			if !strings.Contains(shown, want) {
				t.Errorf("%s doesn't have %q", path, want)
			}
		}
		for _, text := range []string{cmd.Long, cmd.Example} {
			if words := strings.Fields(text); !strings.Contains(shown, strings.Join(words, " ")) {
				t.Errorf("%s doesn't have the text of --help:\n%s", path, shown)
			}
		}
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if _, usage := pflag.UnquoteUsage(f); !strings.Contains(shown, "--"+f.Name+" ") || !strings.Contains(shown, usage) {
				t.Errorf("%s doesn't have --%s", path, f.Name)
			}
		})
	}
}

func TestRoff_Text(t *testing.T) {
	for text, want := range map[string]string{`a\b`: `a\eb`, ".de": `\&.de`, "'br": `\&'br`, "--flag": `\-\-flag`, "a. b'c": "a. b'c"} {
		if got := roffText(text); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}
