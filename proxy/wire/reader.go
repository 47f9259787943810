package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/fenceproxy/fenceproxy/proxy/lobby"
)

// Errors of a Reader.
var (
	// ErrLength: a length field is below 4 or above what the peer may send.
	ErrLength = errors.New("invalid message length")
	// ErrTooLarge: a body is longer than the caller takes.
	ErrTooLarge = errors.New("message body is over the limit")
	// ErrNothing: nothing of the next message has come yet.
	ErrNothing = errors.New("no message has come")
)

// A Reader cuts one socket's bytes into messages. Next tells what comes; then
// exactly one of Read, Forward, Inspect or Skip consumes it. One that an error
// of the socket cut short, a deadline for example, can be called again and
// goes on where it stopped; or Skip drops the rest.
type Reader struct {
	source
	r, w  int    // the unread bytes are buf[r:w]
	body  int    // bytes of the announced message's body still to come; -1: none is announced
	begun bool   // its header and maybe some of its body are consumed
	most  int    // the largest length field that is taken
	long  []byte // what Read has gathered of a body that doesn't fit the buffer
}

// NewReader returns a Reader of a client's messages, with a length of up to
// MaxLength. It buffers up to DefaultBuffer bytes.
func NewReader(src io.Reader) *Reader {
	return &Reader{source: newSource(src), body: -1, most: MaxLength}
}

// NewServerReader is NewReader of a server's messages, of up to MaxServerLength.
func NewServerReader(src io.Reader) *Reader {
	return &Reader{source: newSource(src), body: -1, most: MaxServerLength}
}

// Next waits for the header of the next message and returns its type and the
// length of its body in bytes. It doesn't consume: calling it again returns
// the same. A clean end of the stream between messages is io.EOF; inside a
// header, io.ErrUnexpectedEOF.
func (r *Reader) Next() (typ byte, body int, err error) {
	if r.r == r.w {
		r.release() // the wait may be long
		r.r, r.w = 0, 0
	}
	if err := r.fill(HeaderLen); err != nil {
		if errors.Is(err, io.ErrUnexpectedEOF) && r.w == r.r {
			err = io.EOF
		}
		return 0, 0, err
	}
	length := int(binary.BigEndian.Uint32(r.buf[r.r+1:]))
	if length < 4 || length > r.most {
		return r.buf[r.r], 0, fmt.Errorf("%w: %d for type %q", ErrLength, length, r.buf[r.r])
	}
	r.body = length - 4
	return r.buf[r.r], r.body, nil
}

// Poll is Next, but where nothing of the message is there yet it doesn't wait: that
// is ErrNothing. It looks in the socket unless the last read got all that there
// was, and whoever is told by then that there is more may call it again. A socket
// that isn't Plain is waited for.
func (r *Reader) Poll() (typ byte, body int, err error) {
	if r.r == r.w && r.dry {
		r.release()
		r.r, r.w, r.dry = 0, 0, false
		return 0, 0, ErrNothing
	}
	r.poll = true
	typ, body, err = r.Next()
	r.poll = false
	return typ, body, err
}

// Plain reports whether the bytes come from a socket as they are.
func (r *Reader) Plain() bool { return r.raw != nil }

// Header returns the five bytes of the header that Next announced or refused.
func (r *Reader) Header() []byte { return r.buf[r.r : r.r+HeaderLen] }

// Complete reports whether the next message lies in the buffer as a whole, so
// that reading it will not wait for the peer.
func (r *Reader) Complete() bool {
	if r.w-r.r < HeaderLen {
		return false
	}
	return r.w-r.r >= 1+int(binary.BigEndian.Uint32(r.buf[r.r+1:]))
}

// Prefix returns the first bytes of the announced body without consuming
// them: the whole body if it fits the buffer, else as much as does.
func (r *Reader) Prefix() ([]byte, error) {
	n := min(r.body, DefaultBuffer-HeaderLen)
	if err := r.fill(HeaderLen + n); err != nil {
		return nil, err
	}
	return r.buf[r.r+HeaderLen : r.r+HeaderLen+n], nil
}

// Read consumes the announced message and returns its body, which is valid
// until the next call. A body over most bytes is ErrTooLarge and stays
// unread. Memory grows with the bytes that have arrived, not with the length
// that the header claims.
func (r *Reader) Read(most int) ([]byte, error) {
	if r.body > most {
		return nil, ErrTooLarge
	}
	if !r.begun && HeaderLen+r.body <= DefaultBuffer {
		if err := r.fill(HeaderLen + r.body); err != nil {
			return nil, err
		}
		body := r.buf[r.r+HeaderLen : r.r+HeaderLen+r.body]
		r.r += HeaderLen + r.body
		r.body = -1
		return body, nil
	}
	if !r.begun {
		r.long = make([]byte, 0, 2*DefaultBuffer)
	}
	err := r.drain(func(chunk []byte) error {
		r.long = append(r.long, chunk...)
		return nil
	})
	if err != nil {
		return nil, err
	}
	body := r.long
	r.long = nil
	return body, nil
}

// Forward consumes the announced message and writes it, header and body, to
// w. A body that doesn't fit the buffer streams through it.
func (r *Reader) Forward(w *Writer) error {
	return r.Inspect(w, func([]byte) error { return nil })
}

// Inspect is Forward with a look at each chunk of the body before it is
// written; an error of look stops the stream in the middle, and that chunk is
// consumed.
func (r *Reader) Inspect(w *Writer, look func(chunk []byte) error) error {
	if !r.begun {
		if err := w.Write(r.Header()); err != nil {
			return err
		}
	}
	return r.drain(func(chunk []byte) error {
		if err := look(chunk); err != nil {
			return err
		}
		return w.Write(chunk)
	})
}

// Announced reports whether Next has announced a message that hasn't been
// consumed to its end.
func (r *Reader) Announced() bool { return r.body >= 0 }

// Begun reports whether a part of the announced message has been consumed, and
// not all of it.
func (r *Reader) Begun() bool { return r.begun }

// Skip consumes the announced message, or what is left of it, and drops it.
func (r *Reader) Skip() error {
	r.long = nil
	return r.drain(func([]byte) error { return nil })
}

// Discard reads to the end of the stream, which it returns the error of, and
// drops all. Nothing can be read after it.
func (r *Reader) Discard() error {
	defer r.release()
	for {
		if _, err := r.read(0); err != nil {
			return err
		}
	}
}

// drain hands the body to take, chunk by chunk, and consumes the message. An
// error leaves the rest announced.
func (r *Reader) drain(take func([]byte) error) error {
	if !r.begun {
		r.r += HeaderLen
		r.begun = true
	}
	for r.body > 0 {
		if r.r == r.w {
			if err := r.fill(1); err != nil {
				return err
			}
		}
		n := min(r.body, r.w-r.r)
		chunk := r.buf[r.r : r.r+n]
		r.r += n
		r.body -= n
		if err := take(chunk); err != nil {
			return err
		}
	}
	r.body, r.begun = -1, false
	return nil
}

// fill waits until n unread bytes are in the buffer; n fits the buffer.
func (r *Reader) fill(n int) error {
	if r.w-r.r >= n {
		return nil
	}
	if r.r == r.w {
		r.r, r.w = 0, 0
	} else if r.r+n > DefaultBuffer {
		r.w = copy(r.buf[:], r.buf[r.r:r.w])
		r.r = 0
	}
	for r.w-r.r < n {
		m, err := r.read(r.w)
		r.w += m
		if err != nil && r.w-r.r < n {
			// One that is about to come doesn't go to rest within a message.
			if (r.begun || r.r < r.w) && errors.Is(err, os.ErrDeadlineExceeded) && lobby.Of(r.src).Nudged() {
				continue
			}
			if errors.Is(err, io.EOF) {
				return io.ErrUnexpectedEOF
			}
			return err
		}
	}
	return nil
}

// Fill reads what comes into the room that the buffer has left, and moves nothing
// of what is in it. It returns nil when there is no room, else the error of the
// socket: its end, or a deadline. Whoever reads on meets an end again.
func (r *Reader) Fill() error {
	for r.w < DefaultBuffer {
		n, err := r.read(r.w)
		r.w += n
		if err != nil {
			return err
		}
	}
	return nil
}

// Begins waits for one byte and reports whether it is first, without consuming
// it. An error is no, and whoever reads on meets it again.
func (r *Reader) Begins(first byte) bool {
	return r.fill(1) == nil && r.buf[r.r] == first
}

// Rest returns the bytes that were read from the socket and not consumed.
func (r *Reader) Rest() []byte {
	if r.r == r.w {
		return nil
	}
	return r.buf[r.r:r.w]
}

// ReadPacket reads a packet that has no type byte, which is what a connection
// begins with: a length of four bytes, then a code or version of four, then
// the rest. It returns the packet with its length. Lengths outside 8 to most
// are ErrLength.
func (r *Reader) ReadPacket(most int) ([]byte, error) {
	if err := r.fill(4); err != nil {
		if errors.Is(err, io.ErrUnexpectedEOF) && r.w == r.r {
			err = io.EOF
		}
		return nil, err
	}
	n := int(binary.BigEndian.Uint32(r.buf[r.r:]))
	if n < 8 || n > most {
		return nil, fmt.Errorf("%w: startup packet of %d bytes", ErrLength, n)
	}
	packet := make([]byte, 0, 256)
	r.r -= 1 // the packet is a message without its type byte
	r.body = n - 4
	packet = append(packet, r.buf[r.r+1:r.r+HeaderLen]...)
	err := r.drain(func(chunk []byte) error {
		packet = append(packet, chunk...)
		return nil
	})
	return packet, err
}
