package fencing

import (
	"context"
	"sync"
	"time"
)

// handsIdle is how long a goroutine waits for another claim.
const handsIdle = time.Minute

// hands are goroutines that carry claims out, and wait for the next one then: a
// stack that has grown for a claim needn't grow for each, which takes a twentieth
// of its time.
type hands struct {
	next chan func() // unbuffered: whoever takes from it is free
	ctx  context.Context
	all  sync.WaitGroup
}

func newHands(ctx context.Context) *hands { return &hands{next: make(chan func()), ctx: ctx} }

// wait waits until all have ended, once ctx has and nobody calls do any more.
func (h *hands) wait() { h.all.Wait() }

// do has a goroutine run f, one that is free or a new one.
func (h *hands) do(f func()) {
	select {
	case h.next <- f:
	default:
		h.all.Go(func() { h.work(f) })
	}
}

// work ends when there was nothing to do for handsIdle, or with ctx.
func (h *hands) work(f func()) {
	idle := time.NewTimer(handsIdle)
	defer idle.Stop()
	for {
		f()
		idle.Reset(handsIdle)
		select {
		case f = <-h.next:
		case <-idle.C:
			return
		case <-h.ctx.Done():
			return
		}
	}
}
