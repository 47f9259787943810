package wire

import (
	"bufio"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"
)

// maxBody is the longest message that a session takes from a server, in
// bytes; no script asks for more.
const maxBody = 64 << 20

// A session is one connection of a script. What it sends goes out in a
// goroutine of its own, so that a server that doesn't read can still be read
// from.
type session struct {
	name  string
	conn  net.Conn
	r     *bufio.Reader
	out   chan outgoing
	sent  chan struct{} // closed when all is sent, after out is closed
	pid   uint32
	key   []byte // body of the BackendKeyData, process id included
	ended bool   // the server's side is at its end
	quiet bool   // out is closed

	odd bool // it was sent what is no request, or isn't logged in
	// unframed says that it began in a way of its own: the answer to an unknown
	// version of the protocol isn't in frames.
	unframed bool
	lost     bool // it isn't read any further, as a script was interrupted
	told     bool // it was told why it ends
	copied   bool // there was a COPY from the client
	syncs    int
	queries  int // and function calls
	readies  int // ReadyForQuery that came
}

// outgoing is what the goroutine that sends is handed: bytes, or the
// connection that those after it go out on.
type outgoing struct {
	bytes []byte
	conn  net.Conn
}

// dial connects; nothing is sent yet. All of the session must be over before
// the deadline.
func dial(name, network, addr string, deadline time.Time) (*session, error) {
	conn, err := net.DialTimeout(network, addr, time.Until(deadline))
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	conn.SetDeadline(deadline)
	s := &session{
		name: name, conn: conn, r: bufio.NewReader(conn),
		out: make(chan outgoing, 1024), sent: make(chan struct{}),
	}
	go s.write(conn)
	return s, nil
}

// write sends what is handed over until out is closed. A peer that takes no
// more is told by what it answers, not here.
func (s *session) write(conn net.Conn) {
	defer close(s.sent)
	for o := range s.out {
		if o.conn != nil {
			conn = o.conn
		}
		_, _ = conn.Write(o.bytes)
	}
}

// tlsRefused is what the event of a handshake says that failed.
const tlsRefused = "refused"

// encrypt takes the handshake of TLS and tells how it went: the name of the
// protocol that was agreed on, if the client asked for one, or that the server
// refused, which ends the session. All that was sent before has been answered.
func (s *session) encrypt(config *tls.Config) Event {
	e := Event{Letter: letterTLS, Detail: tlsRefused}
	conn := tls.Client(s.conn, config)
	if conn.Handshake() == nil {
		e.Detail = "agreed"
		if name := conn.ConnectionState().NegotiatedProtocol; name != "" {
			e.Detail = name
		}
		s.conn, s.r = conn, bufio.NewReader(conn)
		s.out <- outgoing{conn: conn}
	}
	e.Text = e.Detail
	return s.event(e)
}

// send hands bytes over, as one write or one for each byte.
func (s *session) send(b []byte, split bool) {
	if !split {
		s.out <- outgoing{bytes: b}
		return
	}
	for i := range b {
		s.out <- outgoing{bytes: b[i : i+1]}
	}
}

// finish waits until all is sent; nothing more can be.
func (s *session) finish() {
	if !s.quiet {
		s.quiet = true
		close(s.out)
	}
	<-s.sent
}

// closeWrite tells the other side that no more comes.
func (s *session) closeWrite() error {
	return s.conn.(interface{ CloseWrite() error }).CloseWrite()
}

// close ends the connection at once.
func (s *session) close() {
	s.conn.Close()
	s.finish()
}

// next reads one message. The end of the connection is an Event too.
func (s *session) next(pids map[uint32]string) (Event, error) {
	var header [5]byte
	if _, err := io.ReadFull(s.r, header[:]); err != nil {
		return s.over(err, 0)
	}
	length := binary.BigEndian.Uint32(header[1:])
	if length < 4 || length > maxBody {
		return Event{}, fmt.Errorf("the server sent type %q with length %d", header[0], length)
	}
	body := make([]byte, length-4)
	if _, err := io.ReadFull(s.r, body); err != nil {
		return s.over(err, len(header))
	}
	if header[0] == 'K' && len(body) > 4 {
		s.pid, s.key = binary.BigEndian.Uint32(body), body
		pids[s.pid] = s.name
	}
	return s.event(read(header[0], body, pids)), nil
}

// nextByte reads a byte that belongs to no message.
func (s *session) nextByte() (Event, error) {
	b, err := s.r.ReadByte()
	if err != nil {
		return s.over(err, 0)
	}
	return s.event(Event{Letter: letterByte, Detail: string(b), Text: string(b)}), nil
}

// all reads whatever comes up to the end of the connection.
func (s *session) all() (Event, error) {
	b, err := io.ReadAll(s.r)
	if err != nil {
		return s.over(err, len(b))
	}
	s.ended = true
	return s.event(Event{Letter: letterRest, Text: quoted(b)}), nil
}

// over makes an Event of the end of the connection. Whether a server that
// closes with something unread resets the connection is a matter of timing.
func (s *session) over(err error, had int) (Event, error) {
	if errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, net.ErrClosed) {
		return Event{}, fmt.Errorf("nothing came: %w", err)
	}
	s.ended = true
	text := ""
	if had > 0 || errors.Is(err, io.ErrUnexpectedEOF) {
		text = "inside a message"
	}
	return s.event(Event{Letter: letterEnd, Text: text}), nil
}

func (s *session) event(e Event) Event {
	e.Session = s.name
	return e
}
