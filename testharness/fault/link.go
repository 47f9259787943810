package fault

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// A Mode is what a link does to what is sent over it.
type Mode uint8

// The modes of a link. What a silent link swallows isn't lost but late, as TCP
// has it: it arrives when the link is healed, however long that takes.
const (
	// Open passes everything on.
	Open Mode = iota
	// Cut resets connections, those that are open and those that are tried.
	Cut
	// Silent passes nothing on in either direction.
	Silent
	// SilentThere passes nothing on from who dialled.
	SilentThere
	// SilentBack passes nothing on to who dialled.
	SilentBack
	// Slow passes everything on, late.
	Slow
)

func (m Mode) String() string {
	switch m {
	case Open:
		return "open"
	case Cut:
		return "cut"
	case Silent:
		return "silent"
	case SilentThere:
		return "silent there"
	case SilentBack:
		return "silent back"
	case Slow:
		return "slow"
	default:
		return "mode " + strconv.Itoa(int(m))
	}
}

// Reversed is the mode that does to what comes back what m does to what goes
// there.
func (m Mode) Reversed() Mode {
	switch m {
	case SilentThere:
		return SilentBack
	case SilentBack:
		return SilentThere
	default:
		return m
	}
}

// DefaultDelay is how late a slow link passes on each piece of what is sent.
const DefaultDelay = 50 * time.Millisecond

// dialTimeout bounds the way to the target, which is on this machine.
const dialTimeout = 2 * time.Second

// A Link is an address on loopback whose connections go on to a target.
type Link struct {
	// Delay of a slow link, DefaultDelay; may be set before the first use.
	Delay time.Duration

	listener *net.TCPListener
	now      atomic.Pointer[condition]
	running  sync.WaitGroup // accept, and the goroutines of each connection

	mu     sync.Mutex
	target string
	frames func() (there, back Framer)
	before func(there bool, name string)
	pairs  map[*pair]bool
	closed bool
}

// A condition is a mode while it lasts.
type condition struct {
	mode Mode
	over chan struct{} // closed when it is another one's turn
}

// NewLink opens a link to a target, host:port, on a free port.
func NewLink(target string) (*Link, error) {
	listener, err := listen()
	if err != nil {
		return nil, fmt.Errorf("open a link: %w", err)
	}
	l := &Link{Delay: DefaultDelay, listener: listener, target: target, pairs: map[*pair]bool{}}
	l.now.Store(&condition{mode: Open, over: make(chan struct{})})
	l.running.Add(1)
	go l.accept()
	return l, nil
}

func listen() (*net.TCPListener, error) {
	return net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
}

// Addr is where to connect instead of the target, host:port.
func (l *Link) Addr() string { return l.listener.Addr().String() }

// SetTarget leads later connections elsewhere: a target that was restarted may
// have another port.
func (l *Link) SetTarget(target string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.target = target
}

// Watch has each later connection taken apart into messages, by what frames makes
// for it. Ahead of each that has a name, there or back, before is called: it may
// put the link into another mode.
func (l *Link) Watch(frames func() (there, back Framer), before func(there bool, name string)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.frames, l.before = frames, before
}

// Set puts the link into a mode, until it is set again.
func (l *Link) Set(mode Mode) {
	l.mu.Lock()
	defer l.mu.Unlock()
	before := l.now.Swap(&condition{mode: mode, over: make(chan struct{})})
	close(before.over)
	if mode == Cut {
		for p := range l.pairs {
			p.reset()
		}
	}
}

// Close cuts all connections and waits for what serves them. It may be called
// twice.
func (l *Link) Close() {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	_ = l.listener.Close() // it may be closed already
	l.Set(Cut)
	l.running.Wait()
}

// accept ends when the link is closed.
func (l *Link) accept() {
	defer l.running.Done()
	acceptAll(l.listener, func(from *net.TCPConn) {
		if !l.enter(from) {
			reset(from)
		}
	})
}

// acceptAll takes connections until the listener is closed.
func acceptAll(listener *net.TCPListener, take func(from *net.TCPConn)) {
	for {
		from, err := listener.AcceptTCP()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err == nil {
			take(from)
		}
	}
}

// enter has a connection led on, unless the link is closed.
func (l *Link) enter(from *net.TCPConn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false
	}
	l.running.Add(1)
	go l.join(from)
	return true
}

// join leads one connection on. It ends when both directions have.
func (l *Link) join(from *net.TCPConn) {
	defer l.running.Done()
	p := &pair{link: l, from: from, gone: make(chan struct{})}
	if !l.admit(p) {
		reset(from)
		return
	}
	defer l.leave(p)
	l.mu.Lock()
	target, frames := l.target, l.frames
	p.before = l.before
	l.mu.Unlock()
	to, err := net.DialTimeout("tcp4", target, dialTimeout)
	if err != nil || !p.meet(to.(*net.TCPConn)) {
		p.reset()
		return
	}
	var both sync.WaitGroup
	both.Add(2)
	var there, back Framer
	if frames != nil {
		there, back = frames()
	}
	go p.pump(&both, to.(*net.TCPConn), from, SilentThere, there)
	go p.pump(&both, from, to.(*net.TCPConn), SilentBack, back)
	both.Wait()
	_ = from.Close() // they may be reset already
	to.Close()
}

// admit takes a connection in, unless the link is cut.
func (l *Link) admit(p *pair) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || l.now.Load().mode == Cut {
		return false
	}
	l.pairs[p] = true
	return true
}

func (l *Link) leave(p *pair) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.pairs, p)
}
