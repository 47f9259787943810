package wire

import (
	"io"
	"net"
	"os"
	"syscall"

	"github.com/fenceproxy/fenceproxy/proxy/lobby"
)

// plain returns the way to a socket's descriptor, nil if conn isn't a plain
// socket.
func plain(conn any) syscall.RawConn {
	var raw syscall.RawConn
	if c, ok := conn.(*lobby.Conn); ok {
		conn = c.NetConn()
	}
	switch c := conn.(type) {
	case *net.TCPConn:
		raw, _ = c.SyscallConn()
	case *net.UnixConn:
		raw, _ = c.SyscallConn()
	}
	return raw
}

// rawRead reads what is there. again tells that nothing is, yet.
func rawRead(fd uintptr, p []byte) (n int, again bool, err error) {
	n, again, err = outcome("read", func() (int, syscall.Errno) { return sysRead(fd, p) })
	if n == 0 && !again && err == nil {
		err = io.EOF
	}
	return n, again, err
}

// rawWrite writes what the socket takes. again tells that it takes nothing,
// yet.
func rawWrite(fd uintptr, p []byte) (n int, again bool, err error) {
	return outcome("write", func() (int, syscall.Errno) { return sysWrite(fd, p) })
}

// outcome makes a system call and reads what it says.
func outcome(name string, call func() (int, syscall.Errno)) (n int, again bool, err error) {
	for {
		n, errno := call()
		switch errno {
		case 0:
			return n, false, nil
		case syscall.EINTR:
		case syscall.EAGAIN:
			return 0, true, nil
		default:
			return 0, false, os.NewSyscallError(name, errno)
		}
	}
}
