package leases

import (
	"context"
	"errors"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fenceproxy/fenceproxy/fencing"
)

// A Lender takes locks for the sessions of a proxy, which can't speak to etcd
// themselves. A lock that it has lent is renewed when its session asks for it
// and not otherwise, so that one that has stopped loses it; a loan costs no
// goroutine and no connection. Its errors are *fencing.Error, fit for a client,
// but for the cause of a context that has ended.
type Lender struct {
	// Prefix is where locks live, DefaultPrefix.
	Prefix string
	// RequestTimeout bounds each single question to etcd.
	RequestTimeout time.Duration
	// Metrics counts what becomes of the locks, nil for nobody.
	Metrics *Metrics

	client *clientv3.Client
}

// NewLender returns a Lender over client, which stays the caller's to close.
func NewLender(client *clientv3.Client) *Lender {
	return &Lender{Prefix: DefaultPrefix, RequestTimeout: DefaultRequestTimeout, client: client}
}

// Acquire takes the lock of a key for a time to live, and waits in line for it
// no longer than wait; 0 tries once. Up to its turn the place in line is kept.
//
// Errors: CodeLockTaken, with who holds the lock; CodeUnverified if etcd can't be
// asked; CodeBadArgument; the cause of ctx.
func (l *Lender) Acquire(ctx context.Context, key string, ttl, wait time.Duration) (fencing.Loan, error) {
	locker := NewLocker(l.client)
	locker.Prefix, locker.TTL, locker.RequestTimeout, locker.Metrics = l.Prefix, ttl, l.RequestTimeout, l.Metrics
	lease, err := l.take(ctx, locker, key, wait)
	if err != nil {
		return fencing.Loan{}, l.explain(ctx, key, wait, err)
	}
	loan, err := lease.handOver(ctx, wait > 0)
	if err != nil {
		_ = lease.Release(context.WithoutCancel(ctx))
		return fencing.Loan{}, l.explain(ctx, key, wait, err)
	}
	return loan, nil
}

func (l *Lender) take(ctx context.Context, locker *Locker, key string, wait time.Duration) (*Lease, error) {
	if wait <= 0 {
		return locker.TryAcquire(ctx, key)
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	for {
		lease, err := locker.Acquire(ctx, key)
		// A lease that died while waiting has cost the place in line only.
		if errors.Is(err, ErrLost) && ctx.Err() == nil {
			continue
		}
		return lease, err
	}
}

// explain words what kept a session from its lock.
func (l *Lender) explain(ctx context.Context, key string, wait time.Duration, err error) error {
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, ErrInvalid):
		return fencing.Refuse(fencing.CodeBadArgument, "%v", err)
	case errors.Is(err, ErrTaken), wait > 0 && errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, ErrUnavailable):
		return l.taken(ctx, key, wait, err)
	}
	return fencing.Refuse(fencing.CodeUnverified, "the lock %s could not be taken in etcd", show(key)).With(err.Error()+".", "Retry.").Because(err)
}

// taken tells who holds a lock, as far as etcd does.
func (l *Lender) taken(ctx context.Context, key string, wait time.Duration, err error) error {
	ctx, cancel := context.WithTimeout(ctx, l.RequestTimeout)
	defer cancel()
	detail := err.Error() + "."
	q, readErr := readQueue(ctx, l.client, LockPrefix(l.Prefix, key))
	if readErr == nil && q.holder() != nil {
		detail = fmt.Sprintf("Key %s, held with token %d by lock key %s, waiters %d.", show(key), q.holder().token, q.holder().key, len(q.places)-1)
	}
	how := "Retry later, or let fence.acquire wait for it with its third argument."
	if wait > 0 {
		how = "Retry later."
	}
	return fencing.Refuse(fencing.CodeLockTaken, "the lock %s is held by somebody else", show(key)).With(detail, how).Because(err)
}

// Renew moves the end of a loan to its time to live from now, and returns the
// loan as it is then.
//
// Errors: CodeStale if the lock is lost: its lease ran out or was revoked, or its
// key is gone; CodeUnverified if etcd can't be asked, and the loan is as it was.
func (l *Lender) Renew(ctx context.Context, loan fencing.Loan) (fencing.Loan, error) {
	ctx, cancel := context.WithTimeout(ctx, l.RequestTimeout)
	defer cancel()
	sent := time.Now()
	ttl, err := keepAlive(ctx, l.client, clientv3.LeaseID(loan.Lease))
	held := false
	if err == nil && ttl > 0 {
		held, err = isOwn(ctx, l.client, loan)
	}
	l.Metrics.renewed(err == nil && held)
	switch {
	case err != nil:
		return loan, fencing.Refuse(fencing.CodeUnverified, "the lock %s could not be renewed in etcd", show(loan.Key)).
			With(outage(l.client, err).Error()+".", "Retry before the lease runs out.").Because(err)
	case !held:
		l.Metrics.ended(ErrLost)
		return loan, fencing.Refuse(fencing.CodeStale, "%s token %d: the lock is lost", show(loan.Key), loan.Token).With(
			fmt.Sprintf("Key %s, presented token %d: its lease of %v was not renewed in time or was revoked, or lock key %s was deleted.", show(loan.Key), loan.Token, loan.TTL, loan.LockKey),
			"Stop: another holder may have this lock. Acquire it again and use the new token.")
	}
	loan.TTL, loan.Until = ttl, sent.Add(ttl)
	return loan, nil
}

// Release gives a lock back, and touches nothing of anybody else's. held tells
// that it was this holder's up to now. The error is CodeUnverified: etcd could
// not be told, and the lock frees itself at the loan's end.
func (l *Lender) Release(ctx context.Context, loan fencing.Loan) (held bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, l.RequestTimeout)
	defer cancel()
	held, err = giveBack(ctx, l.client, loan.LockKey, loan.Token, clientv3.LeaseID(loan.Lease))
	if err != nil {
		return false, fencing.Refuse(fencing.CodeUnverified, "the lock %s could not be given back in etcd", show(loan.Key)).
			With(outage(l.client, err).Error()+".", "It frees itself when its lease runs out.").Because(err)
	}
	if !held {
		l.Metrics.ended(ErrLost)
	}
	return held, nil
}

// isOwn asks whether a lock's key is the one that the loan was made with.
func isOwn(ctx context.Context, client *clientv3.Client, loan fencing.Loan) (bool, error) {
	resp, err := client.Get(ctx, loan.LockKey, clientv3.WithKeysOnly())
	if err != nil {
		return false, err
	}
	return len(resp.Kvs) == 1 && resp.Kvs[0].CreateRevision == int64(loan.Token), nil
}

// errLent ends a Lease whose lock goes on as a loan.
var errLent = errors.New("lock was lent")

// handOver makes a loan of a held lock: nothing renews it from here on. With
// anew it is renewed once more, for it may have been a while in line.
func (s *Lease) handOver(ctx context.Context, anew bool) (fencing.Loan, error) {
	if anew {
		ctx, cancel := context.WithTimeout(ctx, s.requestTimeout)
		defer cancel()
		sent := s.now()
		// What goes wrong here is told by the deadline that there is.
		if ttl, err := keepAlive(ctx, s.client, s.id); err == nil && ttl > 0 {
			s.extend(sent, ttl)
		}
	}
	err := s.Err()
	s.end(errLent)
	s.settle()
	if err != nil {
		return fencing.Loan{}, err
	}
	return fencing.Loan{
		Key: s.key, Token: s.token, LockKey: s.lockKey, Lease: int64(s.id), TTL: s.ttl, Until: s.deadline,
	}, nil
}
