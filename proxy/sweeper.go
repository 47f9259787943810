package proxy

import "time"

// The sweeper looks at all sessions this many times within the shorter of the
// two idle timeouts, but not more often than a machine can take nor less often
// than a person would wait for.
const (
	sweepsPerTimeout = 10
	sweepAtLeast     = time.Second
	sweepAtMost      = 5 * time.Millisecond
)

// startSweeper ends sessions that are idle for too long, while there is such a
// thing, until the function that it returns is called.
func (s *Server) startSweeper() (stop func()) {
	stopping, stopped := make(chan struct{}), make(chan struct{})
	go s.sweepUntil(stopping, stopped)
	return func() {
		close(stopping)
		<-stopped
	}
}

// sweepEvery is the time between two rounds, 0 if no session is too idle.
func (s *Server) sweepEvery() time.Duration {
	now := s.settings()
	shorter := now.ClientIdleTimeout
	if t := now.IdleTransactionTimeout; shorter == 0 || t > 0 && t < shorter {
		shorter = t
	}
	if shorter == 0 {
		return 0
	}
	return min(max(shorter/sweepsPerTimeout, sweepAtMost), sweepAtLeast)
}

// sweepUntil returns when stopping is closed.
func (s *Server) sweepUntil(stopping <-chan struct{}, stopped chan<- struct{}) {
	defer close(stopped)
	for {
		changed := s.reswept() // before the settings are looked at
		var tick <-chan time.Time
		if every := s.sweepEvery(); every > 0 {
			tick = time.After(every)
		}
		select {
		case <-stopping:
			return
		case <-changed:
		case now := <-tick:
			s.sweep(now)
		}
	}
}

func (s *Server) sweep(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for ses := range s.sessions {
		ses.sweep(now)
	}
}
