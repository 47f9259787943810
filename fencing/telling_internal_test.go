package fencing

import (
	"sync"
	"testing"
	"testing/synctest"
)

// A deaf observer hears nothing until it is let.
type deaf struct {
	let  chan struct{}
	told int
}

func (d *deaf) ClaimDone(ClaimReport) {
	<-d.let
	d.told++
}

func (*deaf) BackendEnded(string, string, Blocker) {}

// Reports that nobody takes are bounded: claims wait then, and all are told of in
// the end.
func TestTelling_Bounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &deaf{let: make(chan struct{})}
		var due telling
		var running sync.WaitGroup
		const claims = 3 * mostDue
		for range claims {
			running.Go(func() { due.claimDone(d, &running, ClaimReport{}) })
		}
		synctest.Wait()
		due.mu.Lock()
		got := len(due.due)
		due.mu.Unlock()
		if got != mostDue {
			t.Errorf("got %d reports that wait, want %d", got, mostDue)
		}
		close(d.let)
		running.Wait()
		if d.told != claims {
			t.Errorf("told of %d claims, want %d", d.told, claims)
		}
	})
}
