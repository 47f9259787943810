package leases_test

import (
	"strings"
	"testing"

	"github.com/fenceproxy/fenceproxy/leases"
)

func TestLockPrefix(t *testing.T) {
	for _, test := range []struct{ name, key, want string }{
		{"plain key stays", "order:8472", "/fenceproxy/locks/order:8472"},
		{"slash", "a/b", "/fenceproxy/locks/a%2Fb"},
		{"space", "daily report", "/fenceproxy/locks/daily%20report"},
		{"percent", "100%", "/fenceproxy/locks/100%25"},
		{"what looks escaped", "a%2Fb", "/fenceproxy/locks/a%252Fb"},
		{"umlaut", "größe", "/fenceproxy/locks/gr%C3%B6%C3%9Fe"},
		{"dots", "..", "/fenceproxy/locks/.."},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := leases.LockPrefix(leases.DefaultPrefix, test.key); got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
		})
	}
	if got, want := leases.LockPrefix("/locks/", "a"), "/locks/a"; got != want {
		t.Errorf("other prefix: got %s, want %s", got, want)
	}
	if got := leases.LockPrefix("/", strings.Repeat("/", 3)); strings.Count(got, "/") != 1 {
		t.Errorf("slashes of a key are left: %s", got)
	}
}
