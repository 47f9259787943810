package spelling_test

import (
	"testing"

	"github.com/fenceproxy/fenceproxy/proxy/spelling"
)

func TestNearest(t *testing.T) {
	known := []string{"sessions", "keys", "marks", "stats", "rejections", "drain-timeout", "claim-timeout", "claim-limit"}
	for name, want := range map[string]string{
		"session": "sessions", "SESSIONS": "", "sesions": "sessions", "kesy": "keys", "mraks": "marks", "": "", "x": "", "pools": "",
		"drain": "drain-timeout", "reject": "rejections", "claim": "", "dr": "",
	} {
		if got := spelling.Nearest(name, known); got != want {
			t.Errorf("%q: got %q, want %q", name, got, want)
		}
	}
}
