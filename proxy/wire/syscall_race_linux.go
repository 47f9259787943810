//go:build linux && race

package wire

import (
	"errors"
	"syscall"
)

// sysRead and sysWrite go through package syscall, which tells the race
// detector that what was written before is seen after it is read.
func sysRead(fd uintptr, p []byte) (int, syscall.Errno) { return split(syscall.Read(int(fd), p)) }

func sysWrite(fd uintptr, p []byte) (int, syscall.Errno) { return split(syscall.Write(int(fd), p)) }

func split(n int, err error) (int, syscall.Errno) {
	var errno syscall.Errno
	if errors.As(err, &errno) || err == nil {
		return n, errno
	}
	return n, syscall.EIO
}
