package wire

import (
	"errors"
	"io"
	"net"
	"sync/atomic"
	"syscall"
)

// A source is where a Reader's bytes come from. It waits for a message without
// a buffer, so that an idle session holds none; inside one it keeps it.
type source struct {
	src  io.Reader
	raw  syscall.RawConn       // nil: src is no plain socket
	take func(fd uintptr) bool // what raw calls whenever the socket may be readable
	buf  *buffer               // nil while nothing is held
	rest bool                  // the read in flight waits for a message to begin,
	poll bool                  // or doesn't wait for that
	dry  bool                  // the last read has got all that there was
	keep int                   // bytes of buf that the read in flight must not touch
	n    int                   // what that read has got
	err  error

	// Waits, if not nil, is called before a wait for the peer, and where so much
	// comes that reading it may take long.
	Waits func()

	total atomic.Uint64 // bytes read so far

	first [1]byte // of readAny
}

func newSource(src io.Reader) source { return source{src: src, raw: plain(src)} }

// read reads behind the first keep bytes of the buffer, and takes a buffer
// when there is something to read.
func (s *source) read(keep int) (int, error) {
	if s.raw == nil {
		return s.readAny(keep)
	}
	if s.take == nil {
		s.take = s.tryRead
	}
	s.rest = s.buf == nil
	s.keep, s.n, s.err = keep, 0, nil
	if err := s.raw.Read(s.take); err != nil {
		return 0, named(err, "read")
	}
	s.total.Add(uint64(max(0, s.n)))
	if s.dry = s.n < DefaultBuffer-keep; !s.dry {
		s.waits()
	}
	return s.n, s.err
}

func (s *source) waits() {
	if s.Waits != nil {
		s.Waits()
	}
}

// tryRead reads what is there; false waits until the socket is readable.
func (s *source) tryRead(fd uintptr) bool {
	if s.buf == nil {
		s.buf = takeBuffer()
	}
	var again bool
	s.n, again, s.err = rawRead(fd, s.buf[s.keep:])
	if again && s.rest {
		s.release()
		if s.poll {
			s.n, s.err = 0, ErrNothing
			return true
		}
	}
	if again {
		s.waits()
	}
	return !again
}

// readAny reads from what is no plain socket. Without a buffer it waits for
// one byte: no message has fewer than two, so what was awaited isn't complete
// with it.
func (s *source) readAny(keep int) (int, error) {
	s.waits()
	if s.buf != nil {
		n, err := s.src.Read(s.buf[keep:])
		s.total.Add(uint64(n))
		return n, err
	}
	n, err := s.src.Read(s.first[:])
	s.total.Add(uint64(n))
	if n > 0 {
		s.buf = takeBuffer()
		s.buf[0] = s.first[0]
	}
	return n, err
}

// Total is how many bytes have been read, from the first on. It may be asked
// from any goroutine.
func (s *source) Total() uint64 { return s.total.Load() }

// release gives the buffer back; nothing in it is wanted any more.
func (s *source) release() {
	if s.buf != nil {
		giveBuffer(s.buf)
		s.buf = nil
	}
}

// named gives an error of a raw socket the name that the operation has on any
// other.
func named(err error, op string) error {
	var raw *net.OpError
	if !errors.As(err, &raw) {
		return err
	}
	plain := *raw
	plain.Op = op
	return &plain
}
