package child_test

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"syscall"
	"testing"

	"github.com/fenceproxy/fenceproxy/testharness/child"
)

func TestDialled(t *testing.T) {
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	conn, err := net.Dial("tcp4", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	accepted, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer accepted.Close()
	other := start(t)
	from, to := netip.MustParseAddrPort(accepted.RemoteAddr().String()), netip.MustParseAddrPort(accepted.LocalAddr().String())
	for _, c := range []struct {
		name string
		to   netip.AddrPort
		pids []int
		want int
	}{
		{"this one", to, []int{other.Process.Pid, 1 << 30, os.Getpid()}, os.Getpid()},
		{"another one", to, []int{other.Process.Pid}, 0},
		{"another connection of that port", netip.AddrPortFrom(to.Addr(), 1), []int{os.Getpid()}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got, err := child.Dialled(from, c.to, c.pids...); err != nil || got != c.want {
				t.Errorf("got %d, %v, want %d", got, err, c.want)
			}
		})
	}
}

// A port that somebody else dials another place from is told apart.
func TestDialled_SharedPort(t *testing.T) {
	var ends [2]net.Conn
	var local net.Addr = &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)} // a port of its own
	for i := range ends {
		listener, err := net.Listen("tcp4", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer listener.Close()
		dialer := net.Dialer{LocalAddr: local, Control: shared}
		conn, err := dialer.Dial("tcp4", listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		ends[i], local = conn, conn.LocalAddr()
	}
	address := func(a net.Addr) netip.AddrPort { return netip.MustParseAddrPort(a.String()) }
	from, to := address(local), address(ends[1].RemoteAddr())
	if err := ends[1].Close(); err != nil { // what remains of it belongs to nobody
		t.Fatal(err)
	}
	if got, err := child.Dialled(from, to, os.Getpid()); err != nil || got != 0 {
		t.Errorf("the closed one: got %d, %v, want nobody", got, err)
	}
	if got, err := child.Dialled(from, address(ends[0].RemoteAddr()), os.Getpid()); err != nil || got != os.Getpid() {
		t.Errorf("the open one: got %d, %v, want %d", got, err, os.Getpid())
	}
	ends[0].Close()
}

// shared lets a port be used for several connections.
func shared(_, _ string, c syscall.RawConn) (err error) {
	control := c.Control(func(fd uintptr) { err = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1) })
	return errors.Join(control, err)
}
