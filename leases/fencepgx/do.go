package fencepgx

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fenceproxy/fenceproxy/fencing"
	"github.com/fenceproxy/fenceproxy/leases"
)

// Do takes the lock of key, waiting in line for it until ctx ends, runs work under
// it, and gives it back. The context that work gets is that of With.
//
// Errors: those of leases.Locker.Acquire, and then work has not begun; and those of
// Under.
func Do(ctx context.Context, locker *leases.Locker, key string, work func(context.Context) error) error {
	lease, err := locker.Acquire(ctx, key)
	if err != nil {
		return err
	}
	return Under(ctx, lease, work)
}

// Under is Do with a lock that the caller has taken, by TryAcquire for example. It
// releases the lease, also when work panics.
//
// The error is work's own. It also wraps leases.ErrLost if the lock was lost before
// work had ended, and if the database refused work because another holder has claimed
// the lock (LF001, LF005). So leases.ErrLost without another cause says that work
// ended well and that all it wrote through the proxy counts, though the lock was gone
// by then. That etcd could not be told of the end is no error: the lock frees itself.
func Under(ctx context.Context, lease *leases.Lease, work func(context.Context) error) (err error) {
	working, cancel := With(ctx, lease)
	defer func() {
		cancel()
		// Release bounds itself, and is due after ctx has ended too.
		if lost := lease.Release(context.WithoutCancel(ctx)); errors.Is(lost, leases.ErrLost) {
			err = because(lost, err)
		}
	}()
	err = work(working)
	if superseded(err) && !errors.Is(err, leases.ErrLost) {
		err = because(fmt.Errorf("%w: the database knows of another holder", leases.ErrLost), err)
	}
	return err
}

// because is err, if there is one, with what it came of.
func because(cause, err error) error {
	switch {
	case err == nil:
		return cause
	case errors.Is(err, leases.ErrLost):
		return err
	default:
		return fmt.Errorf("%w: %w", cause, err)
	}
}

// superseded says whether the database refused something because a higher token was
// accepted.
func superseded(err error) bool {
	var refusal *pgconn.PgError
	return errors.As(err, &refusal) && (refusal.Code == string(fencing.CodeStale) || refusal.Code == string(fencing.CodeEvicted))
}
