package leases

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/fenceproxy/fenceproxy/fencing"
)

const (
	// DefaultTTL is how long a lock outlives a holder that stopped renewing.
	DefaultTTL = 30 * time.Second
	// DefaultRequestTimeout bounds each single question to etcd.
	DefaultRequestTimeout = 5 * time.Second
)

// A Locker takes locks for the client it was made with. Its fields may be set
// before the first lock; after that any number of locks may be taken at once.
type Locker struct {
	// Prefix is where locks live, DefaultPrefix.
	Prefix string
	// TTL of the lease, DefaultTTL; rounded up to whole seconds. etcd grants
	// no less than one and a half election timeouts, which is 2 s as etcd
	// comes.
	TTL time.Duration
	// RequestTimeout bounds each single question to etcd, and how long the
	// giving up of a lock may take after the context has ended.
	RequestTimeout time.Duration
	// Now is the clock, time.Now.
	Now func() time.Time
	// Metrics counts what becomes of the locks, nil for nobody.
	Metrics *Metrics

	client *clientv3.Client
}

// NewLocker returns a Locker over client, which stays the caller's to close,
// after the last Lease was released.
func NewLocker(client *clientv3.Client) *Locker {
	return &Locker{
		Prefix:         DefaultPrefix,
		TTL:            DefaultTTL,
		RequestTimeout: DefaultRequestTimeout,
		Now:            time.Now,
		client:         client,
	}
}

// Acquire takes the lock of key, waiting in line for it until ctx ends. The
// caller must Release the Lease.
//
// Errors: ctx's own when it ended, together with ErrTaken if somebody held the
// lock at that time, or ErrUnavailable if etcd couldn't be reached until then;
// ErrLost when the lease died while waiting (the place in line is lost: acquire
// again); ErrUnavailable; ErrInvalid.
func (l *Locker) Acquire(ctx context.Context, key string) (*Lease, error) {
	return l.take(ctx, key, func(ctx context.Context, m *concurrency.Mutex) error { return m.Lock(ctx) })
}

// TryAcquire takes the lock of key if it is free. The caller must Release the
// Lease.
//
// Errors: ErrTaken, with who holds the lock; ErrLost when the lease died on
// the way; ErrUnavailable; ErrInvalid; ctx's own.
func (l *Locker) TryAcquire(ctx context.Context, key string) (*Lease, error) {
	return l.take(ctx, key, func(ctx context.Context, m *concurrency.Mutex) error {
		ctx, cancel := context.WithTimeout(ctx, l.RequestTimeout)
		defer cancel()
		return m.TryLock(ctx)
	})
}

// take gets a lease, gets in line with it by lock, and believes only what it
// then reads back.
func (l *Locker) take(ctx context.Context, key string, lock func(context.Context, *concurrency.Mutex) error) (*Lease, error) {
	began := time.Now()
	lease, waited, err := l.try(ctx, key, lock)
	l.Metrics.tried(time.Since(began), waited, err)
	return lease, err
}

// try is take, and says whether the lock was another's first.
func (l *Locker) try(ctx context.Context, key string, lock func(context.Context, *concurrency.Mutex) error) (_ *Lease, waited bool, _ error) {
	if err := l.check(key); err != nil {
		return nil, false, err
	}
	lease, err := l.grant(ctx, key)
	if err != nil {
		return nil, false, err
	}
	lined, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(lease.ctx, cancel)()
	outlived, cancelOutlived := outlive(lined, l.RequestTimeout)
	defer cancelOutlived()

	if waited, err = l.line(lined, outlived, lease, lock); err == nil {
		return lease, waited, nil
	}
	err = l.explain(ctx, outlived, lease, err)
	lease.abandon(outlived)
	return nil, false, err
}

func (l *Locker) check(key string) error {
	if err := checkKey(key); err != nil {
		return err
	}
	if l.TTL < time.Second {
		return fmt.Errorf("%w: a time to live of %v is below one second", ErrInvalid, l.TTL)
	}
	return nil
}

// grant gets a lease from etcd and starts to renew it. The clock is read
// before the request leaves: etcd can't have begun to count any earlier.
func (l *Locker) grant(ctx context.Context, key string) (*Lease, error) {
	asked, cancel := context.WithTimeout(ctx, l.RequestTimeout)
	defer cancel()
	asked, seen := noting(asked)
	sent := l.Now()
	resp, err := l.client.Grant(asked, int64((l.TTL+time.Second-1)/time.Second))
	switch {
	case err == nil:
		return startLease(ctx, l, key, resp.ID, sent, seconds(resp.TTL)), nil
	case ctx.Err() != nil && refused(seen.err) == "":
		return nil, fmt.Errorf("acquire lock %s: %w", show(key), context.Cause(ctx))
	case ctx.Err() != nil:
		return nil, fmt.Errorf("acquire lock %s: %w: %w", show(key), context.Cause(ctx), outage(l.client, seen.err))
	default:
		return nil, fmt.Errorf("acquire lock %s: %w", show(key), outage(l.client, seen.explain(asked, err)))
	}
}

// line gets in line with lease's own key, waits as lock does, and then proves
// that the lock is held: lock can return although the lease has died. ctx
// ends with the lease; a place in line is given up under outlived. It says whether it
// had to wait: then what Mutex knows is of a later read than its own key.
func (l *Locker) line(ctx, outlived context.Context, lease *Lease, lock func(context.Context, *concurrency.Mutex) error) (waited bool, err error) {
	session, err := l.session(ctx, outlived, lease.id)
	if err != nil {
		return false, err
	}
	mutex := concurrency.NewMutex(session, LockPrefix(l.Prefix, lease.key))
	if err := lock(ctx, mutex); err != nil {
		return false, err
	}
	asked, cancel := context.WithTimeout(ctx, l.RequestTimeout)
	defer cancel()
	q, err := readQueue(asked, l.client, LockPrefix(l.Prefix, lease.key))
	if err != nil {
		return false, fmt.Errorf("read the lock back: %w", err)
	}
	holder := q.holder()
	if holder == nil || holder.key != mutex.Key() || holder.lease != lease.id {
		return false, fmt.Errorf("%w: its key %s was gone when it was read back", ErrLost, mutex.Key())
	}
	return mutex.Header().Revision != int64(holder.token), lease.hold(holder, q.revision)
}

// session makes the session that etcd's Mutex wants, without the renewals
// that come with one: those don't tell when they were sent, so a Lease makes
// its own. Its client is ours but for the context, in which Mutex gives up
// its place in line and which otherwise would never end.
func (l *Locker) session(ctx, outlived context.Context, id clientv3.LeaseID) (*concurrency.Session, error) {
	client := clientv3.NewCtxClient(outlived)
	client.KV, client.Watcher, client.Lease = l.client.KV, l.client.Watcher, l.client.Lease
	session, err := concurrency.NewSession(client, concurrency.WithLease(id), concurrency.WithContext(ctx))
	if err != nil {
		return nil, fmt.Errorf("open a session: %w", err)
	}
	session.Orphan()
	return session, nil
}

// explain turns what went wrong in line into an error of this package, with
// who holds the lock where that is the point.
func (l *Locker) explain(ctx, outlived context.Context, lease *Lease, err error) error {
	key := show(lease.key)
	switch {
	case ctx.Err() != nil:
		if who := l.otherHolder(outlived, lease); who != "" {
			return fmt.Errorf("acquire lock %s: %w: %s: %w", key, ErrTaken, who, context.Cause(ctx))
		}
		return fmt.Errorf("acquire lock %s: %w", key, context.Cause(ctx))
	case lease.ctx.Err() != nil:
		return fmt.Errorf("acquire lock %s: %w", key, context.Cause(lease.ctx))
	case errors.Is(err, concurrency.ErrLocked):
		if who := l.otherHolder(outlived, lease); who != "" {
			return fmt.Errorf("acquire lock %s: %w: %s", key, ErrTaken, who)
		}
		return fmt.Errorf("acquire lock %s: %w", key, ErrTaken)
	case errors.Is(err, concurrency.ErrSessionExpired), errors.Is(err, rpctypes.ErrLeaseNotFound):
		return fmt.Errorf("acquire lock %s: %w: the lease ended while in line", key, ErrLost)
	case errors.Is(err, ErrLost):
		return fmt.Errorf("acquire lock %s: %w", key, err)
	default:
		return fmt.Errorf("acquire lock %s: %w", key, outage(l.client, err))
	}
}

// otherHolder describes who holds the lock, or returns "" if nobody else does
// or etcd doesn't tell.
func (l *Locker) otherHolder(ctx context.Context, lease *Lease) string {
	ctx, cancel := context.WithTimeout(ctx, l.RequestTimeout)
	defer cancel()
	q, err := readQueue(ctx, l.client, LockPrefix(l.Prefix, lease.key))
	if err != nil {
		return ""
	}
	switch holder := q.holder(); {
	case holder != nil && holder.lease != lease.id:
		return fmt.Sprintf("held by %s, token %d", holder.key, holder.token)
	case q.nested > 0:
		// Mutex counts these in, though they are other locks.
		return fmt.Sprintf("keys further down below %s are in the way; their locks must be named with the slash escaped", q.dir)
	default:
		return ""
	}
}

// outlive returns a context that ends by itself only grace after ctx has, so
// that what ctx's end leaves behind can be cleared away in bounded time.
func outlive(ctx context.Context, grace time.Duration) (context.Context, context.CancelFunc) {
	longer, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		// The timer holds nothing but cancel, and ends by itself.
		time.AfterFunc(grace, cancel)
	})
	return longer, func() {
		stop()
		cancel()
	}
}

func seconds(n int64) time.Duration { return time.Duration(n) * time.Second }

var _ fencing.Authority = (*Authority)(nil)
