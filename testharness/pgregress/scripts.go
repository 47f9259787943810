package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// A tagged session refuses VACUUM and what is done CONCURRENTLY (LF007), which
// PostgreSQL's tests use everywhere to have statistics and indexes. So that
// what comes after can be told apart from that, both legs with schema fence
// run them with ANALYZE, and without CONCURRENTLY, in place of it.
var (
	vacuum       = regexp.MustCompile(`(?i)\bVACUUM\b(\s*\([^)]*\)| FULL| FREEZE| VERBOSE| ANALYZE)*( [\w.]+| \w+\(|;)`)
	concurrently = regexp.MustCompile(`(?i) CONCURRENTLY\b`)
)

// fenceable is a script without what a tagged session refuses, as far as it
// can be left out.
func fenceable(script string) string {
	var out strings.Builder
	for line := range strings.Lines(script) {
		if !strings.Contains(strings.ToUpper(line), "REFRESH") {
			line = concurrently.ReplaceAllString(line, "")
		}
		if strings.HasPrefix(strings.TrimSpace(line), "--") {
			out.WriteString(line)
			continue
		}
		out.WriteString(vacuum.ReplaceAllString(line, "ANALYZE$2"))
	}
	return out.String()
}

// input makes a copy of a suite's folder, in which scripts (sql or specs) are
// fenceable and, where recorded isn't "", what a test is expected to say is
// what it said there.
func (b *bench) input(source, scripts, recorded string) (string, error) {
	dir := filepath.Join(b.out, "input")
	if err := os.MkdirAll(filepath.Join(dir, scripts), 0o755); err != nil {
		return "", fmt.Errorf("make fenceable scripts: %w", err)
	}
	entries, err := os.ReadDir(source)
	if err != nil {
		return "", fmt.Errorf("make fenceable scripts: %w", err)
	}
	for _, entry := range entries {
		target := filepath.Join(source, entry.Name())
		switch {
		case entry.Name() == scripts:
			continue
		case entry.Name() == "expected" && recorded != "":
			target = recorded
		}
		if err := os.Symlink(target, filepath.Join(dir, entry.Name())); err != nil {
			return "", fmt.Errorf("make fenceable scripts: %w", err)
		}
	}
	files, err := filepath.Glob(filepath.Join(source, scripts, "*"))
	if err != nil {
		return "", fmt.Errorf("make fenceable scripts: %w", err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, scripts, filepath.Base(file)), []byte(fenceable(string(text))), 0o644)
		}
		if err != nil {
			return "", fmt.Errorf("make fenceable scripts: %w", err)
		}
	}
	return dir, nil
}
