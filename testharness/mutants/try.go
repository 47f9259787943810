package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// testTimeout bounds one run of go test, building included.
const testTimeout = 5 * time.Minute

// tryAll runs the tests as they are, which must be green, and then once for
// each mutant, which must turn its test red.
func tryAll(ctx context.Context, mutants []mutant, out io.Writer) error {
	dir, err := os.MkdirTemp("", "fenceproxy-mutants-")
	if err != nil {
		return fmt.Errorf("make a folder for the mutants: %w", err)
	}
	defer os.RemoveAll(dir)
	if err := tryGreen(ctx, mutants, out); err != nil {
		return err
	}
	var survived []string
	for i, m := range mutants {
		began := time.Now()
		said, err := try(ctx, m, filepath.Join(dir, m.name))
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		verdict := "red  "
		if errors.Is(err, errSurvived) {
			verdict, said = "GREEN", "the test passes without: "+m.without
			survived = append(survived, m.name)
		} else if err != nil {
			return fmt.Errorf("%s: %w", m.name, err)
		}
		fmt.Fprintf(out, "%2d/%d %s %5.1fs %s: %v: %s\n", i+1, len(mutants), verdict, time.Since(began).Seconds(), m.name, m.test, said)
	}
	if len(survived) > 0 {
		return fmt.Errorf("%w: %s", errSurvived, strings.Join(survived, ", "))
	}
	fmt.Fprintf(out, "%d protections were taken out, and each time the test named for it went red\n", len(mutants))
	return nil
}

// tryGreen runs the named tests on the source as it is: one that is red
// anyway proves nothing.
func tryGreen(ctx context.Context, mutants []mutant, out io.Writer) error {
	names := map[string][]string{}
	var folders []string
	for _, m := range mutants {
		f := m.test.folder
		if names[f] == nil {
			folders = append(folders, f)
		}
		if !slices.Contains(names[f], m.test.name) {
			names[f] = append(names[f], m.test.name)
		}
	}
	for _, f := range folders {
		began := time.Now()
		if text, err := goTest(ctx, f, pattern(names[f]...)); err != nil {
			return fmt.Errorf("the tests of %s, with nothing taken out: %w\n%s", f, err, text)
		}
		fmt.Fprintf(out, "%d tests of %s are green with nothing taken out (%.1fs)\n", len(names[f]), f, time.Since(began).Seconds())
	}
	return nil
}

// try runs the test of a mutant and returns what the test had to say, or
// errSurvived.
func try(ctx context.Context, m mutant, dir string) (said string, err error) {
	overlay, err := m.write(dir)
	if err != nil {
		return "", err
	}
	text, err := goTest(ctx, m.test.folder, pattern(m.test.name), "-failfast", "-overlay", overlay)
	var exit *exec.ExitError
	switch {
	case err == nil:
		return "", errSurvived
	case !errors.As(err, &exit):
		return "", err
	case !strings.Contains(text, "--- FAIL: "+m.test.name):
		return "", fmt.Errorf("the test did not fail but: %w\n%s", err, text)
	}
	said, ok := complaint(text, m.test.says)
	if !ok {
		return "", fmt.Errorf("the test failed without saying %q:\n%s", m.test.says, text)
	}
	return said, nil
}

// write puts the mutant's files into dir, and the JSON that go build takes.
func (m mutant) write(dir string) (overlay string, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	texts := map[string]string{} // by absolute path
	for _, e := range m.edits {
		path, err := filepath.Abs(filepath.FromSlash(e.file))
		if err != nil {
			return "", err
		}
		text, ok := texts[path]
		if !ok {
			read, err := os.ReadFile(path)
			if err != nil {
				return "", err
			}
			text = string(read)
		}
		if texts[path], err = e.apply(text); err != nil {
			return "", err
		}
	}
	replace := map[string]string{}
	for path, text := range texts {
		replace[path] = filepath.Join(dir, fmt.Sprint(len(replace), "-", filepath.Base(path)))
		if err := os.WriteFile(replace[path], []byte(text), 0o600); err != nil {
			return "", err
		}
	}
	list, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	overlay = filepath.Join(dir, "overlay.json")
	return overlay, os.WriteFile(overlay, list, 0o600)
}

// goTest runs go test in the root of the repository, and returns what it says.
func goTest(ctx context.Context, folder, run string, flags ...string) (string, error) {
	args := append([]string{"test", "-count=1", "-vet=off", "-timeout", testTimeout.String(), "-run", run}, flags...)
	cmd := exec.CommandContext(ctx, "go", append(args, "./"+folder)...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // so that tests clean up
	cmd.WaitDelay = 10 * time.Second
	text, err := cmd.CombinedOutput()
	return string(text), err
}

// complaint picks the first line of a test's own in which it says what it is
// to say.
func complaint(text, what string) (said string, ok bool) {
	for line := range strings.Lines(text) {
		_, said, ok := strings.Cut(line, "_test.go:")
		if ok && strings.Contains(said, what) {
			_, said, _ = strings.Cut(said, ": ")
			return strings.TrimSpace(said), true
		}
	}
	return "", false
}
