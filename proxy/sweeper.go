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

// startSweeper ends sessions that are idle for too long, if there is such a
// thing, until the function that it returns is called.
func (s *Server) startSweeper() (stop func()) {
	every := s.sweepEvery()
	if every == 0 {
		return func() {}
	}
	stopping, stopped := make(chan struct{}), make(chan struct{})
	go s.sweepUntil(stopping, stopped, every)
	return func() {
		close(stopping)
		<-stopped
	}
}

// sweepEvery is the time between two rounds, 0 if no session is too idle.
func (s *Server) sweepEvery() time.Duration {
	shorter := s.ClientIdleTimeout
	if t := s.IdleTransactionTimeout; shorter == 0 || t > 0 && t < shorter {
		shorter = t
	}
	if shorter == 0 {
		return 0
	}
	return min(max(shorter/sweepsPerTimeout, sweepAtMost), sweepAtLeast)
}

// sweepUntil returns when stopping is closed.
func (s *Server) sweepUntil(stopping <-chan struct{}, stopped chan<- struct{}, every time.Duration) {
	defer close(stopped)
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-stopping:
			return
		case <-tick.C:
		}
		s.sweep(time.Now())
	}
}

func (s *Server) sweep(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for ses := range s.sessions {
		ses.sweep(now)
	}
}
