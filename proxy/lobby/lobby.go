// Package lobby lets connections wait for their peers without a goroutine, so
// that one which is idle for long costs no stack.
//
// Whoever reads a connection is woken up by Nudge, and leaves it by Rest. A Lobby
// watches all connections at rest, and what was left is taken up again when there
// is something to read, or when anybody closes the connection or sets a deadline.
package lobby

import (
	"net"
	"sync"
	"syscall"
	"time"
)

// longAgo is a deadline that interrupts a read at once.
var longAgo = time.Unix(1, 0)

// A Conn is a socket that may rest.
type Conn struct {
	net.Conn // a socket
	raw      syscall.RawConn

	mu       sync.Mutex
	deadline time.Time // of reads, as it was set
	nudged   bool      // a past one stands in its place
	closed   bool
	lobby    *Lobby // where it rests, nil: it doesn't
	seat     uint64
	resume   func()
}

// Wrap returns conn as a Conn if it is a socket, else as it is.
func Wrap(conn net.Conn) net.Conn {
	socket, ok := conn.(syscall.Conn)
	if !ok {
		return conn
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return conn // closed already, which the first read tells
	}
	return &Conn{Conn: conn, raw: raw}
}

// Of returns the Conn that conn is or is spoken over, nil if there is none.
// Nudge and Rest may be called of nil and do nothing.
func Of(conn any) *Conn {
	for {
		switch c := conn.(type) {
		case *Conn:
			return c
		case interface{ NetConn() net.Conn }:
			conn = c.NetConn()
		default:
			return nil
		}
	}
}

// NetConn returns the socket.
func (c *Conn) NetConn() net.Conn { return c.Conn }

// CloseWrite ends what is sent.
func (c *Conn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return c.Close()
}

// Nudge interrupts whoever waits to read with os.ErrDeadlineExceeded, so that it
// can come to rest. A connection at rest stays so.
func (c *Conn) Nudge() {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lobby == nil && !c.closed {
		c.nudged = true
		_ = c.Conn.SetReadDeadline(longAgo)
	}
}

// Nudged reports whether a read that ended with os.ErrDeadlineExceeded did so
// because of a Nudge alone, and may be tried again.
func (c *Conn) Nudged() bool {
	if c == nil {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.again()
}

// again undoes a Nudge, and reports whether reads are possible then. The caller
// holds mu.
func (c *Conn) again() bool {
	if c.closed || c.past() {
		return false
	}
	if c.nudged {
		c.nudged = false
		_ = c.Conn.SetReadDeadline(c.deadline)
	}
	return true
}

func (c *Conn) past() bool { return !c.deadline.IsZero() && !c.deadline.After(time.Now()) }

// Rest leaves the connection to l, which runs resume in a goroutine of its own,
// once, when the caller is to read again. False: it is to do so now. The caller
// must have read all that there was, and do nothing more after true.
func (c *Conn) Rest(l *Lobby, resume func()) bool {
	if c == nil {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	// A deadline of its own would have to be watched.
	if !c.again() || !c.deadline.IsZero() {
		return false
	}
	return l.seat(c, resume)
}

// wake ends a rest, if there is one. The caller holds mu.
func (c *Conn) wake() {
	if c.lobby == nil {
		return
	}
	resume := c.resume
	c.lobby.leave(c)
	c.lobby, c.resume = nil, nil
	go resume()
}

// called ends the rest that the lobby knows as seat.
func (c *Conn) called(seat uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lobby != nil && c.seat == seat {
		c.wake()
	}
}

// SetReadDeadline is that of the socket. It ends a rest.
func (c *Conn) SetReadDeadline(t time.Time) error { return c.until(t, c.Conn.SetReadDeadline) }

// SetDeadline is that of the socket. It ends a rest.
func (c *Conn) SetDeadline(t time.Time) error { return c.until(t, c.Conn.SetDeadline) }

func (c *Conn) until(t time.Time, set func(time.Time) error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deadline, c.nudged = t, false
	err := set(t)
	c.wake()
	return err
}

// Close ends a rest, too.
func (c *Conn) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	c.wake()
	return c.Conn.Close()
}
