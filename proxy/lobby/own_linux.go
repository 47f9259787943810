package lobby

import (
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A socket is a descriptor that the Go runtime knows nothing of.
type socket struct {
	is   bool // there is one
	fd   int
	uses int // calls of the kernel under way; it isn't closed meanwhile
}

// close closes the descriptor, or leaves that to the last use.
func (o *socket) close() error {
	if o.uses > 0 {
		return nil
	}
	return os.NewSyscallError("close", unix.Close(o.fd))
}

// Own takes the socket out of the Go runtime's hands: from then on it waits by l.
// Nobody may read or write meanwhile. False: it stays as it is.
func (c *Conn) Own(l *Lobby) bool {
	if c == nil {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || c.nudged || !l.seated(c) {
		return false
	}
	fd := -1
	_ = c.raw.Control(func(from uintptr) { fd, _ = unix.FcntlInt(from, unix.F_DUPFD_CLOEXEC, 0) })
	if fd < 0 {
		return false
	}
	c.own = socket{is: true, fd: fd}
	if l.heed(c) != nil { // from here on there is no way back
		c.own = socket{}
		_ = unix.Close(fd)
		return false
	}
	_ = c.Conn.Close() // the connection stays open by the other descriptor
	return true
}

// SyscallConn returns the way to the descriptor, before Own and after.
func (c *Conn) SyscallConn() (syscall.RawConn, error) { return (*raw)(c), nil }

// A raw is a Conn as package net has it for those who make calls of the kernel.
type raw Conn

func (r *raw) Control(do func(fd uintptr)) error {
	c := (*Conn)(r)
	if !c.own.is {
		return c.raw.Control(do)
	}
	if !c.enter() {
		return c.named("control", net.ErrClosed)
	}
	defer c.leave()
	do(uintptr(c.own.fd))
	return nil
}

func (r *raw) Read(try func(fd uintptr) (done bool)) error {
	c := (*Conn)(r)
	if !c.own.is {
		return c.raw.Read(try)
	}
	return c.until(&c.reading, "read", try)
}

func (r *raw) Write(try func(fd uintptr) (done bool)) error {
	c := (*Conn)(r)
	if !c.own.is {
		return c.raw.Write(try)
	}
	return c.until(&c.writing, "write", try)
}

// until calls try until it is done, and waits in between.
func (c *Conn) until(s *side, op string, try func(fd uintptr) bool) error {
	for {
		c.mu.Lock()
		if err := c.hindered(s); err != nil {
			c.mu.Unlock()
			return c.named(op, err)
		}
		c.own.uses++
		c.mu.Unlock()
		done := try(uintptr(c.own.fd))
		c.leave()
		if done {
			return nil
		}
		if err := c.await(s); err != nil {
			return c.named(op, err)
		}
	}
}

// enter keeps the descriptor open until leave, and reports whether it is.
func (c *Conn) enter() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	c.own.uses++
	return true
}

func (c *Conn) leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.own.uses--; c.closed {
		_ = c.own.close()
	}
}

// hindered returns what keeps a side from being used. The caller holds mu.
func (c *Conn) hindered(s *side) error {
	switch {
	case c.closed:
		return net.ErrClosed
	case s.past():
		return os.ErrDeadlineExceeded
	}
	return nil
}

func (c *Conn) named(op string, err error) error {
	return &net.OpError{Op: op, Net: c.RemoteAddr().Network(), Source: c.LocalAddr(), Addr: c.RemoteAddr(), Err: err}
}

// await waits until the side is worth another look.
func (c *Conn) await(s *side) error {
	c.mu.Lock()
	if err := c.hindered(s); err != nil {
		c.mu.Unlock()
		return err
	}
	if s.woken == nil {
		s.woken = make(chan struct{}, 1)
	}
	s.waiting = true
	if err := c.lobby.heed(c); err != nil {
		s.waiting = false
		c.mu.Unlock()
		return err
	}
	var expired <-chan time.Time
	if !s.deadline.IsZero() {
		timer := time.NewTimer(time.Until(s.deadline))
		defer timer.Stop()
		expired = timer.C
	}
	c.mu.Unlock()
	select {
	case <-s.woken:
		return nil
	case <-expired:
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !s.waiting {
		<-s.woken // both
	}
	s.waiting = false
	return nil
}

// Read reads what is there, and waits for something.
func (c *Conn) Read(p []byte) (n int, err error) {
	if !c.own.is {
		return c.Conn.Read(p)
	}
	waited := (*raw)(c).Read(func(fd uintptr) bool {
		n, err = ignoringInterrupts(func() (int, error) { return unix.Read(int(fd), p) })
		return !errors.Is(err, unix.EAGAIN)
	})
	switch {
	case waited != nil:
		return 0, waited
	case err != nil:
		return 0, c.named("read", os.NewSyscallError("read", err))
	case n == 0 && len(p) > 0:
		return 0, io.EOF
	}
	return n, nil
}

// Write writes all, and waits until it is taken.
func (c *Conn) Write(p []byte) (n int, err error) {
	if !c.own.is {
		return c.Conn.Write(p)
	}
	waited := (*raw)(c).Write(func(fd uintptr) bool {
		for n < len(p) && err == nil {
			var m int
			if m, err = ignoringInterrupts(func() (int, error) { return unix.Write(int(fd), p[n:]) }); errors.Is(err, unix.EAGAIN) {
				err = nil
				return false
			}
			n += max(m, 0)
		}
		return true
	})
	if waited != nil {
		return n, waited
	}
	if err != nil {
		return n, c.named("write", os.NewSyscallError("write", err))
	}
	return n, nil
}

func ignoringInterrupts(call func() (int, error)) (n int, err error) {
	for {
		if n, err = call(); !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}

// CloseWrite ends what is sent.
func (c *Conn) CloseWrite() error {
	if !c.own.is {
		return halfClose(c.Conn)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return net.ErrClosed
	}
	return os.NewSyscallError("shutdown", unix.Shutdown(c.own.fd, unix.SHUT_WR))
}
