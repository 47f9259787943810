package proxy_test

import (
	"strings"
	"testing"
)

// A tag in a text that is too long to be held ends the session, behind the
// answers to what was asked before.
func TestSession_TagInLongText(t *testing.T) {
	s := newStack(t, 1)
	f := s.frontend(s.addrs[0])
	f.send(query("SELECT pg_sleep(0.5)"), query("INSERT INTO t VALUES (1, 'a')"))
	go func() { // which nobody reads to its end
		f.fe.Send(query("SET fence.key = 'k'; INSERT INTO t VALUES (2, '" + strings.Repeat("x", 17<<20) + "')"))
		_ = f.fe.Flush()
	}()
	if got, want := f.until('E'), "SELECT 1 ZI INSERT 0 1 ZI LF007"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got := s.count("true"); got != 1 {
		t.Errorf("rows: got %d, want 1", got)
	}
}
