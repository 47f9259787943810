package proxy

import (
	"cmp"
	"slices"

	"github.com/fenceproxy/fenceproxy/proxy/live"
	"github.com/fenceproxy/fenceproxy/proxy/wire"
)

// LiveSessions returns how the sessions stand at this moment, by their number.
// Nothing waits for it but what begins and ends sessions, for as long as it takes
// to look at each.
func (s *Server) LiveSessions() []live.Session {
	s.mu.Lock()
	all := make([]live.Session, 0, len(s.sessions))
	for ses := range s.sessions {
		all = append(all, ses.snapshotLocked())
	}
	s.mu.Unlock()
	slices.SortFunc(all, func(a, b live.Session) int { return cmp.Compare(a.ID, b.ID) })
	return all
}

// snapshotLocked is how the session stands. The caller holds the server's mu.
func (s *session) snapshotLocked() live.Session {
	s.mu.Lock()
	defer s.mu.Unlock()
	v := live.Session{ID: s.id, Remote: s.socket.RemoteAddr().String(), State: s.stateLocked()}
	if !s.opened {
		return v // who it is may be being found out
	}
	v.PID, v.User, v.Database, v.Application, v.Console, v.Since = s.pid(), s.user, s.database, s.application, s.console, s.began
	v.In, v.Out = s.fromClient.Total(), s.toClient.Total()
	v.Tag, v.At, v.Coming = s.measured.tag, s.measured.section, s.coming
	if s.guarded && (s.status != wire.StatusIdle || s.queue.Len() > 0) {
		v.Transaction = s.measured.began
	}
	return v
}

// stateLocked is what the session is doing. The caller holds mu.
func (s *session) stateLocked() live.State {
	switch {
	case s.closing, s.cut != nil, s.killed != nil:
		return live.Ending
	case !s.opened:
		return live.Login
	case s.victim != nil, s.ending != nil:
		return live.Evicted
	case s.claiming != nil && !s.console:
		return live.Claiming
	case s.owed > 0, s.queue.Len() > 0, s.idle.waiting && s.idle.segment, s.console && !s.idle.waiting:
		return live.Active
	case s.status == wire.StatusFailed:
		return live.IdleInFailed
	case s.status == wire.StatusBlock:
		return live.IdleInTransaction
	}
	return live.Idle
}
