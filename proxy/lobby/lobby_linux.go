package lobby

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// A Lobby watches connections at rest, all of them by one epoll (epoll(7)).
type Lobby struct {
	file *os.File
	raw  syscall.RawConn
	done chan struct{} // closed when it watches no more

	mu    sync.Mutex
	last  uint64 // the newest seat
	seats map[uint64]*Conn
}

// New returns a Lobby. Close must be called.
func New() (*Lobby, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("create epoll: %w", err)
	}
	// The runtime waits for an epoll as for any other descriptor that doesn't block.
	if err := unix.SetNonblock(fd, true); err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("create epoll: %w", err)
	}
	l := &Lobby{file: os.NewFile(uintptr(fd), "epoll"), done: make(chan struct{}), seats: map[uint64]*Conn{}}
	if l.raw, err = l.file.SyscallConn(); err != nil {
		l.file.Close()
		return nil, fmt.Errorf("watch epoll: %w", err)
	}
	go l.watch()
	return l, nil
}

// Close ends the watch. What is at rest is taken up again.
func (l *Lobby) Close() error {
	if l == nil {
		return nil
	}
	err := l.file.Close()
	<-l.done
	return err
}

// At is how many connections are at rest.
func (l *Lobby) At() int {
	if l == nil {
		return 0
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.seats)
}

// seat takes a connection in. The caller holds its mu.
func (l *Lobby) seat(c *Conn, resume func()) bool {
	if l == nil {
		return false
	}
	l.mu.Lock()
	l.last++
	seat := l.last
	l.seats[seat] = c
	l.mu.Unlock()
	c.lobby, c.seat, c.resume = l, seat, resume
	if err := l.control(c, unix.EPOLL_CTL_ADD); err != nil {
		l.forget(seat)
		c.lobby, c.resume = nil, nil
		return false
	}
	return true
}

// leave lets a connection out. The caller holds its mu.
func (l *Lobby) leave(c *Conn) {
	l.forget(c.seat)
	_ = l.control(c, unix.EPOLL_CTL_DEL) // one that was closed is out already
}

func (l *Lobby) forget(seat uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.seats, seat)
}

// control adds a socket to what is watched, or takes it out.
func (l *Lobby) control(c *Conn, op int) error {
	event := unix.EpollEvent{
		Events: unix.EPOLLIN | unix.EPOLLRDHUP | unix.EPOLLONESHOT,
		Fd:     int32(uint32(c.seat)), Pad: int32(uint32(c.seat >> 32)),
	}
	failed := errors.New("socket is closed")
	err := l.raw.Control(func(epoll uintptr) {
		_ = c.raw.Control(func(fd uintptr) { failed = unix.EpollCtl(int(epoll), op, int(fd), &event) })
	})
	return errors.Join(err, failed)
}

// watch calls those for whom something has come, and everybody at the end.
func (l *Lobby) watch() {
	defer close(l.done)
	var events [64]unix.EpollEvent
	for {
		n, err := l.wait(events[:])
		if err != nil {
			break
		}
		for _, e := range events[:n] {
			l.call(uint64(uint32(e.Fd)) | uint64(uint32(e.Pad))<<32)
		}
	}
	l.file.Close() // nobody comes to rest any more
	l.mu.Lock()
	seats := slices.Collect(maps.Keys(l.seats))
	l.mu.Unlock()
	for _, seat := range seats {
		l.call(seat)
	}
}

// wait waits for events. The error says that there will be no more.
func (l *Lobby) wait(events []unix.EpollEvent) (n int, err error) {
	var failed error
	err = l.raw.Read(func(epoll uintptr) bool {
		n, failed = unix.EpollWait(int(epoll), events, 0)
		if errors.Is(failed, unix.EINTR) {
			n, failed = 0, nil
		}
		return n != 0
	})
	return n, errors.Join(err, failed)
}

// call ends a rest, if it is still one.
func (l *Lobby) call(seat uint64) {
	l.mu.Lock()
	c := l.seats[seat]
	l.mu.Unlock()
	if c != nil {
		c.called(seat)
	}
}
