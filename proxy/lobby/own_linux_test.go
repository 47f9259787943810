package lobby_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fenceproxy/fenceproxy/proxy/lobby"
	"github.com/fenceproxy/fenceproxy/testharness/poll"
)

// owned is pipe with the first end out of the runtime's hands.
func owned(t *testing.T, l *lobby.Lobby) (conn *lobby.Conn, peer *net.TCPConn) {
	t.Helper()
	c, p := pipe(t)
	if !c.Own(l) {
		t.Fatal("it didn't become its own")
	}
	return c, p.(*net.TCPConn)
}

// All that a socket of package net does.
func TestConn_OwnReadsAndWrites(t *testing.T) {
	l := newLobby(t)
	conn, peer := owned(t, l)
	if !strings.HasPrefix(conn.RemoteAddr().String(), "127.0.0.1:") || conn.RemoteAddr().String() != peer.LocalAddr().String() {
		t.Errorf("got address %v, want %v", conn.RemoteAddr(), peer.LocalAddr())
	}
	sent := bytes.Repeat([]byte("0123456789abcdef"), 1<<20)
	var both sync.WaitGroup
	both.Go(func() {
		got, err := io.ReadAll(peer)
		if err != nil || !bytes.Equal(got, sent) {
			t.Errorf("the peer got %d bytes and %v, want %d", len(got), err, len(sent))
		}
		if _, err := peer.Write(sent); err != nil {
			t.Error(err)
		}
		peer.Close()
	})
	both.Go(func() {
		if n, err := conn.Write(sent); n != len(sent) || err != nil {
			t.Errorf("got %d, %v", n, err)
		}
		if err := conn.CloseWrite(); err != nil {
			t.Error(err)
		}
		if got, err := io.ReadAll(conn); err != nil || !bytes.Equal(got, sent) {
			t.Errorf("got %d bytes and %v, want %d", len(got), err, len(sent))
		}
	})
	both.Wait()
}

// Whatever ends a wait ends it, in a read and in a write that the peer doesn't take.
func TestConn_OwnWaits(t *testing.T) {
	l := newLobby(t)
	soon := func() time.Time { return time.Now().Add(10 * time.Millisecond) }
	for _, side := range []struct {
		name string
		wait func(*lobby.Conn) error
		set  func(*lobby.Conn, time.Time) error
	}{
		{"read", func(c *lobby.Conn) error { _, err := c.Read(make([]byte, 1)); return err }, (*lobby.Conn).SetReadDeadline},
		{"write", func(c *lobby.Conn) error { _, err := c.Write(make([]byte, 64<<20)); return err }, (*lobby.Conn).SetWriteDeadline},
	} {
		for _, c := range []struct {
			name          string
			before, later func(*lobby.Conn, *net.TCPConn) error
			want          error
		}{
			{"a deadline that is past", func(c *lobby.Conn, _ *net.TCPConn) error { return side.set(c, time.Unix(1, 0)) }, nil, os.ErrDeadlineExceeded},
			{"a deadline to come", func(c *lobby.Conn, _ *net.TCPConn) error { return side.set(c, soon()) }, nil, os.ErrDeadlineExceeded},
			{"a deadline set later", nil, func(c *lobby.Conn, _ *net.TCPConn) error { return side.set(c, soon()) }, os.ErrDeadlineExceeded},
			{"a deadline brought forward", func(c *lobby.Conn, _ *net.TCPConn) error { return side.set(c, time.Now().Add(time.Hour)) },
				func(c *lobby.Conn, _ *net.TCPConn) error { return c.SetDeadline(time.Unix(1, 0)) }, os.ErrDeadlineExceeded},
			{"a close", nil, func(c *lobby.Conn, _ *net.TCPConn) error { return c.Close() }, net.ErrClosed},
			{"a close before", func(c *lobby.Conn, _ *net.TCPConn) error { return c.Close() }, nil, net.ErrClosed},
			{"a reset", nil, func(_ *lobby.Conn, p *net.TCPConn) error { _ = p.SetLinger(0); return p.Close() }, nil},
		} {
			t.Run(side.name+", "+c.name, func(t *testing.T) {
				conn, peer := owned(t, l)
				if c.before != nil {
					if err := c.before(conn, peer); err != nil {
						t.Fatal(err)
					}
				}
				ended := make(chan error, 1)
				go func() { ended <- side.wait(conn) }()
				if c.later != nil {
					poll.Until(t, "a wait", conn.Waits)
					if err := c.later(conn, peer); err != nil {
						t.Fatal(err)
					}
				}
				select {
				case err := <-ended:
					var named *net.OpError
					if !errors.As(err, &named) || named.Op != side.name || c.want != nil && !errors.Is(err, c.want) {
						t.Errorf("got %v, want %v, of a %s", err, c.want, side.name)
					}
				case <-time.After(20 * time.Second):
					t.Fatal("it waits still")
				}
			})
		}
	}
}

// A deadline that is taken back leaves nothing, and one that was met neither.
func TestConn_OwnDeadlineTakenBack(t *testing.T) {
	l := newLobby(t)
	conn, peer := owned(t, l)
	for range 3 {
		_ = conn.SetReadDeadline(time.Unix(1, 0))
		if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("got %v, want a deadline", err)
		}
		_ = conn.SetReadDeadline(time.Time{})
		_, _ = peer.Write([]byte("x"))
		if _, err := io.ReadFull(conn, make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
	}
}

// The end of the watch ends every wait, and nobody begins one any more.
func TestLobby_CloseEndsWaits(t *testing.T) {
	l, err := lobby.New(lobby.DefaultPatience)
	if err != nil {
		t.Fatal(err)
	}
	conn, _ := owned(t, l)
	ended := make(chan error, 1)
	read := func() {
		_, err := conn.Read(make([]byte, 1))
		ended <- err
	}
	go read()
	poll.Until(t, "a wait", conn.Waits)
	for range 2 {
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		if err := <-ended; !errors.Is(err, net.ErrClosed) {
			t.Errorf("got %v, want that it is closed", err)
		}
		go read()
	}
	if err := <-ended; !errors.Is(err, net.ErrClosed) {
		t.Errorf("got %v, want that it is closed", err)
	}
}

// One who goes on with a connection and waits keeps nobody else waiting: if it hands
// the watch on, and if it forgets to.
func TestShift_Leave(t *testing.T) {
	for name, c := range map[string]struct {
		patience time.Duration
		leave    func(*lobby.Shift)
	}{
		"left":      {0, (*lobby.Shift).Leave},
		"twice":     {0, func(s *lobby.Shift) { s.Leave(); s.Leave() }},
		"forgotten": {lobby.DefaultPatience, func(*lobby.Shift) {}},
	} {
		t.Run(name, func(t *testing.T) {
			defer goleak.VerifyNone(t)
			l, err := lobby.New(c.patience)
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			stay, stuck := make(chan struct{}), make(chan struct{}, 8)
			defer close(stay)
			for range 3 { // of whom the first has the events of the others, too, maybe
				conn, peer := owned(t, l)
				conn.Rest(l, func(s *lobby.Shift) { c.leave(s); stuck <- struct{}{}; <-stay })
				_, _ = peer.Write([]byte("x"))
			}
			for range 3 {
				select {
				case <-stuck:
				case <-time.After(20 * time.Second):
					t.Fatal("one waits for another")
				}
			}
			conn, peer := owned(t, l)
			s := newSleeper()
			conn.Rest(l, s.resume)
			_, _ = peer.Write([]byte("x"))
			s.wantWoken(t, "a byte")
			stacks := make([]byte, 1<<20)
			poll.Until(t, "one watches", func() bool {
				return bytes.Count(stacks[:runtime.Stack(stacks, true)], []byte("lobby.(*Lobby).wait(")) == 1
			})
		})
	}
}

// Those who wait without the watch have no thread of their own, of which a process may
// have some thousands.
func TestShift_LeaveThread(t *testing.T) {
	l := newLobby(t)
	stay, stuck := make(chan struct{}), make(chan struct{}, 1)
	defer close(stay)
	before := threads(t)
	const many = 50
	for range many {
		conn, peer := owned(t, l)
		conn.Rest(l, func(s *lobby.Shift) { s.Leave(); stuck <- struct{}{}; <-stay })
		_, _ = peer.Write([]byte("x"))
		<-stuck
	}
	if more := threads(t) - before; more > many/2 {
		t.Errorf("%d that wait have taken %d threads", many, more)
	}
}

func threads(t *testing.T) int {
	t.Helper()
	all, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	return len(all)
}

// A rest again and again, with waits in between, loses nothing and ends always.
func TestConn_OwnRestsAndWaits(t *testing.T) {
	l := newLobby(t)
	var all sync.WaitGroup
	for range 8 {
		conn, peer := owned(t, l)
		all.Go(func() {
			for range 500 {
				if _, err := peer.Write([]byte("ab")); err != nil {
					t.Error(err)
					return
				}
				if _, err := io.ReadFull(peer, make([]byte, 3)); err != nil {
					t.Error(err)
					return
				}
			}
			peer.Close()
		})
		ended := make(chan struct{})
		all.Go(func() { <-ended })
		var serve func(*lobby.Shift)
		serve = func(s *lobby.Shift) {
			one := make([]byte, 1)
			for i := 0; i < 2; i++ { // the second may have to be waited for
				if i == 1 {
					s.Leave()
				}
				if _, err := io.ReadFull(conn, one); err != nil {
					if i != 0 || !errors.Is(err, io.EOF) {
						t.Error(err)
					}
					close(ended)
					return
				}
			}
			if _, err := conn.Write([]byte("abc")); err != nil {
				t.Error(err)
			}
			if !conn.Rest(l, serve) {
				t.Error("got no rest")
				close(ended)
			}
		}
		if !conn.Rest(l, serve) {
			t.Fatal("got no rest")
		}
	}
	all.Wait()
}
