package wire

import (
	"encoding/binary"
	"io"
	"sync/atomic"
	"syscall"
)

// A Writer gathers messages for one socket and writes them together. It holds
// a buffer only between the first of them and Flush. The first error sticks:
// every later call returns it.
type Writer struct {
	dst  io.Writer
	raw  syscall.RawConn       // nil: dst is no plain socket
	give func(fd uintptr) bool // what raw calls whenever the socket may be writable
	rest []byte                // what the write in flight has yet to write
	buf  *buffer               // nil while nothing is gathered
	n    int                   // bytes gathered
	err  error

	// Waits, if not nil, is called before a wait for the peer to take more.
	Waits func()

	total atomic.Uint64 // bytes written so far
}

// NewWriter returns a Writer that gathers up to DefaultBuffer bytes.
func NewWriter(dst io.Writer) *Writer { return &Writer{dst: dst, raw: plain(dst)} }

// Write gathers p, writing to the socket when the buffer is full.
func (w *Writer) Write(p []byte) error {
	if w.err != nil {
		return w.err
	}
	if w.n+len(p) > DefaultBuffer {
		if w.writeGathered(); w.err != nil {
			return w.err
		}
		if len(p) >= DefaultBuffer {
			w.write(p)
			return w.err
		}
	}
	if len(p) > 0 {
		if w.buf == nil {
			w.buf = takeBuffer()
		}
		w.n += copy(w.buf[w.n:], p)
	}
	return nil
}

// WriteMessage gathers a message of the given type.
func (w *Writer) WriteMessage(t byte, body []byte) error {
	if w.err == nil && w.n+HeaderLen > DefaultBuffer {
		w.writeGathered()
	}
	if w.err != nil {
		return w.err
	}
	if w.buf == nil {
		w.buf = takeBuffer()
	}
	w.buf[w.n] = t
	binary.BigEndian.PutUint32(w.buf[w.n+1:], uint32(4+len(body)))
	w.n += HeaderLen
	return w.Write(body)
}

// Flush writes what has been gathered.
func (w *Writer) Flush() error {
	w.writeGathered()
	if w.buf != nil {
		giveBuffer(w.buf)
		w.buf = nil
	}
	return w.err
}

// Total is how many bytes have been written, from the first on. It may be
// asked from any goroutine.
func (w *Writer) Total() uint64 { return w.total.Load() }

// Empty reports whether nothing waits to be flushed.
func (w *Writer) Empty() bool { return w.n == 0 }

func (w *Writer) writeGathered() {
	if w.err == nil && w.n > 0 {
		n := w.n
		w.n = 0
		w.write(w.buf[:n])
	}
}

func (w *Writer) write(p []byte) {
	if w.raw == nil {
		w.waits()
		var n int
		n, w.err = w.dst.Write(p)
		w.total.Add(uint64(n))
		return
	}
	if w.give == nil {
		w.give = w.tryWrite
	}
	w.rest = p
	if err := w.raw.Write(w.give); err != nil {
		w.err = named(err, "write")
	}
	w.total.Add(uint64(len(p) - len(w.rest)))
	w.rest = nil
}

// tryWrite writes what the socket takes; false waits until it takes more.
func (w *Writer) tryWrite(fd uintptr) bool {
	for len(w.rest) > 0 && w.err == nil {
		n, again, err := rawWrite(fd, w.rest)
		if again {
			w.waits()
			return false
		}
		w.rest, w.err = w.rest[n:], err
	}
	return true
}

func (w *Writer) waits() {
	if w.Waits != nil {
		w.Waits()
	}
}
