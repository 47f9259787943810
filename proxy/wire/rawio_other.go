//go:build !linux

package wire

import (
	"errors"
	"syscall"
)

// plain returns nil: all sockets are read and written by package net.
func plain(any) syscall.RawConn { return nil }

func rawRead(uintptr, []byte) (n int, again bool, err error) {
	return 0, false, errors.ErrUnsupported
}

func rawWrite(uintptr, []byte) (n int, again bool, err error) {
	return 0, false, errors.ErrUnsupported
}
