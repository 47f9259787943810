package main

import (
	"container/list"
	"net"
	"net/http"
	"sync"
)

// mostAdminConns is how many connections the admin port has at a time: descriptors that
// strangers use up there would be missing for clients.
const mostAdminConns = 256

// adminConns bounds the connections of a server. One too many takes the place of the one
// that has been silent for longest, so that who holds connections open keeps no probe
// away; if all are being answered it is closed.
type adminConns struct {
	most int

	mu     sync.Mutex
	silent *list.List // of net.Conn: nothing is being asked; the longest first
	open   map[net.Conn]*list.Element
}

func newAdminConns(most int) *adminConns {
	return &adminConns{most: most, silent: list.New(), open: map[net.Conn]*list.Element{}}
}

// changed is http.Server.ConnState.
func (a *adminConns) changed(conn net.Conn, state http.ConnState) {
	a.mu.Lock()
	defer a.mu.Unlock()
	at := a.open[conn]
	if at != nil {
		a.silent.Remove(at)
		a.open[conn] = nil
	}
	switch state {
	case http.StateNew:
		if len(a.open) >= a.most && !a.makeRoomLocked() {
			conn.Close()
			return
		}
		a.open[conn] = a.silent.PushBack(conn)
	case http.StateIdle:
		a.open[conn] = a.silent.PushBack(conn)
	case http.StateActive:
		a.open[conn] = nil
	case http.StateHijacked, http.StateClosed:
		delete(a.open, conn)
	}
}

// makeRoomLocked closes a connection on which nothing is asked, if there is one.
func (a *adminConns) makeRoomLocked() bool {
	oldest := a.silent.Front()
	if oldest == nil {
		return false
	}
	conn := a.silent.Remove(oldest).(net.Conn)
	delete(a.open, conn)
	conn.Close()
	return true
}
