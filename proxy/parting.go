package proxy

import (
	"net"
	"time"

	"github.com/fenceproxy/fenceproxy/proxy/wire"
)

const (
	// farewellWithin is how long a client may take to take a last word, and
	// then to close its side.
	farewellWithin = time.Second
	// partWithin is how long it may take for what PostgreSQL said before it
	// went.
	partWithin = 10 * time.Second
)

// farewell sends a last FATAL, unless the client has heard one; the reply pump
// has ended. In the middle of a message the client would take it for a part of
// that, so it gets none there.
func (s *session) farewell(r wire.Report) {
	if s.parted || s.fromBackend != nil && s.fromBackend.Begun() {
		return
	}
	s.parted = true
	s.countProtocol(r.Code)
	s.client.SetWriteDeadline(time.Now().Add(farewellWithin))
	s.toClient.Write(wire.AppendError(nil, r))
	s.toClient.Flush()
}

// dropBackend closes the connection to PostgreSQL, while the reply pump may read
// from it. Over TLS PostgreSQL is told first, and what it says to that isn't the
// client's to hear: nothing more is read.
func (s *session) dropBackend() {
	s.backend.SetReadDeadline(longAgo)
	s.backend.Close()
}

// sayEnd tells the backend that nothing more comes, and waits until it has
// answered what did. It says nothing of a message that doesn't end.
func (s *session) sayEnd() {
	s.toBackend.Flush()
	closeWrite(s.backend)
	<-s.replied
}

func closeWrite(conn net.Conn) {
	if half, ok := conn.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
		return
	}
	conn.Close()
}

// boundWrites has what is sent to the client fail after t, unless the session
// is cut off, which has a bound of its own.
func (s *session) boundWrites(t time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cut == nil {
		s.client.SetWriteDeadline(t)
	}
}

// linger sees to it that what was sent last arrives at a client that is still
// sending. To close a socket with something unread in it is a reset: it drops
// what has yet to be sent, and on some systems what the client has yet to read.
// So the client is told the end, and what it sends is dropped until it closes too.
func (s *session) linger() {
	s.mu.Lock()
	s.closing = true
	s.mu.Unlock()
	s.client.SetDeadline(time.Now().Add(farewellWithin))
	closeWrite(s.client)
	if s.encrypted() { // that was TLS's own end
		closeWrite(s.socket)
	}
	s.socket.SetReadDeadline(time.Now().Add(farewellWithin))
	_ = wire.NewReader(s.socket).Discard() // its end is all that is awaited
}
