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
	socket := conn
	if c, ok := conn.(*lobby.Conn); ok {
		socket = c.NetConn()
	}
	switch socket.(type) {
	case *net.TCPConn, *net.UnixConn:
		raw, _ := conn.(syscall.Conn).SyscallConn()
		return raw
	}
	return nil
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
