package fencepgx

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/fenceproxy/fenceproxy/leases"
)

// ErrNoLock says that the context is not that of work under a lock, so that there is
// nothing to present.
var ErrNoLock = errors.New("the context has no lock")

// heldKey is the context key of a held.
type heldKey struct{}

// held are the locks that work runs under, one for each key; it is never changed
// once a context has it.
type held []*leases.Lease

func heldUnder(ctx context.Context) held {
	h, _ := ctx.Value(heldKey{}).(held)
	return h
}

// and is h and one more lock, which takes the place of one of the same key.
func (h held) and(lease *leases.Lease) held {
	both := held{lease}
	for _, other := range h {
		if other.Key() != lease.Key() {
			both = append(both, other)
		}
	}
	return both
}

// err says why one of the locks isn't held any more, or nil.
func (h held) err() error {
	for _, lease := range h {
		if err := lease.Err(); err != nil {
			return err
		}
	}
	return nil
}

// tokens is the value of fence.tokens: an object of keys and tokens.
func (h held) tokens() (string, error) {
	if len(h) == 0 {
		return "", ErrNoLock
	}
	tokens := map[string]int64{}
	for _, lease := range h {
		tokens[lease.Key()] = int64(lease.Token())
	}
	text, err := json.Marshal(tokens)
	if err != nil {
		return "", fmt.Errorf("encode tag: %w", err)
	}
	return string(text), nil
}

// With returns the context for work under lease: it has the lock for Tag, TagTx and
// pools, and ends when the lock is lost or released; context.Cause then wraps
// leases.ErrLost or leases.ErrReleased. It has the locks of ctx as well, so work
// under several locks presents all of them.
//
// The caller calls the CancelFunc when the work is done, and releases lease. Under
// does both.
func With(ctx context.Context, lease *leases.Lease) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(context.WithValue(ctx, heldKey{}, heldUnder(ctx).and(lease)))
	over := lease.Context()
	stop := context.AfterFunc(over, func() { cancel(context.Cause(over)) })
	return ctx, func() {
		stop()
		cancel(context.Canceled)
	}
}
