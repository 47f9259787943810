package fencing

import "sync"

// mostDue is how many reports may wait for the Observer. A log that nobody reads
// keeps claims waiting then, and doesn't fill the memory.
const mostDue = 1000

// A telling is what the Observer is yet to hear of claims, in the order in which
// they ended. It is told by a goroutine of its own, so that whoever claimed
// doesn't wait for a line of the log. That ends when there is nothing more.
type telling struct {
	mu    sync.Mutex
	due   []ClaimReport
	taken sync.Cond // due was taken; its L is mu
	on    bool      // the goroutine is there, and looks again before it ends
}

// claimDone has o told. running counts the goroutine, and the caller already.
func (t *telling) claimDone(o Observer, running *sync.WaitGroup, r ClaimReport) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.taken.L = &t.mu
	for len(t.due) >= mostDue {
		t.taken.Wait()
	}
	t.due = append(t.due, r)
	if !t.on {
		t.on = true
		running.Go(func() { t.tell(o) })
	}
}

func (t *telling) tell(o Observer) {
	for {
		t.mu.Lock()
		due := t.due
		t.due, t.on = nil, len(due) > 0
		t.mu.Unlock()
		if len(due) == 0 {
			return
		}
		t.taken.Broadcast()
		for _, r := range due {
			o.ClaimDone(r)
		}
	}
}
