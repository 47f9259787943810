package lobby

import (
	"runtime"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// A Shift is somebody's watch over a lobby, with the events that they have got.
type Shift struct {
	lobby *Lobby
	yield atomic.Bool // whoever has it is to give way to others for a moment

	mu     sync.Mutex
	events [64]unix.EpollEvent
	n      int    // of events,
	next   int    // of them the first that nobody has gone on with
	turns  uint64 // counts those that somebody has
	within bool   // somebody goes on with one
	over   bool   // another one has the watch
}

// begin has somebody take the watch, with events that were got before.
func (l *Lobby) begin(events []unix.EpollEvent) {
	s := &Shift{lobby: l}
	s.n = copy(s.events[:], events)
	l.mu.Lock()
	l.shift = s
	l.mu.Unlock()
	if len(events) > 0 {
		l.moves()
	}
	go s.watch()
}

// moves has the watch looked at.
func (l *Lobby) moves() {
	select {
	case l.busy <- struct{}{}:
	default:
	}
}

// Leave hands the watch on, since who has it is about to wait. It may be called
// more than once, and of nil.
func (s *Shift) Leave() {
	if s == nil {
		return
	}
	s.mu.Lock()
	s.leave()
	s.mu.Unlock()
	runtime.UnlockOSThread()
}

func (s *Shift) leave() {
	if s.within && !s.over {
		s.over = true
		s.lobby.begin(s.events[s.next:s.n])
	}
}

// watch goes on with those for whom something has come, until the watch is another's.
// Up to then it keeps to one thread, which costs less than to move.
func (s *Shift) watch() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread() // does nothing after Leave
	for {
		if s.yield.Load() {
			s.yield.Store(false)
			runtime.Gosched()
		}
		switch e, what := s.take(); what {
		case nextEvent:
			if !s.lobby.call(e, s) {
				s.last()
				return
			}
		case noMore:
			n, err := s.lobby.wait(s.events[:])
			if err != nil {
				s.last()
				return
			}
			s.got(n)
		case left:
			return
		}
	}
}

// last ends the watch, unless it is another's already, who will.
func (s *Shift) last() {
	s.mu.Lock()
	mine := !s.over
	s.over = true
	s.mu.Unlock()
	if mine {
		s.lobby.end()
	}
}

type step uint8

const (
	nextEvent step = iota
	noMore
	left
)

// take takes the next event, or says why there is none.
func (s *Shift) take() (unix.EpollEvent, step) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.within = false
	switch {
	case s.over:
		return unix.EpollEvent{}, left
	case s.next == s.n:
		s.n, s.next = 0, 0
		return unix.EpollEvent{}, noMore
	}
	s.turns++
	s.within = true
	s.next++
	return s.events[s.next-1], nextEvent
}

// got takes that events have come.
func (s *Shift) got(n int) {
	s.mu.Lock()
	s.n = n
	s.mu.Unlock()
	s.lobby.moves()
}
