package proxy_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/proxy"
	"github.com/fenceproxy/fenceproxy/testharness/poll"
)

// A time-out that comes by a reload ends sessions that were open before, where
// nobody looked at idle ones, and one that goes by a reload ends none.
func TestServer_ReloadIdleTimeout(t *testing.T) {
	s := newStack(t, 1)
	server := s.servers[0]
	c := s.session(0, "", 0)
	to := server.Settings
	to.ClientIdleTimeout = 20 * time.Millisecond
	server.Reload(to)
	ctx, cancel := context.WithTimeout(t.Context(), poll.Deadline)
	defer cancel()
	if _, err := c.WaitForNotification(ctx); code(err) != "57P05" { // it asks nothing meanwhile
		t.Errorf("the idle session: got %v, want 57P05", err)
	}
	server.Reload(server.Settings)
	still := s.session(0, "", 0)
	if err := still.Ping(t.Context()); err != nil {
		t.Error(err)
	}
}

// A policy counts for the sessions that begin after the reload.
func TestServer_ReloadPolicies(t *testing.T) {
	s := newStack(t, 1)
	server := s.servers[0]
	before := s.session(0, "", 0)
	to := server.Settings
	to.Policies = proxy.Policies{Default: proxy.Policy{UntaggedWrites: proxy.RejectUntagged}}
	to.MaxConnections = 2
	server.Reload(to)
	if _, err := s.session(0, "", 0).Exec(t.Context(), "INSERT INTO t VALUES (1)"); code(err) != "LF004" {
		t.Errorf("after the reload: got %v, want LF004", err)
	}
	if _, err := before.Exec(t.Context(), "INSERT INTO t VALUES (2)"); err != nil {
		t.Errorf("before it: got %v", err)
	}
	if err := server.Shutdown(t.Context()); err != nil && !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
