package proxy_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"github.com/fenceproxy/fenceproxy/proxy"
	"github.com/fenceproxy/fenceproxy/testharness/poll"
)

// A cancel request ends the statement of the session it names, tagged or not,
// and a wrong key does nothing.
func TestSession_Cancel(t *testing.T) {
	s := newStack(t, 1)
	s.holders.hold("k", 1)
	for _, key := range []string{"", "k"} {
		t.Run("key="+key, func(t *testing.T) {
			c := s.session(0, key, 1)
			other := s.session(0, key, 1)
			done := make(chan error, 1)
			go func() {
				_, err := c.Exec(context.Background(), "SELECT pg_sleep(600)")
				done <- err
			}()
			s.running("pg_sleep")
			if err := other.PgConn().CancelRequest(t.Context()); err != nil {
				t.Error(err)
			}
			if _, err := other.Exec(t.Context(), "SELECT 1"); err != nil {
				t.Error(err)
			}
			if err := c.PgConn().CancelRequest(t.Context()); err != nil {
				t.Error(err)
			}
			if err := <-done; code(err) != "57014" {
				t.Errorf("got %v, want 57014", err)
			}
			if _, err := c.Exec(t.Context(), "SELECT 1"); err != nil {
				t.Errorf("after the cancel: %v", err)
			}
		})
	}
}

// running waits until PostgreSQL runs a statement with the given text.
func (s *stack) running(text string) {
	s.t.Helper()
	poll.Until(s.t, text+" runs", func() bool {
		var n int
		err := s.admin.QueryRow(s.t.Context(),
			"SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND pid <> pg_backend_pid() AND query LIKE '%' || $1 || '%'", text).Scan(&n)
		return err == nil && n > 0
	})
}

// A value of 200 MB goes through in both directions, in a parameter and in
// the text of an untagged session, and the proxy's memory stays bounded.
func TestSession_HugeValue(t *testing.T) {
	s := newStack(t, 1)
	s.holders.hold("k", 1)
	const size = 200 << 20
	for _, c := range []struct {
		name, key string
		mode      pgx.QueryExecMode
	}{
		{"parameter", "", pgx.QueryExecModeExec},
		{"parameter, tagged", "k", pgx.QueryExecModeExec},
		{"text", "", pgx.QueryExecModeSimpleProtocol},
	} {
		t.Run(c.name, func(t *testing.T) {
			conn := s.connectRaw(c.key)
			defer conn.Close()
			head, tail := hugeMessage(c.mode, size)
			var before, after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			go func() {
				conn.Write(head)
				chunk := []byte(strings.Repeat("x", 1<<20))
				for range size / len(chunk) {
					conn.Write(chunk)
				}
				conn.Write(tail)
			}()
			types, longest := readToReady(t, conn)
			runtime.ReadMemStats(&after)
			if longest < size || strings.Contains(types, "E") {
				t.Errorf("got messages %s, the longest of %d bytes; want one of %d", types, longest, size)
			}
			notHeld(t, before, after, size)
		})
	}
}

// A text over the limit in a tagged session is refused, not let through.
func TestSession_HugeTextTagged(t *testing.T) {
	s := newStack(t, 1)
	s.holders.hold("k", 1)
	c := s.session(0, "k", 1)
	_, err := c.Exec(t.Context(), "INSERT INTO t VALUES (1, '"+strings.Repeat("x", 17<<20)+"')")
	if got, want := code(err), "LF007"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if _, err := c.Exec(t.Context(), "INSERT INTO t VALUES (1, 'x')"); err != nil {
		t.Errorf("afterwards: %v", err)
	}
	d := s.session(0, "", 0)
	_, err = d.Exec(t.Context(), "SELECT '"+strings.Repeat("x", 17<<20)+"'; SET fence.key = 'k'; SET fence.token = 1; INSERT INTO t VALUES (2, 'x')")
	if err == nil {
		t.Error("a tag behind megabytes of text was let through")
	}
	if got := s.count("id = 2"); got != 0 {
		t.Error("its write was let through too")
	}
}

// Shutdown lets a running transaction finish and delivers its answer; idle
// sessions hear 57P01.
func TestServer_Shutdown(t *testing.T) {
	s := newStack(t, 1)
	idle, busy := s.session(0, "", 0), s.session(0, "", 0)
	tx, err := busy.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		done <- s.servers[0].Shutdown(ctx)
	}()
	// Reading, not writing: an answer to a closed socket could overtake the word.
	if _, err := idle.WaitForNotification(t.Context()); code(err) != "57P01" {
		t.Errorf("idle session: got %v, want 57P01", err)
	}
	if _, err := tx.Exec(t.Context(), "INSERT INTO t VALUES (1, 'x')"); err != nil {
		t.Errorf("the open transaction: %v", err)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Errorf("its commit: %v", err)
	}
	if err := <-done; err != nil {
		t.Errorf("Shutdown: %v", err)
	}
	if got := s.count("true"); got != 1 {
		t.Errorf("rows: got %d, want 1", got)
	}
	if _, err := net.Dial("tcp", s.addrs[0]); err == nil {
		t.Error("still accepting")
	}
}

// A proxy that drains takes cancel requests, from clients and from peers, until
// its last session has ended; whoever else comes is told to go elsewhere, and
// whoever says nothing doesn't hold up the end.
func TestServer_ShutdownTakesCancelRequests(t *testing.T) {
	s := newStack(t, 1)
	other := s.addProxy(s.pg.Addr(), func(server *proxy.Server) { server.Peers = []string{s.addrs[0]} })
	c := s.session(0, "", 0)
	if _, err := c.Exec(t.Context(), "BEGIN"); err != nil {
		t.Fatal(err)
	}
	silent := dialPeer(t, s.addrs[0])
	silent.conn.Write([]byte("\x00\x00\x00\x08\x04\xd2\x16\x2f"))
	if answer := make([]byte, 1); !readFull(silent.conn, answer) {
		t.Fatal("no answer to a request for TLS")
	}
	shut := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		shut <- s.servers[0].Shutdown(ctx)
	}()
	if got := silent.told(t); got != "end" { // it has begun
		t.Errorf("a client that hasn't logged in: got %q, want an end", got)
	}
	late := dialPeer(t, s.addrs[0])
	for _, through := range []string{s.addrs[0], other} {
		done := start(c, simple, "SELECT pg_sleep(600)")
		s.running("pg_sleep")
		sendCancel(t, through, cancelKey(c), nil)
		if err := <-done; code(err) != "57014" {
			t.Errorf("cancel: got %v, want 57014", err)
		}
		if _, err := c.Exec(t.Context(), "ROLLBACK AND CHAIN"); err != nil {
			t.Fatal(err)
		}
	}
	p := dialPeer(t, s.addrs[0])
	p.startup(3<<16, "user\x00postgres\x00")
	if got, want := p.told(t), "57P03 the database system is shutting down"; got != want {
		t.Errorf("a new client: got %q, want %q", got, want)
	}
	if _, err := c.Exec(t.Context(), "COMMIT"); err != nil {
		t.Errorf("the open transaction: %v", err)
	}
	if err := <-shut; err != nil {
		t.Errorf("Shutdown: %v", err)
	}
	if got := late.told(t); got != "end" {
		t.Errorf("a client that has said nothing: got %q, want an end", got)
	}
	if _, err := net.Dial("tcp", s.addrs[0]); err == nil {
		t.Error("still accepting")
	}
}

// pg_terminate_backend reaches an idle client as FATAL, and so does the end
// of the server; neither is taken for an eviction.
func TestSession_Terminated(t *testing.T) {
	s := newStack(t, 1)
	s.holders.hold("k", 1)
	for _, key := range []string{"", "k"} {
		c := s.session(0, key, 1)
		var pid int
		if err := c.QueryRow(t.Context(), "SELECT pg_backend_pid()").Scan(&pid); err != nil {
			t.Fatal(err)
		}
		s.exec(fmt.Sprintf("SELECT pg_terminate_backend(%d)", pid))
		_, err := c.Exec(t.Context(), "SELECT 1")
		if got := code(err); got != "57P01" {
			t.Errorf("key %q: got %v, want 57P01", key, err)
		}
	}
}

// A client that half-closes after its last request still gets the answer.
func TestSession_HalfClose(t *testing.T) {
	s := newStack(t, 1)
	conn := s.connectRaw("")
	defer conn.Close()
	fmt.Fprintf(conn, "Q\x00\x00\x00\x1dSELECT pg_sleep(0.1), 42\x00")
	conn.(*net.TCPConn).CloseWrite()
	got, err := io.ReadAll(conn)
	if err != nil || !strings.Contains(string(got), "42") {
		t.Errorf("got %q, %v", got, err)
	}
}

// aWatch is that over a lobby, which goes from one goroutine to another; package
// lobby's tests see that there is one.
func aWatch() goleak.Option {
	return goleak.IgnoreAnyFunction("github.com/fenceproxy/fenceproxy/proxy/lobby.(*Lobby).wait")
}

// Clients that go away at any point take their backends along, and leave no
// goroutine behind.
func TestSession_LeavesNothing(t *testing.T) {
	s := newStack(t, 1)
	s.holders.hold("k", 1)
	s.session(0, "k", 1)
	before := goleak.IgnoreCurrent()
	for i := range 60 {
		conn := s.connectRaw([]string{"", "k"}[i%2])
		switch i % 6 {
		case 0:
			conn.Write([]byte("Q\x00\x00"))
		case 1:
			conn.Write([]byte("P\x00\x00\x00\x10\x00SELECT 1\x00\x00\x00"))
		case 2:
			conn.Write([]byte("Q\x00\x00\x00\x0aBEGIN\x00"))
		case 3:
			conn.Write([]byte("~\x00\x00\x00\x04"))
		case 4:
			conn.Write([]byte("Q\xff\xff\xff\xff"))
		}
		conn.Close()
	}
	goleak.VerifyNone(t, before, aWatch())
	poll.Until(t, "no backend is left", func() bool {
		var n int
		err := s.admin.QueryRow(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'raw'").Scan(&n)
		return err == nil && n == 0
	})
}
