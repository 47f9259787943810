package proxy_test

import (
	"strings"
	"testing"

	"github.com/fenceproxy/fenceproxy/testharness/poll"
)

// The log tells who couldn't log in, where to, and what PostgreSQL said of it.
func TestSession_NotStarted(t *testing.T) {
	s := newStack(t, 0)
	var log logged
	s.exec("CREATE ROLE leaver NOLOGIN")
	addr := s.addProxy(s.pg.Addr(), log.by)
	p := dialPeer(t, addr)
	p.startup(3<<16, "user\x00leaver\x00database\x00postgres\x00")
	p.told(t)
	poll.Until(t, "a line about it", func() bool { return log.line("session not started") != "" })
	for _, want := range []string{
		"user=leaver database=postgres remote=" + p.conn.LocalAddr().String(),
		`PostgreSQL refused the login: 28000 role \"leaver\" is not permitted to log in`,
	} {
		if got := log.line("session not started"); !strings.Contains(got, want) {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}
