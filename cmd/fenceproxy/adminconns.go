package main

import (
	"bytes"
	"container/list"
	"context"
	"io"
	"net"
	"net/http"
	"sync"
	"time"
)

const (
	// mostAdminConns is how many connections the admin port has at a time: descriptors
	// that strangers use up there would be missing for clients.
	mostAdminConns = 256
	// maxAdminBody bounds what is read behind a request, and bodyWithin how long.
	maxAdminBody = 4 << 10
	bodyWithin   = 5 * time.Second
	// answerWithin is how long an answer may take while connections are short: longer
	// is one that somebody doesn't read, or a stream, which its page opens again.
	answerWithin = 3 * time.Second
)

// adminConns bounds the connections of a server. One too many takes the place of the one
// that has been silent for longest, or else of the one that has been answered for
// longest, if that is long enough: so nobody who holds connections open keeps a probe
// away. If there is neither it is closed.
type adminConns struct {
	most   int
	within time.Duration

	mu     sync.Mutex
	silent *list.List // of *adminConn that the server waits for; the longest first
	busy   *list.List // of *adminConn that are being answered; the longest first
	open   map[net.Conn]*adminConn
}

// An adminConn is one of a server's connections.
type adminConn struct {
	net.Conn
	since time.Time // it is in the list
	list  *list.List
	at    *list.Element
}

func newAdminConns(most int, within time.Duration) *adminConns {
	return &adminConns{most: most, within: within, silent: list.New(), busy: list.New(), open: map[net.Conn]*adminConn{}}
}

// watch has a server's connections bounded.
func (a *adminConns) watch(server *http.Server) {
	server.ConnState = a.changed
	server.ConnContext = func(ctx context.Context, conn net.Conn) context.Context {
		return context.WithValue(ctx, adminConnKey{}, conn)
	}
	server.Handler = a.readBodies(server.Handler)
}

// adminConnKey is what the context of a request has its connection under.
type adminConnKey struct{}

func (a *adminConns) changed(conn net.Conn, state http.ConnState) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch state {
	case http.StateNew:
		if len(a.open) >= a.most && !a.makeRoomLocked() {
			conn.Close()
			return
		}
		a.open[conn] = &adminConn{Conn: conn}
		a.putLocked(conn, a.silent)
	case http.StateIdle:
		a.putLocked(conn, a.silent)
	case http.StateActive:
		a.putLocked(conn, a.busy)
	case http.StateHijacked, http.StateClosed:
		a.removeLocked(a.open[conn])
	}
}

// put puts a connection at the end of a list, unless it was closed meanwhile.
func (a *adminConns) put(conn net.Conn, into *list.List) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.putLocked(conn, into)
}

func (a *adminConns) putLocked(conn net.Conn, into *list.List) {
	c := a.open[conn]
	if c == nil {
		return
	}
	if c.list != nil {
		c.list.Remove(c.at)
	}
	c.since, c.list, c.at = time.Now(), into, into.PushBack(c)
}

func (a *adminConns) removeLocked(c *adminConn) {
	if c != nil {
		c.list.Remove(c.at)
		delete(a.open, c.Conn)
	}
}

// makeRoomLocked closes a connection that can be spared, if there is one.
func (a *adminConns) makeRoomLocked() bool {
	spare := a.silent.Front()
	if spare == nil {
		if spare = a.busy.Front(); spare == nil || time.Since(spare.Value.(*adminConn).since) < a.within {
			return false
		}
	}
	c := spare.Value.(*adminConn)
	a.removeLocked(c)
	c.Close()
	return true
}

// readBodies reads what stands behind a request before it is answered. Its connection
// counts as silent until all of it has come; net/http would wait for it afterwards, in
// the name of whoever answers.
func (a *adminConns) readBodies(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, ok := r.Context().Value(adminConnKey{}).(net.Conn)
		if r.ContentLength == 0 || !ok {
			next.ServeHTTP(w, r)
			return
		}
		a.put(conn, a.silent)
		_ = conn.SetReadDeadline(time.Now().Add(bodyWithin))
		body, err := io.ReadAll(io.LimitReader(r.Body, maxAdminBody+1))
		a.put(conn, a.busy)
		if err != nil || len(body) > maxAdminBody {
			_ = conn.SetReadDeadline(time.Unix(1, 0)) // nobody waits for the rest
			http.Error(w, "What stands behind the request is too long, or didn't come.", http.StatusRequestEntityTooLarge)
			return
		}
		_ = conn.SetReadDeadline(time.Time{}) // the server sets the next one
		r.Body = io.NopCloser(bytes.NewReader(body))
		next.ServeHTTP(w, r)
	})
}
