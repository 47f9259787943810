package sqlrewrite_test

import (
	"testing"

	"github.com/fenceproxy/fenceproxy/sqlrewrite"
)

func TestWhy_In(t *testing.T) {
	for _, c := range []struct{ text, words, reason string }{
		{"SELECT 1 + nextval('s')", "nextval", "a function that isn't on the list of functions without side effects"},
		{"COMMIT AND CHAIN", "COMMIT", "the command"},
		{"SELECT 1", "SELECT", "nothing in the query can write"},
		{"SELECT 1 FOR NO KEY UPDATE", "FOR NO", "rows are locked"},
	} {
		st := one(t, c.text, sqlrewrite.Options{})
		if got := st.Why.In([]byte(c.text)); got != c.words || st.Why.Reason.String() != c.reason {
			t.Errorf("%s: got %q: %v, want %q: %s", c.text, got, st.Why.Reason, c.words, c.reason)
		}
	}
	text := "SELECT 1"
	if got := one(t, text, sqlrewrite.Options{BackslashQuotes: true}).Why.In([]byte(text)); got != "" {
		t.Errorf("decided by a setting: got %q, want nothing", got)
	}
}

func TestPosition(t *testing.T) {
	const text = "a\n\u00e9b\r\nc"
	for at, want := range map[int][2]int{0: {1, 1}, 1: {1, 2}, 2: {2, 1}, 4: {2, 2}, 7: {3, 1}, 8: {3, 2}} {
		if line, column := sqlrewrite.Position([]byte(text), at); [2]int{line, column} != want {
			t.Errorf("byte %d: got %d:%d, want %v", at, line, column, want)
		}
	}
}
