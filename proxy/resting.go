package proxy

import (
	"errors"
	"os"
	"runtime"

	"github.com/fenceproxy/fenceproxy/proxy/lobby"
	"github.com/fenceproxy/fenceproxy/proxy/wire"
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

// startPumps makes ready for both, and runs them.
func (s *session) startPumps() {
	s.lobby = s.srv.lobbyFor()
	s.requesting = pump{conn: lobby.Of(s.client), goOn: s.serveOn}
	s.replying = pump{conn: lobby.Of(s.backend), goOn: s.replies}
	s.ownSockets()
	s.fromClient.Waits, s.toBackend.Waits = s.requesting.leave, s.requesting.leave
	s.fromBackend.Waits, s.toClient.Waits = s.replying.leave, s.replying.leave
	go s.replies(nil)
	s.serveOn(nil)
}

// ownSockets takes both sockets out of the runtime's hands, so that the pumps may rest
// whenever they wait. It is called before there are any.
func (s *session) ownSockets() {
	if spareProcessors() > 0 && s.fromClient.Plain() && s.fromBackend.Plain() {
		s.rests = s.requesting.conn.Own(s.lobby) && s.replying.conn.Own(s.lobby)
	}
}

// restLocked asks both pumps to give up what they can; a reply pump at rest has
// nothing left. The caller holds mu and has seen that nothing is due.
func (s *session) restLocked() {
	if s.console || s.over || s.draining || s.lobby == nil {
		return
	}
	if !s.idle.resting {
		s.idle.resting = true
		s.requesting.conn.Wake()
	}
	s.requesting.conn.Nudge()
	s.replying.conn.Nudge()
}

// A pump is one of a session's two, as far as it rests.
type pump struct {
	conn  *lobby.Conn        // what it reads
	goOn  func(*lobby.Shift) // runs it after a rest, with the watch or without
	watch *lobby.Shift       // that whoever runs it has, nil: none
}

// leave is called before the pump waits.
func (p *pump) leave() { p.watch.Leave() }

// rest reports whether the pump is at rest in l from now on.
func (p *pump) rest(l *lobby.Lobby) bool {
	watch := p.watch
	p.watch = nil
	if p.conn.Rest(l, p.goOn) {
		return true
	}
	p.watch = watch
	return false
}

// header returns the header of the pump's next message, or errResting: it will be
// called again when there is one.
func (s *session) header(from *wire.Reader, p *pump) (t byte, n int, err error) {
	if s.rests {
		if t, n, err = from.Poll(); !errors.Is(err, wire.ErrNothing) {
			return t, n, err
		}
		if p.rest(s.lobby) {
			return 0, 0, errResting
		}
	}
	return from.Next()
}

// restLong has the request pump keep nothing for its next message, which costs more
// than to make it anew, and reports whether it is at rest from now on.
func (s *session) restLong() bool {
	s.dropScratch()
	s.awaits = true
	return s.requesting.rest(s.lobby)
}

func (s *session) dropScratch() { s.stmts, s.checking, s.rewritten = nil, batch{}, nil }

// orRest returns what is to become of the reply pump, which has met err between
// two messages: errResting if it is at rest from now on, nil if it goes on.
func (s *session) orRest(err error) error {
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		return err
	}
	switch {
	case s.replying.rest(s.lobby):
		return errResting
	case s.replying.conn.Nudged():
		return nil
	}
	return err
}
