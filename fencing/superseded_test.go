package fencing_test

import (
	"context"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/fencing"
)

// A session whose backend was ended learns whether a claim did it: at once
// where none is under way, and else when that one has its mark.
func TestClaimer_Superseded(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	s.claim("a", 41)
	c := s.claimer(holder("a", 42), evictAfter(time.Hour))
	superseded := func(ctx context.Context, token fencing.Token) error {
		return c.Superseded(ctx, database, fencing.Tag{{Key: "a", Token: token}})
	}
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	if err := superseded(ctx, 41); err != nil || ctx.Err() != nil {
		t.Errorf("no claim: got %v, %v, want nothing, and no wait", err, ctx.Err())
	}
	refusal(t, superseded(ctx, 40), fencing.CodeStale)

	stale := s.begun("a", 41, 1)
	claim := start(t, c, "a", 42)
	s.waiting(1)
	told := make(chan error, 1)
	go func() { told <- superseded(ctx, 41) }()
	s.unanswered(told)
	s.exec(stale, "ROLLBACK")
	if err := s.answered(claim); err != nil {
		t.Fatal(err)
	}
	refusal(t, s.answered(told), fencing.CodeStale)

	holding := s.begun("a", 42, 1)
	c = s.claimer(holder("a", 43), evictAfter(time.Hour))
	claim = start(t, c, "a", 43)
	s.waiting(1)
	short, stop := context.WithCancel(t.Context())
	stop()
	if err := superseded(short, 42); err == nil {
		t.Error("a look without time: got nothing, want an error")
	}
	s.exec(holding, "ROLLBACK")
	if err := s.answered(claim); err != nil {
		t.Fatal(err)
	}
}
