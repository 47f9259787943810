package proxy

import (
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/fencing"
)

func TestParseSpan(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"30s": 30 * time.Second, "30": 30 * time.Second, " 1.5 ": 1500 * time.Millisecond, "2 min": 2 * time.Minute, "1h30m": 90 * time.Minute,
		"1 hour 2 minutes 3 seconds": time.Hour + 2*time.Minute + 3*time.Second, "500ms": 500 * time.Millisecond, "0s": 0, "0": 0,
	} {
		if got, err := parseSpan(text); err != nil || got != want {
			t.Errorf("%q: got %v, %v, want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"", " ", "soon", "-1s", "1 day", "1mon", "s", "1s2", "1..5s", "NaN", "Inf", "1e300", "9999999999h", "9000h 9000h", "1é"} {
		if got, err := parseSpan(text); err == nil {
			t.Errorf("%q: got %v, want an error", text, got)
		}
	}
}

func TestWithLock(t *testing.T) {
	for _, c := range []struct {
		tokens, key string
		token       fencing.Token
		want        string
	}{
		{"", "a", 1, `{"a":1}`},
		{`{"b": 2}`, "a", 1, `{"a":1,"b":2}`},
		{`{"a": 1, "b": 2}`, "a", 3, `{"a":3,"b":2}`},
		{`{"a": 1, "b": 2}`, "a", 0, `{"b":2}`},
		{`{"a": 1}`, "a", 0, ""},
		{`{ "a" : 1 }`, "a", 1, `{ "a" : 1 }`},
		{`{"a": 1}`, "b", 0, `{"a": 1}`},
		{"", `é"😀\`, 1, `{"\u00e9\"\ud83d\ude00\\":1}`},
	} {
		if got, err := withLock(c.tokens, c.key, c.token); err != nil || got != c.want {
			t.Errorf("%s with %s %d: got %s, %v, want %s", c.tokens, c.key, c.token, got, err, c.want)
		}
	}
	if got, err := withLock("[]", "a", 1); err == nil {
		t.Errorf("tokens that can't be read: got %s, want an error", got)
	}
}
