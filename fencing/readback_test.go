package fencing_test

import (
	"testing"

	"github.com/fenceproxy/fenceproxy/fencing"
)

func TestReadSuperseded(t *testing.T) {
	for name, c := range map[string]struct {
		message, key string
		had, by      fencing.Token
		ok           bool
	}{
		"stale":           {"stale_token: order:8472 token 41 was superseded by 42", "order:8472", 41, 42, true},
		"seen in etcd":    {"stale_token: order:8472 token 41 was superseded in etcd by 42", "order:8472", 41, 42, true},
		"evicted":         {"evicted: order:8472 token 41 was superseded by 42 and the session was ended", "order:8472", 41, 42, true},
		"a key like that": {"stale_token: a token 1 was superseded by 2 token 41 was superseded by 42", "a token 1 was superseded by 2", 41, 42, true},
		"a key with a name": {"evicted: stale_token: x token 41 was superseded by 42 and the session was ended",
			"stale_token: x", 41, 42, true},
		"gone from etcd":   {"stale_token: order:8472 token 41: its lock is gone from etcd", "", 0, 0, false},
		"old snapshot":     {"stale_token: k token 4: the accepted token changed after this transaction's snapshot was taken", "", 0, 0, false},
		"another code":     {"not_holder: k token 41 was superseded by 42", "", 0, 0, false},
		"no number":        {"stale_token: k token 41 was superseded by it", "", 0, 0, false},
		"nothing":          {"", "", 0, 0, false},
		"another proxy's":  {"evicted: the session was ended by the claim of a higher token (stale_token: k token 1 was superseded by 2)", "", 0, 0, false},
		"an empty message": {"stale_token: ", "", 0, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			key, had, by, ok := fencing.ReadSuperseded(c.message)
			if ok != c.ok || ok && (key != c.key || had != c.had || by != c.by) {
				t.Errorf("got %q, %d, %d, %v, want %q, %d, %d, %v", key, had, by, ok, c.key, c.had, c.by, c.ok)
			}
		})
	}
}
