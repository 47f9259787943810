package proxy

import (
	"errors"
	"os"

	"github.com/fenceproxy/fenceproxy/proxy/lobby"
)

// A session that is idle for long gives up the goroutines of its two pumps, which
// are the larger part of what it costs: the sweeper wakes each of them, and it goes
// to rest in the lobby instead of waiting on. Either is taken up again when its
// peer has sent something, or when anybody closes its connection or sets a deadline,
// as all do that end a session.

// errResting: the pump is at rest, and another goroutine will go on with it.
// Whoever gets it leaves the session alone.
var errResting = errors.New("session is at rest")

// restLocked asks both pumps to rest; those that do already are left alone. The
// caller holds mu and has seen that nothing is due.
func (s *session) restLocked() {
	if s.console || s.over || s.draining || s.srv.lobby == nil {
		return
	}
	s.idle.resting = true
	lobby.Of(s.client).Nudge()
	lobby.Of(s.backend).Nudge()
}

// restRequests reports whether the request pump is at rest from now on. What it
// has kept to write in costs more than to make it anew.
func (s *session) restRequests() bool {
	s.stmts, s.checking, s.rewritten = nil, batch{}, nil
	return lobby.Of(s.client).Rest(s.srv.lobby, func() {
		s.mu.Lock()
		s.idle.resting = false
		s.mu.Unlock()
		s.serveOn()
	})
}

// orRest returns what is to become of the reply pump, which has met err between
// two messages: errResting if it is at rest from now on, nil if it goes on.
func (s *session) orRest(err error) error {
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		return err
	}
	switch conn := lobby.Of(s.backend); {
	case conn.Rest(s.srv.lobby, s.replies):
		return errResting
	case conn.Nudged():
		return nil
	}
	return err
}
