package fault

import (
	"fmt"
	"net"
	"net/netip"
	"sync"
)

// A Fork is one address that several parties dial, and from which each goes on
// by a link of its own: for those that can be told one address of another only.
type Fork struct {
	listener *net.TCPListener
	pick     func(from, to netip.AddrPort) *Link
	running  sync.WaitGroup // accept, and lead of each connection
}

// NewFork opens a fork on a free port of loopback. pick says by which link a
// connection goes on, by its addresses; it is reset if that is nil.
func NewFork(pick func(from, to netip.AddrPort) *Link) (*Fork, error) {
	listener, err := listen()
	if err != nil {
		return nil, fmt.Errorf("open a fork: %w", err)
	}
	f := &Fork{listener: listener, pick: pick}
	f.running.Add(1)
	go f.accept()
	return f, nil
}

// Addr is where to connect, host:port.
func (f *Fork) Addr() string { return f.listener.Addr().String() }

// Close lets nobody in any more. What has been led on already is the links'. It
// may be called twice.
func (f *Fork) Close() {
	_ = f.listener.Close() // it may be closed already
	f.running.Wait()
}

// accept ends when the fork is closed.
func (f *Fork) accept() {
	defer f.running.Done()
	acceptAll(f.listener, func(from *net.TCPConn) {
		f.running.Add(1)
		go f.lead(from)
	})
}

func (f *Fork) lead(from *net.TCPConn) {
	defer f.running.Done()
	link := f.pick(from.RemoteAddr().(*net.TCPAddr).AddrPort(), from.LocalAddr().(*net.TCPAddr).AddrPort())
	if link == nil || !link.enter(from) {
		reset(from)
	}
}
