package lobby_test

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/proxy/lobby"
)

func newLobby(t *testing.T) *lobby.Lobby {
	t.Helper()
	l, err := lobby.New(lobby.DefaultPatience)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// pipe returns the two ends of a connection, the first of which may rest.
func pipe(t *testing.T) (conn *lobby.Conn, peer net.Conn) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	dialled, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	accepted, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	conn = lobby.Of(lobby.Wrap(accepted))
	t.Cleanup(func() { conn.Close(); dialled.Close() })
	return conn, dialled
}

// A sleeper counts how often a rest has ended.
type sleeper struct{ woken chan struct{} }

func newSleeper() sleeper { return sleeper{make(chan struct{}, 8)} }

func (s sleeper) resume(*lobby.Shift) { s.woken <- struct{}{} }

func (s sleeper) wantWoken(t *testing.T, by string) {
	t.Helper()
	select {
	case <-s.woken:
	case <-time.After(20 * time.Second):
		t.Fatalf("not woken by %s", by)
	}
}

func TestConn_Rest(t *testing.T) {
	l := newLobby(t)
	for name, wake := range map[string]func(conn *lobby.Conn, peer net.Conn){
		"a byte":                func(_ *lobby.Conn, peer net.Conn) { _, _ = peer.Write([]byte("x")) },
		"the peer's end":        func(_ *lobby.Conn, peer net.Conn) { peer.Close() },
		"half an end":           func(_ *lobby.Conn, peer net.Conn) { _ = peer.(*net.TCPConn).CloseWrite() },
		"a reset":               func(_ *lobby.Conn, peer net.Conn) { _ = peer.(*net.TCPConn).SetLinger(0); peer.Close() },
		"a past read deadline":  func(conn *lobby.Conn, _ net.Conn) { _ = conn.SetReadDeadline(time.Unix(1, 0)) },
		"a wake":                func(conn *lobby.Conn, _ net.Conn) { conn.Wake() },
		"a deadline for either": func(conn *lobby.Conn, _ net.Conn) { _ = conn.SetDeadline(time.Unix(1, 0)) },
		"a close":               func(conn *lobby.Conn, _ net.Conn) { conn.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			conn, peer := pipe(t)
			s := newSleeper()
			if !conn.Rest(l, s.resume) {
				t.Fatal("got no rest")
			}
			wake(conn, peer)
			s.wantWoken(t, name)
			conn.Close()
			peer.Close()
			if got := l.Seats(); got != 0 || len(s.woken) > 0 || conn.Wake() {
				t.Errorf("got %d seats and %d more wakings, want none", got, len(s.woken))
			}
		})
	}
}

// What has come before a rest, or comes at the same time, ends it too.
func TestConn_RestTooLate(t *testing.T) {
	l := newLobby(t)
	conn, peer := pipe(t)
	s := newSleeper()
	for range 200 {
		var all sync.WaitGroup
		all.Go(func() { _, _ = peer.Write([]byte("x")) })
		if !conn.Rest(l, s.resume) {
			t.Fatal("got no rest")
		}
		s.wantWoken(t, "what came before")
		all.Wait()
		if _, err := io.ReadFull(conn, make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
	}
}

func TestConn_RestRefused(t *testing.T) {
	l := newLobby(t)
	gone, err := lobby.New(lobby.DefaultPatience)
	if err != nil {
		t.Fatal(err)
	}
	gone.Close()
	for name, c := range map[string]struct {
		l    *lobby.Lobby
		make func(*lobby.Conn)
	}{
		"a past deadline": {l, func(c *lobby.Conn) { _ = c.SetReadDeadline(time.Unix(1, 0)) }},
		"a deadline":      {l, func(c *lobby.Conn) { _ = c.SetDeadline(time.Now().Add(time.Hour)) }},
		"closed":          {l, func(c *lobby.Conn) { c.Close() }},
		"no lobby":        {nil, func(*lobby.Conn) {}},
		"a closed lobby":  {gone, func(*lobby.Conn) {}},
	} {
		t.Run(name, func(t *testing.T) {
			conn, _ := pipe(t)
			c.make(conn)
			if conn.Rest(c.l, func(*lobby.Shift) { t.Error("woken") }) {
				t.Error("got a rest, want none")
			}
		})
	}
	if lobby.Of(struct{}{}).Rest(l, nil) {
		t.Error("got a rest of what is no connection")
	}
}

// A nudge interrupts a read, leaves no trace, and doesn't hide a deadline.
func TestConn_Nudge(t *testing.T) {
	conn, peer := pipe(t)
	read := func() error {
		_, err := io.ReadFull(conn, make([]byte, 1))
		return err
	}
	interrupted := make(chan error)
	go func() { interrupted <- read() }()
	conn.Nudge()
	if err := <-interrupted; !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("got %v, want a deadline", err)
	}
	if !conn.Nudged() {
		t.Error("it wasn't nudged")
	}
	_, _ = peer.Write([]byte("x"))
	if err := read(); err != nil {
		t.Errorf("afterwards: %v", err)
	}
	_ = conn.SetReadDeadline(time.Unix(1, 0))
	conn.Nudge()
	if err := read(); !errors.Is(err, os.ErrDeadlineExceeded) || conn.Nudged() {
		t.Errorf("a deadline: got %v, want it to be no nudge's", err)
	}
	_ = conn.SetReadDeadline(time.Time{})
	_, _ = peer.Write([]byte("x"))
	if err := read(); err != nil {
		t.Errorf("without the deadline: %v", err)
	}
	conn.Close()
	conn.Nudge()
	if err := read(); !errors.Is(err, net.ErrClosed) || conn.Nudged() {
		t.Errorf("closed: got %v", err)
	}
}

// A lobby that closes lets everybody out.
func TestLobby_Close(t *testing.T) {
	l, err := lobby.New(lobby.DefaultPatience)
	if err != nil {
		t.Fatal(err)
	}
	s := newSleeper()
	for range 3 {
		conn, _ := pipe(t)
		if !conn.Rest(l, s.resume) {
			t.Fatal("got no rest")
		}
	}
	l.Close()
	for range 3 {
		s.wantWoken(t, "the lobby's end")
	}
	if conn, _ := pipe(t); conn.Rest(l, s.resume) || conn.Own(l) {
		t.Error("got a rest in a lobby that is closed")
	}
}
