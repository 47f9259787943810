package fault_test

import (
	"net"
	"net/netip"
	"testing"

	"go.uber.org/goleak"

	"github.com/fenceproxy/fenceproxy/testharness/fault"
)

// Who dials the same address goes by a link of its own.
func TestFork(t *testing.T) {
	before := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, before) }) // behind all others
	var links [2]*fault.Link
	var far [2]chan net.Conn
	for i := range links {
		var addr string
		addr, far[i] = listen(t)
		link, err := fault.NewLink(addr)
		if err != nil {
			t.Fatal(err)
		}
		defer link.Close()
		links[i] = link
	}
	by := make(chan *fault.Link, 1)
	fork, err := fault.NewFork(func(_, _ netip.AddrPort) *fault.Link { return <-by })
	if err != nil {
		t.Fatal(err)
	}
	defer fork.Close()
	dial := func(link *fault.Link) net.Conn {
		conn, err := net.Dial("tcp4", fork.Addr())
		if err != nil {
			t.Fatal(err)
		}
		by <- link
		return conn
	}
	var near [2]net.Conn
	for i := range links {
		near[i] = dial(links[i])
		defer near[i].Close()
		send(t, near[i], "there")
		there := <-far[i]
		defer there.Close()
		hears(t, there, "there")
	}
	links[0].Set(fault.Cut)
	ended(t, near[0])
	hearsNothing(t, near[1])
	nobody := dial(nil)
	defer nobody.Close()
	ended(t, nobody)
	links[1].Close()
	late := dial(links[1])
	defer late.Close()
	ended(t, late)
	fork.Close()
	if conn, err := net.Dial("tcp4", fork.Addr()); err == nil {
		conn.Close()
		t.Error("got a connection after Close, want none")
	}
}
