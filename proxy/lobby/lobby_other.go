//go:build !linux

package lobby

import (
	"errors"
	"net"
	"time"
)

// A Lobby takes nobody in: connections keep their goroutines.
type Lobby struct{}

// A Shift is nobody's.
type Shift struct{}

type (
	socket   struct{ is bool }
	interest struct{}
)

// Leave does nothing.
func (*Shift) Leave() {}

// New says that there is none on this system.
func New(time.Duration) (*Lobby, error) { return nil, errors.ErrUnsupported }

// Close does nothing.
func (*Lobby) Close() error { return nil }

// Seats is 0.
func (*Lobby) Seats() int { return 0 }

// Own is false.
func (*Conn) Own(*Lobby) bool { return false }

// CloseWrite ends what is sent.
func (c *Conn) CloseWrite() error { return halfClose(c.Conn) }

func (*Lobby) admit(*Conn) bool { return false }

func (*Lobby) forget(*Conn) {}

func (*socket) close() error { return net.ErrClosed }
