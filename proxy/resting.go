package proxy

import (
	"errors"
	"os"
	"runtime"

	"github.com/fenceproxy/fenceproxy/proxy/lobby"
)

// A pump that would have to wait for its next message goes to rest in a lobby and
// gives up its goroutine. The lobby goes on with it when its peer has sent
// something, or when anybody closes its connection or sets a deadline, as all do
// that end a session; mostly it does so itself, and the pump is to leave the watch
// before it waits for anything else. With TLS on a leg, where what lies in the socket
// doesn't tell what has come, pumps keep their goroutines until the session has been idle for long.

// errResting: the pump is at rest, and another goroutine will go on with it.
// Whoever gets it leaves the session alone.
var errResting = errors.New("session is at rest")

// seats is how many connections all lobbies together are given before each gets its
// share: one thread does what it can with less CPU than two would, since it finds more to
// do whenever it looks.
const seats = 512

// openLobbiesLocked makes the places where sessions rest, before there are any. Where
// there can be none pumps keep their goroutines. The caller holds mu.
func (s *Server) openLobbiesLocked() {
	if len(s.lobbies) > 0 {
		return // another listener's are this one's too
	}
	for range max(1, spareProcessors()) {
		l, err := lobby.New(s.Patience)
		if err != nil {
			return
		}
		s.lobbies = append(s.lobbies, l)
	}
}

// spareProcessors is how many of Go's processors lobbies may have. One that relays without a
// pause gives its own up to nobody for milliseconds, so one is left for everything else.
func spareProcessors() int { return runtime.GOMAXPROCS(0) - 1 }

// closeLobbies is called when there are no sessions any more.
func (s *Server) closeLobbies() {
	s.mu.Lock()
	all := s.lobbies
	s.mu.Unlock()
	for _, l := range all {
		_ = l.Close()
	}
}

// lobbyFor returns where a new session is to rest, nil if nowhere: in the first lobby that
// has room, or where there is most.
func (s *Server) lobbyFor() (least *lobby.Lobby) {
	fewest := 0
	for _, l := range s.lobbies {
		n := l.Seats()
		if n < seats/len(s.lobbies) {
			return l
		}
		if least == nil || n < fewest {
			least, fewest = l, n
		}
	}
	return least
}

// ownSockets takes both sockets out of the runtime's hands, so that the pumps may rest
// whenever they wait. It is called before there are any.
func (s *session) ownSockets() {
	if spareProcessors() > 0 && s.fromClient.Plain() && s.fromBackend.Plain() {
		s.rests = lobby.Of(s.client).Own(s.lobby) && lobby.Of(s.backend).Own(s.lobby)
	}
}

// restLocked asks both pumps to give up what they can; a reply pump at rest has
// nothing left. The caller holds mu and has seen that nothing is due.
func (s *session) restLocked() {
	if s.console || s.over || s.draining || s.lobby == nil {
		return
	}
	client := lobby.Of(s.client)
	if !s.idle.resting {
		s.idle.resting = true
		client.Wake()
	}
	client.Nudge()
	lobby.Of(s.backend).Nudge()
}

// leaveWatch is called before the request pump waits, and leaveReplyWatch before
// the reply pump does.
func (s *session) leaveWatch() { s.watch.Leave() }

func (s *session) leaveReplyWatch() { s.replyWatch.Leave() }

// restRequests reports whether the request pump is at rest from now on. What it
// has kept to write in costs more than to make it anew, and is kept for long only
// if it is wanted soon.
func (s *session) restRequests() bool {
	s.mu.Lock()
	long := s.idle.resting
	s.mu.Unlock()
	if long {
		s.stmts, s.checking, s.rewritten = nil, batch{}, nil
	}
	watch := s.watch
	s.watch, s.awaits = nil, true
	if lobby.Of(s.client).Rest(s.lobby, s.onRequest) {
		return true
	}
	s.watch = watch
	return false
}

// restReplies reports whether the reply pump is at rest from now on.
func (s *session) restReplies() bool {
	watch := s.replyWatch
	s.replyWatch = nil
	if lobby.Of(s.backend).Rest(s.lobby, s.onReply) {
		return true
	}
	s.replyWatch = watch
	return false
}

// orRest returns what is to become of the reply pump, which has met err between
// two messages: errResting if it is at rest from now on, nil if it goes on.
func (s *session) orRest(err error) error {
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		return err
	}
	switch {
	case s.restReplies():
		return errResting
	case lobby.Of(s.backend).Nudged():
		return nil
	}
	return err
}
