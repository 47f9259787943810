package proxy

import (
	"runtime/debug"
	"time"
)

// What sessions at rest have given up is the system's only after a run of the
// garbage collector, and a proxy that is idle has none for minutes. So there is
// one when reliefAfter sessions have come to rest and no more are coming,
// reliefEvery at most.
const (
	reliefAfter = 250
	reliefEvery = 15 * time.Second
)

// A relief remembers when memory was given back.
type relief struct {
	rested int // sessions at rest then, or the fewest since
	before int // those of the round before
	at     time.Time
}

// due reports whether memory is to be given back, and takes it as done.
func (r *relief) due(rested int, now time.Time) bool {
	more := rested > r.before
	r.before, r.rested = rested, min(r.rested, rested)
	if more || rested < r.rested+reliefAfter || now.Sub(r.at) < reliefEvery {
		return false
	}
	r.rested, r.at = rested, now
	return true
}

// relieve gives memory back if it is due with so many sessions at rest.
func (s *Server) relieve(resting int, now time.Time) {
	s.mu.Lock()
	due := s.relief.due(resting, now)
	s.mu.Unlock()
	if due {
		debug.FreeOSMemory()
	}
}
