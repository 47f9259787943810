//go:build !linux

package lobby

import "errors"

// A Lobby takes nobody in: connections keep their goroutines.
type Lobby struct{}

// New says that there is none on this system.
func New() (*Lobby, error) { return nil, errors.ErrUnsupported }

// Close does nothing.
func (*Lobby) Close() error { return nil }

// At is 0.
func (*Lobby) At() int { return 0 }

func (*Lobby) seat(*Conn, func()) bool { return false }

func (*Lobby) leave(*Conn) {}
