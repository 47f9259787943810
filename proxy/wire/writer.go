package wire

import "io"

// A Writer gathers messages for one socket and writes them together. The
// first error sticks: every later call returns it.
type Writer struct {
	dst io.Writer
	buf []byte
	err error
}

// NewWriter returns a Writer with a buffer of DefaultBuffer bytes.
func NewWriter(dst io.Writer) *Writer {
	return &Writer{dst: dst, buf: make([]byte, 0, DefaultBuffer)}
}

// Write gathers p, writing to the socket when the buffer is full.
func (w *Writer) Write(p []byte) error {
	if w.err != nil {
		return w.err
	}
	if len(w.buf)+len(p) > cap(w.buf) {
		if err := w.Flush(); err != nil {
			return err
		}
		if len(p) >= cap(w.buf) {
			_, w.err = w.dst.Write(p)
			return w.err
		}
	}
	w.buf = append(w.buf, p...)
	return nil
}

// Flush writes what has been gathered.
func (w *Writer) Flush() error {
	if w.err == nil && len(w.buf) > 0 {
		_, w.err = w.dst.Write(w.buf)
		w.buf = w.buf[:0]
	}
	return w.err
}

// Empty reports whether nothing waits to be flushed.
func (w *Writer) Empty() bool { return len(w.buf) == 0 }
