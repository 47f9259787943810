package proxy

import "time"

// The sweeper looks at all sessions this many times within the shortest of the
// two idle timeouts and the time until a rest, but not more often than a machine
// can take nor less often than a person would wait for.
const (
	sweepsPerTimeout = 10
	sweepAtLeast     = time.Second
	sweepAtMost      = 5 * time.Millisecond
)

// startSweeper ends sessions that are idle for too long, while there is such a
// thing, and has others rest, until the function that it returns is called.
func (s *Server) startSweeper() (stop func()) {
	stopping, stopped := make(chan struct{}), make(chan struct{})
	go s.sweepUntil(stopping, stopped)
	return func() {
		close(stopping)
		<-stopped
	}
}

// sweepEvery is the time between two rounds, 0 if there is nothing to look for.
func (s *Server) sweepEvery() time.Duration {
	now := s.settings()
	var shortest time.Duration
	for _, t := range []time.Duration{now.ClientIdleTimeout, now.IdleTransactionTimeout, s.RestAfter} {
		if t > 0 && (shortest == 0 || t < shortest) {
			shortest = t
		}
	}
	if shortest == 0 {
		return 0
	}
	return min(max(shortest/sweepsPerTimeout, sweepAtMost), sweepAtLeast)
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
			s.relieve(s.sweep(now), now)
		}
	}
}

// sweep looks at each session, and returns how many have been idle for long.
func (s *Server) sweep(now time.Time) (resting int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for ses := range s.sessions {
		if ses.sweep(now) {
			resting++
		}
	}
	return resting
}
