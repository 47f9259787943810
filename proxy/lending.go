package proxy

import (
	"context"
	"time"

	"github.com/fenceproxy/fenceproxy/fencing"
)

// A session can ask for a lock in SQL, by a statement that is one call of
// fence.acquire, fence.renew or fence.release. The functions are PostgreSQL's, so
// what a driver sees of them is; the proxy does the work before the statement goes
// there, and tells the function by a hidden statement in front of it, the grant.
// Without one the function raises an error, so that nothing is ever held that
// no proxy knows of.
//
// A session holds a lock as long as it is in its tag: whatever takes the pair out
// of fence.tokens for good (fence.release, an error of PostgreSQL's behind the
// taking, RESET, DISCARD ALL) gives the lock back, when the transaction has ended
// and before the client hears so. So does the session's end.

// A Lender takes locks for sessions. *leases.Lender is one. Its errors are
// *fencing.Error, or the cause of ctx.
type Lender interface {
	// Acquire takes the lock of key for ttl, and waits up to wait for it.
	Acquire(ctx context.Context, key string, ttl, wait time.Duration) (fencing.Loan, error)
	// Renew moves the loan's end; CodeStale says that the lock is lost.
	Renew(ctx context.Context, loan fencing.Loan) (fencing.Loan, error)
	// Release gives the lock back, and says whether it was still held.
	Release(ctx context.Context, loan fencing.Loan) (held bool, err error)
}

// Lending says which locks sessions may take.
type Lending struct {
	Allow bool
	// MaxTTL is the longest that a lock may outlive its last renewal, and MaxWait
	// the longest that a session may wait for one.
	MaxTTL, MaxWait time.Duration
	// MaxLocks is how many a session may hold at a time.
	MaxLocks int
}

// Defaults of Lending.
const (
	DefaultLockMaxTTL  = 10 * time.Minute
	DefaultLockMaxWait = time.Minute
	DefaultMaxLocks    = 16
)

// DefaultLending allows none: what may be locked is every name below the prefix in
// etcd, whichever database it stands for.
func DefaultLending() Lending {
	return Lending{MaxTTL: DefaultLockMaxTTL, MaxWait: DefaultLockMaxWait, MaxLocks: DefaultMaxLocks}
}

// What fence.acquire takes where an argument is left out or null. The functions'
// own defaults say the same to those who look at them.
const (
	defaultTTL  = 30 * time.Second
	defaultWait = 0
)

// giveBackWithin bounds how long a client waits for a lock to be given back.
const giveBackWithin = 3 * time.Second

// The lines of the log.
const (
	LogLockAcquired = "lock acquired"
	LogLockReleased = "lock released"
	LogLockLost     = "lock lost"
	LogLockLeft     = "lock left to its lease"
)
