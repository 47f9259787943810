// Package environ is how tests are told how much to do: by environment
// variables, which the Makefile's targets set.
package environ

import (
	"os"
	"strconv"
	"testing"
)

// Int returns the number in a variable, or otherwise where it isn't set. What is
// no number fails the test.
func Int(t testing.TB, name string, otherwise int) int {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("%s is %q, and a number is expected", name, text)
	}
	return n
}
