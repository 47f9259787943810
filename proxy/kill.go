package proxy

import (
	"context"
	"fmt"
	"sync"
)

// A killing is why an administrator ends a session, and what its client hears.
type killing struct {
	why  error
	last *lastWord
}

// Kill ends the session with a number, whatever it is doing, as an administrator's
// pg_terminate_backend does: what runs is cancelled, its transaction rolled back,
// and the client hears 57P01. It reports whether there was one. by is the role that
// wanted it.
func (s *Server) Kill(ctx context.Context, number uint64, by string) bool {
	ses, key := s.numbered(number)
	if ses == nil || !ses.kill(ctx, key, by) {
		return false
	}
	s.Logger.Info(LogSessionKilled, "session", number, "by", by)
	return true
}

// numbered returns a session by its number, and its cancel key; nil if there is none.
func (s *Server) numbered(number uint64) (*session, []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for ses := range s.sessions {
		if ses.id == number {
			return ses, []byte(ses.cancelKey)
		}
	}
	return nil, nil
}

// kill cancels what the session runs, since PostgreSQL would finish and commit that
// for a client that has only gone, and then cuts the session off. The next request
// isn't sent meanwhile, and what PostgreSQL says to the cancellation isn't passed
// on: its client hears one error, as it would from PostgreSQL.
func (s *session) kill(ctx context.Context, key []byte, by string) bool {
	s.mu.Lock()
	if s.closing || s.cut != nil || s.killed != nil {
		s.mu.Unlock()
		return false
	}
	s.killed = &killing{
		why: fmt.Errorf("killed on the console by role %q", by),
		last: &lastWord{code: errDrained.code, message: "terminating connection due to administrator command",
			detail: fmt.Sprintf("Role %q killed the session on fenceproxy's console.", by)},
	}
	opened := s.opened
	s.delivery.begin()
	s.mu.Unlock()
	defer s.deliveryEnded()

	var canceling sync.WaitGroup
	defer canceling.Wait() // it ends with the session
	if opened {
		sent := make(chan struct{})
		canceling.Go(func() {
			defer close(sent)
			s.cancel(key)
		})
		ctx, stop := context.WithTimeout(ctx, s.srv.CancelTimeout)
		defer stop()
		select {
		case <-sent:
		case <-ctx.Done():
		}
	}
	s.cutWith(s.killed.why, s.killed.last) // unless the reply pump has
	return true
}

// cutIfKilled ends a session that is being killed, and reports whether it is. The
// reply pump asks it before it passes an error on.
func (s *session) cutIfKilled() bool {
	s.mu.Lock()
	k := s.killed
	s.mu.Unlock()
	return k != nil && s.cutWith(k.why, k.last)
}
