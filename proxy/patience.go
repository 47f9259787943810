package proxy

import (
	"context"
	"errors"
	"sync"
	"time"
)

// Why a wait for a lock ends that neither got it nor was canceled.
var (
	errWaiterLeft    = errors.New("the client has left")
	errWaiterEnded   = errors.New("the session has ended")
	errWaiterDrained = errors.New("fenceproxy is shutting down")
)

// beginWait is beginClaim for what may take long: it ends too when the client
// goes, when the backend does, and when the server shuts down. done must be called;
// up to then nothing else reads from the client.
func (s *session) beginWait(wait time.Duration) (ctx context.Context, done func()) {
	ctx, claimed := s.beginClaim()
	if wait <= 0 {
		return ctx, claimed
	}
	ctx, cancel := context.WithCancelCause(ctx)
	s.mu.Lock()
	s.waiting = cancel
	if s.draining {
		cancel(errWaiterDrained)
	}
	s.mu.Unlock()
	var watches sync.WaitGroup
	watches.Go(func() {
		if err := s.fromClient.Fill(); err != nil && (!timedOut(err) || s.cutFor() != nil) {
			cancel(errWaiterLeft)
		}
	})
	watches.Go(func() {
		select {
		case <-s.replied:
			cancel(errWaiterEnded)
		case <-ctx.Done():
		}
	})
	return ctx, func() {
		s.client.SetReadDeadline(longAgo)
		s.mu.Lock()
		s.waiting = nil
		s.mu.Unlock()
		ended := context.Cause(ctx) // before the cancel that follows
		if ended == nil {
			cancel(nil)
		}
		watches.Wait()
		s.waited(false)
		claimed()
	}
}
