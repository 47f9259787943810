//go:build linux && !race

package wire

import (
	"syscall"
	"unsafe"
)

// sysRead reads from a socket that doesn't block. The runtime is not told of
// the system call: it takes no longer than the copy, and telling costs as much
// again.
func sysRead(fd uintptr, p []byte) (int, syscall.Errno) { return raw(syscall.SYS_READ, fd, p) }

func sysWrite(fd uintptr, p []byte) (int, syscall.Errno) { return raw(syscall.SYS_WRITE, fd, p) }

func raw(call, fd uintptr, p []byte) (int, syscall.Errno) {
	n, _, errno := syscall.RawSyscall(call, fd, uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)))
	return int(n), errno
}
