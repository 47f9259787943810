package lobby

import "time"

// inVain is how often the watch is looked at where nothing moves before nobody looks
// until something does.
const inVain = 100

// supervise looks at the watch every so often, and takes it from whoever has gone on with
// the same connection all that time. Others are to give way for a moment: from who keeps a
// processor for 10 ms the Go runtime would take it, and look again every 20 µs for long.
func (l *Lobby) supervise(patience time.Duration) {
	for {
		select {
		case <-l.done:
			return
		case <-l.busy:
			l.superviseWhileBusy(patience)
		}
	}
}

func (l *Lobby) superviseWhileBusy(patience time.Duration) {
	tick := time.NewTicker(patience)
	defer tick.Stop()
	var last *Shift
	var turns uint64
	for still := 0; still < inVain; still++ {
		select {
		case <-l.done:
			return
		case <-tick.C:
		}
		l.mu.Lock()
		s := l.shift
		l.mu.Unlock()
		s.mu.Lock()
		if s != last || s.turns != turns {
			still = 0
			s.yield.Store(true)
		} else if s.within {
			s.leave()
		}
		last, turns = s, s.turns
		s.mu.Unlock()
	}
}
