package chaos

import (
	"context"
	"fmt"
	"slices"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/fenceproxy/fenceproxy/fencing"
	"github.com/fenceproxy/fenceproxy/leases"
	"github.com/fenceproxy/fenceproxy/testharness/history"
)

const (
	// lineTimeout bounds how long a worker stands in line.
	lineTimeout = 6 * time.Second
	// etcdTimeout bounds anything else that it asks of etcd.
	etcdTimeout = 3 * time.Second
)

// A lock is one that a worker holds, or believes to hold.
type lock struct {
	pair fencing.Pair
	// held says whether the worker would still write if it looked.
	held func() bool
	// release gives it back.
	release func(context.Context) error
	// starved says that nobody renews its lease.
	starved bool
}

// acquire stands in line for a lock. It is nil if that came to nothing.
func (w *worker) acquire(ctx context.Context, key string) *lock {
	op := &history.Op{Kind: history.KindAcquire, Form: draw(w, "renewed", "renewed", "starved"), Tag: []fencing.Pair{{Key: key}}}
	ttl := w.between(w.LeastTTL, w.MostTTL).Round(time.Second) // etcd counts in seconds
	ctx, cancel := context.WithTimeout(ctx, lineTimeout)
	defer cancel()
	w.record.Begin(op)
	var l *lock
	var err error
	if op.Form == "starved" {
		l, err = w.acquireStarved(ctx, key, ttl)
	} else {
		l, err = w.acquireRenewed(ctx, key, ttl)
	}
	if err == nil {
		op.Outcome, op.Tag[0] = history.OutcomeOK, l.pair
	} else {
		op.Text = err.Error()
	}
	w.end(op)
	return l
}

func (w *worker) acquireRenewed(ctx context.Context, key string, ttl time.Duration) (*lock, error) {
	w.locker.TTL = ttl
	lease, err := w.locker.Acquire(ctx, key)
	if err != nil {
		return nil, err
	}
	return &lock{
		pair: fencing.Pair{Key: key, Token: lease.Token()}, release: lease.Release,
		held: func() bool { return lease.Err() == nil },
	}, nil
}

// acquireStarved takes a lock whose lease nobody renews, as happens to a process
// that doesn't get to run, and doesn't notice.
func (w *worker) acquireStarved(ctx context.Context, key string, ttl time.Duration) (*lock, error) {
	granted, err := w.etcd.Grant(ctx, int64((ttl+time.Second-1)/time.Second))
	if err != nil {
		return nil, fmt.Errorf("get a lease: %w", err)
	}
	release := func(ctx context.Context) error {
		_, err := w.etcd.Revoke(ctx, granted.ID)
		return err
	}
	l, err := w.lineUp(ctx, key, granted.ID)
	if err != nil {
		_ = release(ctx) // it runs out by itself
		return nil, err
	}
	l.starved, l.release, l.held = true, release, func() bool { return true }
	return l, nil
}

func (w *worker) lineUp(ctx context.Context, key string, lease clientv3.LeaseID) (*lock, error) {
	session, err := concurrency.NewSession(w.etcd, concurrency.WithLease(lease), concurrency.WithContext(ctx))
	if err != nil {
		return nil, fmt.Errorf("open a session: %w", err)
	}
	session.Orphan() // which ends its renewals
	mutex := concurrency.NewMutex(session, leases.LockPrefix(w.Prefix, key))
	if err := mutex.Lock(ctx); err != nil {
		return nil, fmt.Errorf("stand in line: %w", err)
	}
	resp, err := w.etcd.Get(ctx, mutex.Key())
	if err != nil {
		return nil, fmt.Errorf("read the lock back: %w", err)
	}
	if len(resp.Kvs) == 0 {
		return nil, fmt.Errorf("the lock %s is gone", mutex.Key())
	}
	return &lock{pair: fencing.Pair{Key: key, Token: fencing.Token(resp.Kvs[0].CreateRevision)}}, nil
}

// giveBack ends a hold.
func (w *worker) giveBack(ctx context.Context, l *lock) {
	ctx, cancel := finishing(ctx, etcdTimeout)
	defer cancel()
	op := &history.Op{Kind: history.KindRelease, Tag: []fencing.Pair{l.pair}}
	w.record.Begin(op)
	settle(op, l.release(ctx))
	w.end(op)
}

// lieOnce presents a number that is no token, and tries to write under it.
func (w *worker) lieOnce(ctx context.Context, s *session) *session {
	key := draw(w, w.Keys...)
	asked, cancel := context.WithTimeout(ctx, etcdTimeout)
	defer cancel()
	granted, err := w.etcd.Grant(asked, int64(w.MostTTL/time.Second))
	if err != nil {
		return s
	}
	defer func() {
		revoked, cancel := finishing(ctx, etcdTimeout)
		defer cancel()
		_, _ = w.etcd.Revoke(revoked, granted.ID) // it runs out by itself
	}()
	// A place in line, as etcd's own Mutex has it: a waiter's, mostly.
	place := fmt.Sprintf("%s/%x", leases.LockPrefix(w.Prefix, key), granted.ID)
	put, err := w.etcd.Put(asked, place, "", clientv3.WithLease(granted.ID))
	if err != nil {
		return s
	}
	lies := []fencing.Token{
		fencing.Token(put.Header.Revision),         // the waiter's own
		fencing.Token(put.Header.Revision + 1),     // some later answer's header
		fencing.Token(put.Header.Revision + 10000), // a number that is to come
		fencing.Token(granted.ID),                  // a lease ID
		1,
	}
	tag := []fencing.Pair{{Key: key, Token: draw(w, lies...)}}
	s, claim := w.claim(ctx, s, tag, true)
	if s != nil && claim.Outcome != history.OutcomeUnknown {
		s, _ = w.write(ctx, s)
	}
	return s
}

// twoKeys draws two keys, in the order in which everybody locks them.
func (w *worker) twoKeys() []string {
	a := w.random.IntN(len(w.Keys))
	b := (a + 1 + w.random.IntN(len(w.Keys)-1)) % len(w.Keys)
	two := []string{w.Keys[a], w.Keys[b]}
	slices.Sort(two)
	return two
}
