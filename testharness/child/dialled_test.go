package child_test

import (
	"net"
	"net/netip"
	"os"
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
	from := netip.MustParseAddrPort(accepted.RemoteAddr().String())
	for _, c := range []struct {
		name string
		from netip.AddrPort
		pids []int
		want int
	}{
		{"this one", from, []int{other.Process.Pid, 1 << 30, os.Getpid()}, os.Getpid()},
		{"another one", from, []int{other.Process.Pid}, 0},
		{"no socket", netip.AddrPortFrom(from.Addr(), 1), []int{os.Getpid()}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got, err := child.Dialled(c.from, c.pids...); err != nil || got != c.want {
				t.Errorf("got %d, %v, want %d", got, err, c.want)
			}
		})
	}
}
