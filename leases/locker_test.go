package leases_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"google.golang.org/grpc"

	"github.com/fenceproxy/fenceproxy/fencing"
	"github.com/fenceproxy/fenceproxy/leases"
)

func TestLocker_TryAcquire(t *testing.T) {
	client := newClient(t, startEtcd(t).Endpoint())
	locker := leases.NewLocker(client)

	a := acquire(t, locker, "order:8472")
	if got, want := a.LockKey(), fmt.Sprintf("/fenceproxy/locks/order:8472/%x", int64(a.ID())); got != want {
		t.Errorf("lock key: got %s, want %s", got, want)
	}
	if got, want := a.Token(), createRevision(t, client, a.LockKey()); got != want || got == 0 {
		t.Errorf("token: got %d, want create revision %d", got, want)
	}
	if got, want := a.Key(), "order:8472"; got != want {
		t.Errorf("key: got %s, want %s", got, want)
	}

	_, err := locker.TryAcquire(testContext(t), "order:8472")
	if !errors.Is(err, leases.ErrTaken) {
		t.Fatalf("second TryAcquire: got %v, want ErrTaken", err)
	}
	for _, want := range []string{"order:8472", a.LockKey(), "token " + a.Token().String()} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error %q does not name %s", err, want)
		}
	}
	if got, want := keysUnder(t, client, leases.DefaultPrefix), 1; got != want {
		t.Errorf("keys after a refusal: got %d, want %d", got, want)
	}
	if got, want := liveLeases(t, client), 1; got != want {
		t.Errorf("leases after a refusal: got %d, want %d", got, want)
	}

	b, err := locker.TryAcquire(testContext(t), "order:8473")
	if err != nil {
		t.Fatalf("TryAcquire of another key: %v", err)
	}
	if err := b.Release(testContext(t)); err != nil {
		t.Errorf("release the other key: %v", err)
	}
}

func TestLocker_TryAcquire_Token(t *testing.T) {
	client := newClient(t, startEtcd(t).Endpoint())
	locker := leases.NewLocker(client)
	var last fencing.Token
	for range 5 {
		lease, err := locker.TryAcquire(testContext(t), "k")
		if err != nil {
			t.Fatalf("TryAcquire: %v", err)
		}
		if lease.Token() <= last {
			t.Errorf("token %d after %d: does not grow", lease.Token(), last)
		}
		last = lease.Token()
		if err := lease.Release(testContext(t)); err != nil {
			t.Fatalf("Release: %v", err)
		}
	}
}

type result struct {
	lease *leases.Lease
	err   error
}

// acquireLater starts to acquire key, and returns once the waiter is number
// place in line.
func acquireLater(t *testing.T, ctx context.Context, locker *leases.Locker, client *clientv3.Client, key string, place int) <-chan result {
	t.Helper()
	done := make(chan result, 1)
	go func() {
		lease, err := locker.Acquire(ctx, key)
		done <- result{lease, err}
	}()
	dir := leases.LockPrefix(locker.Prefix, key) + "/"
	poll(t, "the waiter to get in line", func() bool { return keysUnder(t, client, dir) == place })
	return done
}

func TestLocker_Acquire_Waits(t *testing.T) {
	client := newClient(t, startEtcd(t).Endpoint())
	locker := leases.NewLocker(client)
	a := acquire(t, locker, "k")
	waiting := acquireLater(t, testContext(t), locker, client, "k", 2)

	select {
	case got := <-waiting:
		t.Fatalf("Acquire returned %v, %v while the lock was held", got.lease, got.err)
	default:
	}
	if err := a.Release(testContext(t)); err != nil {
		t.Fatalf("Release: %v", err)
	}
	b := wait(t, "the waiter to be served", waiting)
	if b.err != nil {
		t.Fatalf("Acquire: %v", b.err)
	}
	defer b.lease.Release(testContext(t))
	if b.lease.Token() <= a.Token() {
		t.Errorf("tokens: got %d after %d", b.lease.Token(), a.Token())
	}
	if got, want := b.lease.Token(), createRevision(t, client, b.lease.LockKey()); got != want {
		t.Errorf("token: got %d, want create revision %d", got, want)
	}
}

func TestLocker_Acquire_GivesUp(t *testing.T) {
	client := newClient(t, startEtcd(t).Endpoint())
	locker := leases.NewLocker(client)
	a := acquire(t, locker, "k")
	ctx, cancel := context.WithCancel(testContext(t))
	waiting := acquireLater(t, ctx, locker, client, "k", 2)
	cancel()

	err := wait(t, "the waiter to give up", waiting).err
	if !errors.Is(err, context.Canceled) || !errors.Is(err, leases.ErrTaken) {
		t.Errorf("got %v, want context.Canceled and ErrTaken", err)
	}
	if !strings.Contains(err.Error(), a.LockKey()) {
		t.Errorf("error %q does not name the holder's key", err)
	}
	if got, want := keysUnder(t, client, leases.DefaultPrefix), 1; got != want {
		t.Errorf("keys left: got %d, want %d", got, want)
	}
	if got, want := liveLeases(t, client), 1; got != want {
		t.Errorf("leases left: got %d, want %d", got, want)
	}
	if err := a.Err(); err != nil {
		t.Errorf("the holder: %v", err)
	}
}

// A waiter whose lease has died must not wait on: etcd's own Lock would, until
// the lock is free.
func TestLocker_Acquire_LeaseDiesInLine(t *testing.T) {
	client := newClient(t, startEtcd(t).Endpoint())
	locker := leases.NewLocker(client)
	locker.TTL = time.Second
	a := acquire(t, leases.NewLocker(client), "k")
	waiting := acquireLater(t, testContext(t), locker, client, "k", 2)

	resp, err := client.Get(testContext(t), leases.LockPrefix(leases.DefaultPrefix, "k")+"/", clientv3.WithLastCreate()...)
	if err != nil {
		t.Fatalf("get: %v", err)
	}
	revoke(t, client, clientv3.LeaseID(resp.Kvs[0].Lease))
	if err := wait(t, "the waiter to fail", waiting).err; !errors.Is(err, leases.ErrLost) {
		t.Errorf("got %v, want ErrLost", err)
	}
	if err := a.Err(); err != nil {
		t.Errorf("the holder: %v", err)
	}
}

// A phantom is a Lock that returned without an error though its key is gone,
// or isn't first in line.
func TestLocker_Phantom(t *testing.T) {
	etcd := startEtcd(t)
	other := newClient(t, etcd.Endpoint())

	// revokeAfterTxn lets the lease die between the transaction that takes
	// the lock and whatever comes next.
	revokeAfterTxn := func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		err := invoke(ctx, method, req, reply, cc, opts...)
		if txn, ok := req.(*pb.TxnRequest); ok && err == nil {
			revoke(t, other, clientv3.LeaseID(txn.Success[0].GetRequestPut().Lease))
		}
		return err
	}
	// hidePredecessors makes Mutex believe that it waits for nobody.
	hidePredecessors := func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		err := invoke(ctx, method, req, reply, cc, opts...)
		if get, ok := req.(*pb.RangeRequest); ok && err == nil && get.MaxCreateRevision > 0 {
			reply.(*pb.RangeResponse).Kvs = nil
		}
		return err
	}
	for _, test := range []struct {
		name   string
		meddle grpc.UnaryClientInterceptor
		held   bool
		take   func(*leases.Locker, context.Context, string) (*leases.Lease, error)
	}{
		{"lease dies behind Lock", revokeAfterTxn, false, (*leases.Locker).Acquire},
		{"lease dies behind TryLock", revokeAfterTxn, false, (*leases.Locker).TryAcquire},
		{"Lock returns out of turn", hidePredecessors, true, (*leases.Locker).Acquire},
	} {
		t.Run(test.name, func(t *testing.T) {
			client := newMeddledClient(t, etcd.Endpoint(), test.meddle, nil)
			key := strings.ReplaceAll(test.name, " ", "-")
			var holder *leases.Lease
			if test.held {
				holder = acquire(t, leases.NewLocker(other), key)
			}
			lease, err := test.take(leases.NewLocker(client), testContext(t), key)
			if !errors.Is(err, leases.ErrLost) {
				t.Fatalf("got %v, %v, want ErrLost", lease, err)
			}
			want := 0
			if holder != nil {
				want = 1
			}
			if got := keysUnder(t, other, leases.LockPrefix(leases.DefaultPrefix, key)); got != want {
				t.Errorf("keys left: got %d, want %d", got, want)
			}
		})
	}
}

// The locks are those of etcd's own package, so either side waits for the
// other.
func TestLocker_Interop(t *testing.T) {
	client := newClient(t, startEtcd(t).Endpoint())
	locker := leases.NewLocker(client)
	for _, key := range []string{"order:8472", "a/b", "daily report"} {
		t.Run(key, func(t *testing.T) {
			ctx := testContext(t)
			mutex := concurrency.NewMutex(newSession(t, client), leases.LockPrefix(leases.DefaultPrefix, key))
			if err := mutex.Lock(ctx); err != nil {
				t.Fatalf("Mutex.Lock: %v", err)
			}
			if _, err := locker.TryAcquire(ctx, key); !errors.Is(err, leases.ErrTaken) {
				t.Errorf("TryAcquire of what a Mutex holds: got %v, want ErrTaken", err)
			}
			waiting := acquireLater(t, ctx, locker, client, key, 2)
			if err := mutex.Unlock(ctx); err != nil {
				t.Fatalf("Mutex.Unlock: %v", err)
			}
			got := wait(t, "Acquire after Unlock", waiting)
			if got.err != nil {
				t.Fatalf("Acquire: %v", got.err)
			}

			theirs := concurrency.NewMutex(newSession(t, client), leases.LockPrefix(leases.DefaultPrefix, key))
			if err := theirs.TryLock(ctx); !errors.Is(err, concurrency.ErrLocked) {
				t.Errorf("Mutex.TryLock of what a Lease holds: got %v, want ErrLocked", err)
			}
			if err := got.lease.Release(ctx); err != nil {
				t.Fatalf("Release: %v", err)
			}
			if err := theirs.TryLock(ctx); err != nil {
				t.Errorf("Mutex.TryLock after Release: %v", err)
			}
		})
	}
}

// A lock a/b written raw lies below a. Mutex waits for it, so this package
// does, but it says so.
func TestLocker_Nested(t *testing.T) {
	client := newClient(t, startEtcd(t).Endpoint())
	locker := leases.NewLocker(client)

	acquire(t, locker, "x/y")
	if lease, err := locker.TryAcquire(testContext(t), "x"); err != nil {
		t.Errorf("x while x/y is held: %v", err)
	} else if err := lease.Release(testContext(t)); err != nil {
		t.Errorf("release x: %v", err)
	}

	raw := concurrency.NewMutex(newSession(t, client), leases.DefaultPrefix+"a/b")
	if err := raw.Lock(testContext(t)); err != nil {
		t.Fatalf("Mutex.Lock: %v", err)
	}
	acquire(t, locker, "a/b")
	_, err := locker.TryAcquire(testContext(t), "a")
	if !errors.Is(err, leases.ErrTaken) || !strings.Contains(err.Error(), "escaped") {
		t.Errorf("a while a raw a/b is held: got %v, want ErrTaken with the reason", err)
	}
}

// The lease of a holder that crashed runs out, and the next in line is served.
func TestLocker_Acquire_AfterCrash(t *testing.T) {
	etcd := startEtcd(t)
	client := newClient(t, etcd.Endpoint())
	crashing, err := leases.NewClient([]string{etcd.Endpoint()}, nil)
	if err != nil {
		t.Fatalf("NewClient: %v", err)
	}
	locker := leases.NewLocker(crashing)
	locker.TTL = time.Second
	a := acquire(t, locker, "k")
	waiting := acquireLater(t, testContext(t), leases.NewLocker(client), client, "k", 2)
	crashing.Close()

	b := wait(t, "the next in line", waiting)
	if b.err != nil {
		t.Fatalf("Acquire: %v", b.err)
	}
	defer b.lease.Release(testContext(t))
	if b.lease.Token() <= a.Token() {
		t.Errorf("tokens: got %d after %d", b.lease.Token(), a.Token())
	}
	wait(t, "the crashed holder's context to end", a.Context().Done())
	if err := a.Err(); !errors.Is(err, leases.ErrLost) {
		t.Errorf("the crashed holder: got %v, want ErrLost", err)
	}
}

func TestLocker_Invalid(t *testing.T) {
	client := newClient(t, "http://127.0.0.1:1")
	for _, test := range []struct {
		name, key string
		ttl       time.Duration
	}{
		{"empty key", "", time.Minute},
		{"key too long", strings.Repeat("k", fencing.MaxKeyLen+1), time.Minute},
		{"key not UTF-8", "k\xff", time.Minute},
		{"key with NUL", "k\x00", time.Minute},
		{"TTL below a second", "k", 999 * time.Millisecond},
	} {
		t.Run(test.name, func(t *testing.T) {
			locker := leases.NewLocker(client)
			locker.TTL = test.ttl
			if _, err := locker.Acquire(testContext(t), test.key); !errors.Is(err, leases.ErrInvalid) {
				t.Errorf("Acquire: got %v, want ErrInvalid", err)
			}
			if _, err := locker.TryAcquire(testContext(t), test.key); !errors.Is(err, leases.ErrInvalid) {
				t.Errorf("TryAcquire: got %v, want ErrInvalid", err)
			}
		})
	}
}

func TestLocker_Unavailable(t *testing.T) {
	etcd := startEtcd(t)
	relay := startRelay(t, etcd.Endpoint())
	client := newClient(t, relay.Endpoint())
	locker := leases.NewLocker(client)
	locker.RequestTimeout = 200 * time.Millisecond

	relay.Freeze()
	if _, err := locker.TryAcquire(testContext(t), "k"); !errors.Is(err, leases.ErrUnavailable) {
		t.Errorf("frozen: got %v, want ErrUnavailable", err)
	}
	ctx, cancel := context.WithTimeout(testContext(t), 50*time.Millisecond)
	defer cancel()
	if _, err := locker.Acquire(ctx, "k"); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, leases.ErrTaken) {
		t.Errorf("frozen, short context: got %v, want context.DeadlineExceeded alone", err)
	}
	relay.Thaw()
	etcd.Close()
	if _, err := locker.TryAcquire(testContext(t), "k"); !errors.Is(err, leases.ErrUnavailable) {
		t.Errorf("stopped: got %v, want ErrUnavailable", err)
	}
}

// An etcd that isn't there is named, with what the system said of it, whether
// the question's time is up or the caller's.
func TestLocker_Unreachable(t *testing.T) {
	const endpoint = "http://127.0.0.1:1"
	locker := leases.NewLocker(newClient(t, endpoint))
	for _, c := range []struct {
		name            string
		request, caller time.Duration
		wants           []error
	}{
		{"question", time.Second, patience, []error{leases.ErrUnavailable}},
		{"caller", patience, time.Second, []error{leases.ErrUnavailable, context.DeadlineExceeded}},
	} {
		t.Run(c.name, func(t *testing.T) {
			locker.RequestTimeout = c.request
			ctx, cancel := context.WithTimeout(context.Background(), c.caller)
			defer cancel()
			_, err := locker.Acquire(ctx, "k")
			for _, want := range c.wants {
				if !errors.Is(err, want) {
					t.Errorf("got %v, want %v", err, want)
				}
			}
			contains(t, "error", fmt.Sprint(err), "lock k", "etcd can't be reached", endpoint, "connection refused")
		})
	}
}

// Giving up while etcd doesn't answer takes a bounded time, too.
func TestLocker_Acquire_GivesUpFrozen(t *testing.T) {
	etcd := startEtcd(t)
	relay := startRelay(t, etcd.Endpoint())
	client := newClient(t, etcd.Endpoint())
	locker := leases.NewLocker(newClient(t, relay.Endpoint()))
	locker.RequestTimeout = 200 * time.Millisecond
	acquire(t, leases.NewLocker(client), "k")
	ctx, cancel := context.WithCancel(testContext(t))
	waiting := acquireLater(t, ctx, locker, client, "k", 2)
	relay.Freeze()
	cancel()
	if err := wait(t, "the waiter to give up", waiting).err; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want context.Canceled", err)
	}
}
