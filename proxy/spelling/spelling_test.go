package spelling_test

import (
	"testing"

	"github.com/fenceproxy/fenceproxy/proxy/spelling"
)

func TestNearest(t *testing.T) {
	known := []string{"sessions", "keys", "marks", "stats"}
	for name, want := range map[string]string{
		"session": "sessions", "SESSIONS": "", "sesions": "sessions", "kesy": "keys", "mraks": "marks", "": "", "x": "", "pools": "",
	} {
		if got := spelling.Nearest(name, known); got != want {
			t.Errorf("%q: got %q, want %q", name, got, want)
		}
	}
}
