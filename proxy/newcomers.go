package proxy

import (
	"container/list"
	"errors"
	"time"
)

// Defaults of a Server.
const (
	// DefaultMaxNewcomers bounds the clients that haven't said yet who they are.
	DefaultMaxNewcomers = 4096
	// DefaultNewcomerPatience is how long each of them may take for that while
	// others wait for its place. The login timeout bounds it in any case.
	DefaultNewcomerPatience = 3 * time.Second
)

// Newcomers are the clients from whom no startup packet has come yet: those who
// encrypt, those who say nothing, and those whose cancel request names no session.
// Nothing is known of them, so nothing else bounds how many there are. Once there
// are MaxNewcomers, the one that came first is hung up on if it has had its time;
// if it hasn't, all may be clients that mean it and come at once, and the next one
// waits, unaccepted, in the socket's queue. Server.mu guards it.
type newcomers struct {
	all  list.List     // of *session, in the order in which they came
	left chan struct{} // closed, and another, when one is none any more
}

// A place is a session's among the newcomers; nil where it has none.
type place = *list.Element

// add takes in a session that has just been accepted.
func (n *newcomers) add(ses *session) { ses.newcomer = n.all.PushBack(ses) }

// leave takes a session out, and reports whether it was in.
func (n *newcomers) leave(ses *session) bool {
	if ses.newcomer == nil {
		return false
	}
	n.all.Remove(ses.newcomer)
	ses.newcomer = nil
	close(n.left)
	n.left = make(chan struct{})
	return true
}

// errCrowdedOut: the client had its time, and others wait for its place.
var errCrowdedOut = errors.New("too many clients connect, and this one has said nothing for too long")

// makeRoom waits until one more newcomer may be taken in, or the server is closed.
func (s *Server) makeRoom() {
	for {
		s.mu.Lock()
		oldest := s.newcomers.all.Front()
		if oldest == nil || s.newcomers.all.Len() < s.MaxNewcomers {
			s.mu.Unlock()
			return
		}
		ses := oldest.Value.(*session)
		patience := time.Until(ses.came.Add(s.NewcomerPatience))
		if patience <= 0 {
			s.newcomers.leave(ses)
		}
		left := s.newcomers.left
		s.mu.Unlock()
		if patience <= 0 {
			s.Metrics.CrowdedOut.Inc()
			ses.cutWith(errCrowdedOut, errTooMany)
			return
		}
		timer := time.NewTimer(patience)
		select {
		case <-left:
		case <-timer.C:
		case <-s.ctx.Done():
			timer.Stop()
			return
		}
		timer.Stop()
	}
}

// introduce takes a client out of the newcomers: it has shown the key of a session
// that it may cancel.
func (s *Server) introduce(ses *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.newcomers.leave(ses)
}
