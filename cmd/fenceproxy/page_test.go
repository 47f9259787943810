package main

import (
	"errors"
	"strings"
	"testing"
)

// Nothing that a name has in it reaches a terminal as something else than text.
func TestPage_Visible(t *testing.T) {
	var p page
	p.hanging("  warn  ", "role "+hostileRole+" – 1…")
	var stderr strings.Builder
	if code := exitCode(errors.New("database "+hostile+" – 1…"), &stderr); code != 1 {
		t.Errorf("got exit %d, want 1", code)
	}
	for _, got := range []string{p.String(), stderr.String()} {
		if strings.ContainsAny(got, "\x1b\x07\r\t\u202e\u2028\u200d") || !strings.Contains(got, `$1;--\x1b[7m\a`) || !strings.HasSuffix(got, "– 1…\n") {
			t.Errorf("got %q", got)
		}
	}
}
