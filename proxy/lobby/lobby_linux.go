package lobby

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A Lobby watches connections, all of them by one epoll (epoll(7)), which whoever has
// the watch waits for in a call of the kernel: Go's own poller isn't in it.
//
// It is told of a connection when that rests or somebody waits for it. A rest ends
// and begins again without another call: only when something comes for a connection
// that nobody waits for, the epoll is to look for nothing more, until somebody does.
type Lobby struct {
	epoll int
	bell  int           // an eventfd(2), the way to end the watch
	done  chan struct{} // closed when it has ended
	busy  chan struct{} // holds one token when the watch has begun to move

	mu     sync.Mutex
	closed bool
	last   uint64 // the newest seat; there is none 0, which is the bell's
	seats  map[uint64]*Conn
	shift  *Shift // who has the watch
}

// An interest is what an epoll is told to look for; 0 is that it doesn't know the
// connection.
type interest uint32

const (
	arrivals interest = unix.EPOLLIN | unix.EPOLLRDHUP
	space    interest = unix.EPOLLOUT
	failures interest = unix.EPOLLERR | unix.EPOLLHUP // which it always looks for
	once     interest = unix.EPOLLONESHOT             // and then for nothing
	nothing  interest = once                          // but to know the connection
)

// New returns a Lobby. Whoever keeps the watch for longer than patience loses it;
// with 0 nobody does. Close must be called.
func New(patience time.Duration) (*Lobby, error) {
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("create epoll: %w", err)
	}
	bell, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		_ = unix.Close(epoll)
		return nil, fmt.Errorf("create eventfd: %w", err)
	}
	if err := unix.EpollCtl(epoll, unix.EPOLL_CTL_ADD, bell, &unix.EpollEvent{Events: unix.EPOLLIN}); err != nil {
		_, _ = unix.Close(epoll), unix.Close(bell)
		return nil, fmt.Errorf("watch eventfd: %w", err)
	}
	l := &Lobby{epoll: epoll, bell: bell, done: make(chan struct{}), busy: make(chan struct{}, 1), seats: map[uint64]*Conn{}}
	l.begin(nil)
	if patience > 0 {
		go l.supervise(patience)
	}
	return l, nil
}

// Close ends the watch. What is at rest is taken up again, and what waits hears
// that it is closed.
func (l *Lobby) Close() error {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	var err error
	if !l.closed {
		_, err = unix.Write(l.bell, binary.NativeEndian.AppendUint64(nil, 1))
	}
	l.mu.Unlock()
	if err == nil {
		<-l.done
	}
	return err
}

// Seats is how many connections it knows.
func (l *Lobby) Seats() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.seats)
}

// admit takes in a connection that is to rest. The caller holds its mu.
func (l *Lobby) admit(c *Conn) bool { return l.seated(c) && l.heed(c) == nil }

// seated makes a connection known, and reports whether it is. The caller holds its mu.
func (l *Lobby) seated(c *Conn) bool {
	if l == nil {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false
	}
	if c.lobby == nil {
		l.last++
		c.lobby, c.seat = l, l.last
		l.seats[c.seat] = c
	}
	return true
}

// wants is what somebody waits for.
func (c *Conn) wants() (i interest) {
	if c.resume != nil {
		i |= arrivals
	}
	if c.reading.waiting {
		i |= arrivals | once
	}
	if c.writing.waiting {
		i |= space | once
	}
	if i == 0 {
		return nothing
	}
	return i
}

// heed has the epoll look for what somebody waits for, and know the connection. The
// caller holds its mu.
func (l *Lobby) heed(c *Conn) error {
	want := c.wants()
	if want == c.told && (want == nothing || want&once == 0) {
		return nil
	}
	op := unix.EPOLL_CTL_MOD
	if c.told == 0 {
		op = unix.EPOLL_CTL_ADD
	}
	if err := l.control(c, op, want); err != nil {
		return err
	}
	c.told = want
	return nil
}

// control is epoll_ctl(2) for a connection.
func (l *Lobby) control(c *Conn, op int, want interest) error {
	event := unix.EpollEvent{Events: uint32(want), Fd: int32(uint32(c.seat)), Pad: int32(uint32(c.seat >> 32))}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.closed, c.closed:
		return net.ErrClosed
	case c.own.is:
		return unix.EpollCtl(l.epoll, op, c.own.fd, &event)
	}
	var failed error
	err := c.raw.Control(func(fd uintptr) { failed = unix.EpollCtl(l.epoll, op, int(fd), &event) })
	return errors.Join(err, failed)
}

// forget takes out a connection that closes, as the kernel does. The caller holds its mu.
func (l *Lobby) forget(c *Conn) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.seats, c.seat)
}

// wait waits for events. It looks for some first in a call that the Go runtime isn't
// told of, since telling costs more than looking.
func (l *Lobby) wait(events []unix.EpollEvent) (int, error) {
	n, _, errno := syscall.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(l.epoll),
		uintptr(unsafe.Pointer(unsafe.SliceData(events))), uintptr(len(events)), 0, 0, 0)
	if errno == 0 && n > 0 {
		return int(n), nil
	}
	return ignoringInterrupts(func() (int, error) { return unix.EpollWait(l.epoll, events, -1) })
}

// call goes on with the connection for which an event has come. False: it is the
// bell, and the watch ends.
func (l *Lobby) call(e unix.EpollEvent, s *Shift) bool {
	seat := uint64(uint32(e.Fd)) | uint64(uint32(e.Pad))<<32
	if seat == 0 {
		return false
	}
	l.mu.Lock()
	c := l.seats[seat]
	l.mu.Unlock()
	if c != nil {
		c.called(interest(e.Events), s)
	}
	return true
}

// called tells those who wait for it what has come, and goes on with the connection
// if it is at rest.
func (c *Conn) called(came interest, s *Shift) {
	c.mu.Lock()
	if c.told&once != 0 {
		c.told = nothing
	}
	wanted := false
	if came&(space|failures) != 0 && c.writing.waiting {
		wanted = true
		c.writing.wake()
	}
	var resume func(*Shift)
	if came&(arrivals|failures) != 0 {
		switch {
		case c.resume != nil:
			wanted, resume = true, c.taken()
		case c.reading.waiting:
			wanted = true
			c.reading.wake()
		}
	}
	if c.told == nothing || !wanted {
		_ = c.lobby.heed(c) // fails for one that is closed, which is out already
	}
	c.mu.Unlock()
	if resume != nil {
		resume(s)
	}
}

// end takes up all that is at rest again, when the watch is over.
func (l *Lobby) end() {
	l.mu.Lock()
	l.closed = true // nobody comes to rest any more
	_, _ = unix.Close(l.epoll), unix.Close(l.bell)
	all := slices.Collect(maps.Values(l.seats))
	l.mu.Unlock()
	for _, c := range all {
		c.mu.Lock()
		c.wake()
		c.reading.wake()
		c.writing.wake()
		c.mu.Unlock()
	}
	close(l.done)
}
