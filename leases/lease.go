package leases

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fenceproxy/fenceproxy/fencing"
)

// A Lease is one held lock. It renews itself until it is released or lost,
// and a lost one never comes back. Its methods may be called from any
// goroutine.
type Lease struct {
	key     string
	lockKey string        // etcd key; set once held
	token   fencing.Token // set once held
	id      clientv3.LeaseID

	client         *clientv3.Client
	now            func() time.Time
	requestTimeout time.Duration
	metrics        *Metrics

	ctx     context.Context
	end     context.CancelCauseFunc // the first cause counts
	running sync.WaitGroup          // renew and watch, which return once ctx has ended
	expiry  *time.Timer             // calls expire

	mu       sync.Mutex
	ttl      time.Duration // as etcd granted it last
	deadline time.Time     // ttl after the last successful renewal was sent
	tried    bool          // a Release has begun, and may have reached etcd
	released bool          // a Release has succeeded
}

// startLease begins to renew the lease that etcd granted in answer to a
// request sent at sent. Values of ctx are the Lease's too, its end is not.
func startLease(ctx context.Context, l *Locker, key string, id clientv3.LeaseID, sent time.Time, ttl time.Duration) *Lease {
	s := &Lease{
		key:            key,
		id:             id,
		client:         l.client,
		now:            l.Now,
		requestTimeout: l.RequestTimeout,
		metrics:        l.Metrics,
		ttl:            ttl,
		deadline:       sent.Add(ttl),
	}
	s.ctx, s.end = context.WithCancelCause(context.WithoutCancel(ctx))
	s.mu.Lock()
	s.expiry = time.AfterFunc(s.deadline.Sub(s.now()), s.expire)
	s.mu.Unlock()
	s.running.Add(1)
	go s.renew()
	return s
}

// hold marks the lock as held through the key that was read at revision.
func (s *Lease) hold(holder *place, revision int64) error {
	s.lockKey, s.token = holder.key, holder.token
	if err := s.Err(); err != nil {
		return err
	}
	s.running.Add(1)
	go s.watch(revision + 1)
	context.AfterFunc(s.ctx, func() { s.metrics.ended(context.Cause(s.ctx)) })
	return nil
}

// Key returns the resource key.
func (s *Lease) Key() string { return s.key }

// Token returns the create revision of the holder's key, which is what a
// session presents as fence.token. It never changes.
func (s *Lease) Token() fencing.Token { return s.token }

// LockKey returns the holder's own key in etcd.
func (s *Lease) LockKey() string { return s.lockKey }

// ID returns the lease ID. It is no token.
func (s *Lease) ID() clientv3.LeaseID { return s.id }

// Context ends when the lock is lost or released; context.Cause then wraps
// ErrLost or ErrReleased. Work that needs the lock runs under it. It ends at
// Deadline at the latest, even if etcd can't be reached.
func (s *Lease) Context() context.Context { return s.ctx }

// Deadline returns the time up to which the lock is known to be held: the
// lease's time to live after the last successful renewal was sent.
func (s *Lease) Deadline() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.deadline
}

// Err returns nil while the lock is held, else why not, wrapping ErrLost or
// ErrReleased. Unlike Context it looks at the clock, so that a process that
// was stopped for longer than the time to live hears it at once.
func (s *Lease) Err() error {
	if left := s.Deadline().Sub(s.now()); left <= 0 {
		s.end(s.overdue())
	}
	return context.Cause(s.ctx)
}

// Release gives the lock back: it ends the Context, deletes the lock's key if
// it is still this holder's own, and revokes the lease. It touches nothing of
// anybody else's. A second call does nothing, unless the first one failed.
//
// It returns ErrLost if the lock had been lost before, so that work done
// under it may have been somebody else's to do, and ErrUnavailable if etcd
// could not be told: the lock then frees itself when its lease runs out.
func (s *Lease) Release(ctx context.Context) error {
	s.end(fmt.Errorf("lock %s: %w", show(s.key), ErrReleased))
	s.settle()
	s.mu.Lock()
	again, done := s.tried, s.released
	s.tried = true
	s.mu.Unlock()
	if done {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, s.requestTimeout)
	defer cancel()

	held, err := giveBack(ctx, s.client, s.lockKey, s.token, s.id)
	if err != nil {
		return fmt.Errorf("release lock %s, which frees itself at %s: %w", show(s.key),
			s.Deadline().Format(time.RFC3339), outage(s.client, err))
	}
	s.mu.Lock()
	s.released = true
	s.mu.Unlock()
	if cause := context.Cause(s.ctx); errors.Is(cause, ErrLost) {
		return fmt.Errorf("release: %w", cause)
	}
	if !held && !again {
		return fmt.Errorf("release lock %s: %w: its key was gone", show(s.key), ErrLost)
	}
	return nil
}

// abandon gives up a lease that never came to hold the lock.
func (s *Lease) abandon(ctx context.Context) {
	s.end(fmt.Errorf("lock %s: %w", show(s.key), ErrReleased))
	s.settle()
	ctx, cancel := context.WithTimeout(ctx, s.requestTimeout)
	defer cancel()
	// If etcd can't be told, the lease runs out by itself.
	_ = revoke(ctx, s.client, s.id)
}

// giveBack deletes the key of a lock if it is still the one that was created with
// the token, which held tells, and revokes its lease.
func giveBack(ctx context.Context, client *clientv3.Client, lockKey string, token fencing.Token, id clientv3.LeaseID) (held bool, err error) {
	own := clientv3.Compare(clientv3.CreateRevision(lockKey), "=", int64(token))
	resp, err := client.Txn(ctx).If(own).Then(clientv3.OpDelete(lockKey)).Commit()
	if err != nil {
		return false, err
	}
	// With the key gone the lock is free; a lease that can't be revoked holds
	// nothing and runs out.
	_ = revoke(ctx, client, id)
	return resp.Succeeded, nil
}

// revoke ends a lease in etcd, and with it whatever key is left under it.
func revoke(ctx context.Context, client *clientv3.Client, id clientv3.LeaseID) error {
	_, err := client.Revoke(ctx, id)
	if errors.Is(err, rpctypes.ErrLeaseNotFound) {
		return nil
	}
	return err
}

// settle waits for the goroutines of a Lease that has ended.
func (s *Lease) settle() {
	s.expiry.Stop()
	s.running.Wait()
}
