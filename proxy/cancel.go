package proxy

import (
	"context"
	"crypto/subtle"
	"encoding/binary"
	"errors"
	"net"
	"slices"
	"sync"

	"github.com/fenceproxy/fenceproxy/fencing"
	"github.com/fenceproxy/fenceproxy/proxy/wire"
)

// errCanceled refuses a tag whose claim a cancel request broke off, with
// PostgreSQL's own words.
var errCanceled = &fencing.Error{Code: "57014", Message: "canceling statement due to user request"}

// cancelAnywhere takes the cancel request of a client, by: for a session of this
// proxy, or else of one of its peers. The client waits for its end. What names no
// session is dropped silently, as PostgreSQL does.
func (s *Server) cancelAnywhere(by *session, key []byte) {
	if !s.cancelHere(by, key) {
		s.cancelAtPeers(key)
	}
}

// cancelHere takes a cancel request for a session of this proxy, and reports
// whether there is one with that key.
func (s *Server) cancelHere(by *session, key []byte) bool {
	s.mu.Lock()
	ses := s.cancels.find(key)
	s.mu.Unlock()
	if ses == nil {
		return false
	}
	s.introduce(by)
	ses.cancel(key)
	return true
}

// A keyring has the sessions by the process id that their cancel keys begin with:
// that is no secret, and what follows is compared without telling by the time it
// takes how much of a guess was right. Server.mu guards it.
type keyring map[string][]*session

// idOf is the part of a key that is no secret.
func idOf(key string) string { return key[:min(len(key), 4)] }

func (k keyring) add(ses *session) {
	id := idOf(ses.cancelKey)
	k[id] = append(k[id], ses)
}

// drop takes a session out, if it is in.
func (k keyring) drop(ses *session) {
	id := idOf(ses.cancelKey)
	all := slices.DeleteFunc(k[id], func(other *session) bool { return other == ses })
	if k[id] = all; len(all) == 0 {
		delete(k, id)
	}
}

// find returns the session whose key it is, of several the last one; nil if there
// is none.
func (k keyring) find(key []byte) (found *session) {
	for _, ses := range k[idOf(string(key))] {
		if subtle.ConstantTimeCompare([]byte(ses.cancelKey), key) == 1 {
			found = ses
		}
	}
	return found
}

// cancel breaks off what the client waits for: a claim of the proxy's, or
// what PostgreSQL runs for the session. If that is nothing, the request came too
// late and must not hit what comes next.
func (s *session) cancel(key []byte) {
	s.mu.Lock()
	if s.claiming != nil {
		s.claiming(errCanceled)
	}
	running := !s.over && (s.lost || s.asking || s.queue.Len() > 0)
	if running {
		s.delivery.begin()
	}
	s.mu.Unlock()
	if !running {
		return
	}
	ended := sync.OnceFunc(s.deliveryEnded)
	defer ended()
	ctx, cancel := context.WithTimeout(s.srv.ctx, s.srv.CancelTimeout)
	defer cancel()
	stop := context.AfterFunc(ctx, ended)
	defer stop()
	conn, err := s.endpoint.connect(ctx, s.srv.CancelTimeout)
	if err == nil {
		life, leave := s.untilReplied()
		defer leave()
		_, err = handCancel(life, conn, wire.CodeCancel, key) // any end is one
	}
	if err != nil && !errors.Is(err, context.Canceled) { // else the session has ended, and what ran with it
		s.logger().Warn("deliver cancel request", "error", err)
	}
}

// untilReplied returns a context that ends with the session. A server that hangs
// may read a cancel request that it was sent at any later time, and closing the
// connection doesn't take it back: the client's own stays open as long, as it
// would at PostgreSQL. leave must be called.
func (s *session) untilReplied() (ctx context.Context, leave func()) {
	ctx, cancel := context.WithCancel(s.srv.ctx)
	var watch sync.WaitGroup
	watch.Go(func() {
		select {
		case <-s.replied:
			cancel()
		case <-ctx.Done():
		}
	})
	return ctx, func() { cancel(); watch.Wait() }
}

// handCancel sends a cancel request and waits until the server has closed the
// connection: PostgreSQL does so when the signal is sent, and a backend that has
// got it idle has forgotten it before it reads its next request (postgres.c,
// ProcessInterrupts while DoingCommandRead). It closes conn, and tells
// how that ended.
func handCancel(ctx context.Context, conn net.Conn, code uint32, key []byte) (end, err error) {
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	packet := binary.BigEndian.AppendUint32(nil, uint32(8+len(key)))
	packet = append(binary.BigEndian.AppendUint32(packet, code), key...)
	if _, err := conn.Write(packet); err != nil {
		return nil, err
	}
	_, end = conn.Read(make([]byte, 1)) // nil: a server that answers has refused
	return end, ctx.Err()
}

// A delivery counts the cancel requests that are on their way to a session's
// backend. session.mu guards it.
type delivery struct {
	n    int
	done chan struct{} // closed when n is 0 again; nil while it is
}

func (d *delivery) begin() {
	if d.n == 0 {
		d.done = make(chan struct{})
	}
	d.n++
}

func (s *session) deliveryEnded() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.delivery.n--; s.delivery.n == 0 {
		close(s.delivery.done)
		s.delivery.done = nil
	}
}

// awaitDeliveryLocked holds the session's next request back while a cancel
// request is on its way, for it would hit that request if the one that it was
// meant for has ended. The caller holds mu, which is let go meanwhile.
func (s *session) awaitDeliveryLocked() {
	for s.delivery.done != nil && !s.over {
		done := s.delivery.done
		s.mu.Unlock()
		s.requesting.leave()
		select {
		case <-done:
		case <-s.replied:
		}
		s.mu.Lock()
	}
}

// beginClaim returns the context of a claim that the client waits for: it ends
// with the server, or when the client cancels.
func (s *session) beginClaim() (ctx context.Context, done func()) {
	s.requesting.leave()
	ctx, cancel := context.WithCancelCause(fencing.WithSession(s.srv.ctx, s.id))
	s.mu.Lock()
	s.claiming = cancel
	s.mu.Unlock()
	return ctx, func() {
		s.mu.Lock()
		s.claiming = nil
		s.mu.Unlock()
		cancel(nil)
	}
}
