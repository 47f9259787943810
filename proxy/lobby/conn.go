package lobby

import (
	"net"
	"sync"
	"syscall"
	"time"
)

// longAgo is a deadline that interrupts a read at once.
var longAgo = time.Unix(1, 0)

// A Conn is a socket that may rest. Up to Own it is package net's.
type Conn struct {
	net.Conn // a socket
	raw      syscall.RawConn

	mu      sync.Mutex
	reading side
	writing side
	nudged  bool // a past deadline for reads stands in the place of reading's
	closed  bool
	own     socket

	lobby  *Lobby       // where it is known, nil: nowhere yet
	seat   uint64       // its number there
	told   interest     // what the lobby is told of it
	resume func(*Shift) // goes on with it, nil: it doesn't rest
}

// A side is what is known of reads or of writes.
type side struct {
	deadline time.Time
	waiting  bool          // somebody waits until they are possible,
	woken    chan struct{} // and hears of it by this
}

// wake has whoever waits look again. The caller holds the connection's mu.
func (s *side) wake() {
	if s.waiting {
		s.waiting = false
		s.woken <- struct{}{}
	}
}

func (s *side) past() bool { return !s.deadline.IsZero() && !s.deadline.After(time.Now()) }

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
// Nudge, Wake, Own and Rest may be called of nil and do nothing.
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

// Nudge interrupts whoever waits to read with os.ErrDeadlineExceeded, so that it
// can come to rest. A connection at rest stays so, and so does one that is its own:
// whoever reads that rests whenever it can.
func (c *Conn) Nudge() {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.resume == nil && !c.closed && !c.own.is {
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
	if c.closed || c.reading.past() {
		return false
	}
	if c.nudged {
		c.nudged = false
		_ = c.Conn.SetReadDeadline(c.reading.deadline)
	}
	return true
}

// Wake ends a rest, and reports whether there was one.
func (c *Conn) Wake() bool {
	if c == nil {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.wake()
}

// wake is Wake; the caller holds mu.
func (c *Conn) wake() bool {
	if c.resume == nil {
		return false
	}
	go c.taken()(nil)
	return true
}

// taken ends the rest and returns what goes on with it. The caller holds mu.
func (c *Conn) taken() func(*Shift) {
	resume := c.resume
	c.resume = nil
	return resume
}

// Rest leaves the connection to l, always the same, which calls resume once, when
// there is something to read, with the watch over itself; or without it, in a
// goroutine of its own, when anybody closes the connection or sets a deadline.
// False: the caller is to read now. It must have read all that there was, and do
// nothing more after true.
func (c *Conn) Rest(l *Lobby, resume func(*Shift)) bool {
	if c == nil {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	// A deadline of its own would have to be watched.
	if !c.again() || !c.reading.deadline.IsZero() {
		return false
	}
	c.resume = resume
	if !l.admit(c) {
		c.resume = nil
		return false
	}
	return true
}

// SetReadDeadline is that of the socket. It ends a rest, unless it changes nothing.
func (c *Conn) SetReadDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return net.ErrClosed
	}
	if t.IsZero() && c.reading.deadline.IsZero() && !c.nudged {
		return nil
	}
	return c.readUntil(t)
}

// SetWriteDeadline is that of the socket.
func (c *Conn) SetWriteDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return net.ErrClosed
	}
	return c.writeUntil(t)
}

// SetDeadline is that of the socket. It ends a rest.
func (c *Conn) SetDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return net.ErrClosed
	}
	if err := c.writeUntil(t); err != nil {
		return err
	}
	return c.readUntil(t)
}

// readUntil sets a deadline for reads. The caller holds mu.
func (c *Conn) readUntil(t time.Time) (err error) {
	c.reading.deadline, c.nudged = t, false
	if !c.own.is {
		err = c.Conn.SetReadDeadline(t)
	}
	c.reading.wake()
	c.wake()
	return err
}

// writeUntil is readUntil of writes.
func (c *Conn) writeUntil(t time.Time) (err error) {
	c.writing.deadline = t
	if !c.own.is {
		err = c.Conn.SetWriteDeadline(t)
	}
	c.writing.wake()
	return err
}

// Close closes the socket and ends a rest.
func (c *Conn) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return net.ErrClosed
	}
	c.closed = true
	c.wake()
	c.reading.wake()
	c.writing.wake()
	c.lobby.forget(c)
	if c.own.is {
		return c.own.close()
	}
	return c.Conn.Close()
}

// NetConn returns the socket as package net has it, up to Own.
func (c *Conn) NetConn() net.Conn { return c.Conn }

// halfClose ends what is sent, and what is received too where that can't be told apart.
func halfClose(conn net.Conn) error {
	if half, ok := conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return conn.Close()
}
