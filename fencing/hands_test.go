package fencing_test

import (
	"context"
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/fenceproxy/fenceproxy/fencing"
)

// What waits holds up nothing else, and is waited for at the end.
func TestHands_Do(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	h := fencing.NewHands(ctx)
	let, done := make(chan struct{}), make(chan int)
	var finished atomic.Bool
	h.Do(func() {
		<-let
		for range 1000 { // whoever doesn't wait for this ends meanwhile
			runtime.Gosched()
		}
		finished.Store(true)
	})
	for i := range 2 { // by a new one, and by one that is free, or another new one
		h.Do(func() { done <- i })
		if got := <-done; got != i {
			t.Errorf("got %d done, want %d", got, i)
		}
	}
	cancel()
	close(let)
	h.Wait()
	if !finished.Load() {
		t.Error("the wait ended before all was done")
	}
}
