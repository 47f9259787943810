package proxy

import (
	"bytes"
	"io"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/fencing"
	"github.com/fenceproxy/fenceproxy/proxy/wire"
)

// A talker is a connection to a PostgreSQL that has a word to say when it is
// closed, as over TLS: whoever reads then gets to hear it.
type talker struct {
	net.Conn // nil
	mu       sync.Mutex
	changed  sync.Cond
	word     []byte
	reading  bool
	late     bool // the read deadline has passed
	closed   bool
}

func newTalker(word []byte) *talker {
	c := &talker{word: word}
	c.changed.L = &c.mu
	return c
}

func (c *talker) Read(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reading = true
	c.changed.Broadcast()
	for !c.late && !c.closed {
		c.changed.Wait()
	}
	switch {
	case c.late:
		return 0, os.ErrDeadlineExceeded
	case len(c.word) == 0:
		return 0, io.EOF
	}
	n := copy(p, c.word)
	c.word = c.word[n:]
	return n, nil
}

func (c *talker) Write(p []byte) (int, error) { return len(p), nil }

func (c *talker) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	c.changed.Broadcast()
	return nil
}

func (c *talker) SetDeadline(t time.Time) error  { return c.SetReadDeadline(t) }
func (*talker) SetWriteDeadline(time.Time) error { return nil }
func (c *talker) SetReadDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.late = !t.IsZero() && t.Before(time.Now())
	c.changed.Broadcast()
	return nil
}

// read waits until somebody reads.
func (c *talker) read() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for !c.reading {
		c.changed.Wait()
	}
}

// What PostgreSQL says to a connection that the proxy closes isn't passed on.
func TestSession_DropsBackend(t *testing.T) {
	gone := wire.AppendError(nil, wire.Report{Severity: "ERROR", Code: "08006", Message: "unexpected EOF on client connection"})
	for name, drop := range map[string]func(*session){
		"a request that ends the session": func(s *session) { s.finish(errCopying) },
		"a last word":                     func(s *session) { s.finish(errIdle) },
		"a last word, and it holds a lock": func(s *session) {
			s.loans = map[string]fencing.Loan{"a": {Key: "a", Token: 1}}
			s.finish(errIdle)
			if !s.backendEnded {
				t.Error("PostgreSQL's end was not waited for")
			}
		},
		"cut off": func(s *session) { s.cutOff(io.ErrClosedPipe) },
		"aborted": func(s *session) { s.abort() },
		"evicted": func(s *session) { s.coming = fencing.Tag{{Key: "a", Token: 1}}; s.evict("a", 1, 2) },
	} {
		t.Run(name, func(t *testing.T) {
			client, peer := net.Pipe()
			t.Cleanup(func() { client.Close(); peer.Close() })
			var heard bytes.Buffer
			all := make(chan struct{})
			go func() { defer close(all); _, _ = io.Copy(&heard, peer) }()
			server := NewServer(nil, nil)
			t.Cleanup(func() { server.Close() })
			s, backend := newSession(server, client, 1), newTalker(gone)
			s.backend, s.fromBackend, s.toBackend = backend, wire.NewServerReader(backend), wire.NewWriter(backend)
			go s.replies(nil)
			backend.read()
			drop(s)
			<-s.replied
			client.Close()
			<-all
			if bytes.Contains(heard.Bytes(), []byte("08006")) {
				t.Errorf("the client heard %q", heard.Bytes())
			}
		})
	}
}
