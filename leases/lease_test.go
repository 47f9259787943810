package leases_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/fenceproxy/fenceproxy/leases"
)

func TestLease_Renews(t *testing.T) {
	client := newClient(t, startEtcd(t).Endpoint())
	locker := leases.NewLocker(client)
	locker.TTL = time.Second
	lease := acquire(t, locker, "k")

	begun := time.Now()
	poll(t, "the lock to be held for three times its TTL", func() bool {
		if err := lease.Err(); err != nil {
			t.Fatalf("lost after %v: %v", time.Since(begun), err)
		}
		return time.Since(begun) > 3*time.Second
	})
	if got, want := createRevision(t, client, lease.LockKey()), lease.Token(); got != want {
		t.Errorf("create revision: got %d, want %d", got, want)
	}
	if err := lease.Release(testContext(t)); err != nil {
		t.Errorf("Release: %v", err)
	}
}

// The deadline counts from when a request was sent, however long etcd took to
// answer it.
func TestLease_Deadline(t *testing.T) {
	etcd := startEtcd(t)
	const slowGrant, slowRenewal = 500 * time.Millisecond, 250 * time.Millisecond
	clock := newClock()
	begun := clock.Now()
	slow := func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		if strings.HasSuffix(method, "/LeaseGrant") {
			clock.Advance(slowGrant)
		}
		return invoke(ctx, method, req, reply, cc, opts...)
	}
	slowStream := func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, stream grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
		// The renewals of a plain session have no deadline, ours do.
		if _, ours := ctx.Deadline(); ours && strings.HasSuffix(method, "/LeaseKeepAlive") {
			clock.Advance(slowRenewal)
		}
		return stream(ctx, desc, cc, method, opts...)
	}
	locker := leases.NewLocker(newMeddledClient(t, etcd.Endpoint(), slow, slowStream))
	locker.TTL, locker.Now = 2*time.Second, clock.Now
	lease := acquire(t, locker, "k")

	if got, want := lease.Deadline(), begun.Add(locker.TTL); !got.Equal(want) {
		t.Errorf("after the grant: got %v, want %v", got, want)
	}
	first := begun.Add(slowGrant)
	poll(t, "the first renewal", func() bool { return lease.Deadline().After(begun.Add(locker.TTL)) })
	if got, want := lease.Deadline(), first.Add(locker.TTL); !got.Equal(want) {
		t.Errorf("after the first renewal: got %v, want %v", got, want)
	}
}

// As after SIGSTOP: the process finds that it is too late before it hears
// anything from etcd, which would still renew the lease.
func TestLease_Err_AfterPause(t *testing.T) {
	client := newClient(t, startEtcd(t).Endpoint())
	clock := newClock()
	locker := leases.NewLocker(client)
	locker.Now = clock.Now
	lease := acquire(t, locker, "k")

	clock.Advance(leases.DefaultTTL - time.Millisecond)
	if err := lease.Err(); err != nil {
		t.Errorf("just before the deadline: %v", err)
	}
	clock.Advance(time.Millisecond)
	if err := lease.Err(); !errors.Is(err, leases.ErrLost) {
		t.Errorf("at the deadline: got %v, want ErrLost", err)
	}
	wait(t, "the context to end", lease.Context().Done())
	if err := context.Cause(lease.Context()); !errors.Is(err, leases.ErrLost) {
		t.Errorf("cause: got %v, want ErrLost", err)
	}
	clock.Advance(-time.Hour)
	if err := lease.Err(); !errors.Is(err, leases.ErrLost) {
		t.Errorf("after the clock went back: got %v, want ErrLost still", err)
	}
	if err := lease.Release(testContext(t)); !errors.Is(err, leases.ErrLost) {
		t.Errorf("Release: got %v, want ErrLost", err)
	}
}

// Nobody asks: the context ends by itself once the clock is past the deadline,
// though etcd would go on to renew.
func TestLease_Context_AfterPause(t *testing.T) {
	clock := newClock()
	locker := leases.NewLocker(newClient(t, startEtcd(t).Endpoint()))
	locker.TTL, locker.Now = 2*time.Second, clock.Now
	lease := acquire(t, locker, "k")
	clock.Advance(3 * time.Second)
	wait(t, "the context to end", lease.Context().Done())
	if err := context.Cause(lease.Context()); !errors.Is(err, leases.ErrLost) {
		t.Errorf("cause: got %v, want ErrLost", err)
	}
}

func TestLease_Context_Unreachable(t *testing.T) {
	etcd := startEtcd(t)
	for _, test := range []struct {
		name  string
		fault func(*relay)
	}{
		{"frozen", (*relay).Freeze},
		{"cut", (*relay).Cut},
	} {
		t.Run(test.name, func(t *testing.T) {
			relay := startRelay(t, etcd.Endpoint())
			locker := leases.NewLocker(newClient(t, relay.Endpoint()))
			locker.TTL = time.Second
			lease := acquire(t, locker, test.name)
			test.fault(relay)
			wait(t, "the context to end", lease.Context().Done())
			if time.Now().Before(lease.Deadline()) {
				t.Errorf("the context ended %v before the deadline", time.Until(lease.Deadline()))
			}
			if err := context.Cause(lease.Context()); !errors.Is(err, leases.ErrLost) {
				t.Errorf("cause: got %v, want ErrLost", err)
			}
		})
	}
}

// A short outage does no harm.
func TestLease_Outage(t *testing.T) {
	etcd := startEtcd(t)
	relay := startRelay(t, etcd.Endpoint())
	locker := leases.NewLocker(newClient(t, relay.Endpoint()))
	locker.TTL = 4 * time.Second
	lease := acquire(t, locker, "k")
	relay.Cut()
	before := lease.Deadline()
	poll(t, "half of the TTL", func() bool { return time.Until(before) < locker.TTL/2 })
	relay.Mend()
	poll(t, "a renewal", func() bool { return lease.Deadline().After(before) })
	if err := lease.Err(); err != nil {
		t.Errorf("after the outage: %v", err)
	}
}

// With a default time to live the next renewal is ten seconds away: the loss
// is heard from a watch.
func TestLease_Context_Lost(t *testing.T) {
	client := newClient(t, startEtcd(t).Endpoint())
	for _, test := range []struct {
		name string
		lose func(*testing.T, *leases.Lease)
	}{
		{"lease revoked", func(t *testing.T, l *leases.Lease) { revoke(t, client, l.ID()) }},
		{"key deleted", func(t *testing.T, l *leases.Lease) {
			if _, err := client.Delete(testContext(t), l.LockKey()); err != nil {
				t.Fatalf("delete: %v", err)
			}
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			lease := acquire(t, leases.NewLocker(client), "k")
			test.lose(t, lease)
			wait(t, "the context to end", lease.Context().Done())
			for what, err := range map[string]error{
				"cause":   context.Cause(lease.Context()),
				"Err":     lease.Err(),
				"Release": lease.Release(testContext(t)),
			} {
				if !errors.Is(err, leases.ErrLost) || errors.Is(err, leases.ErrReleased) {
					t.Errorf("%s: got %v, want ErrLost", what, err)
				}
			}
			if got, want := liveLeases(t, client), 0; got != want {
				t.Errorf("leases left: got %d, want %d", got, want)
			}
		})
	}
}

// The key is deleted, and the event compacted away, while the watch can't hear.
func TestLease_Context_LostWhileAway(t *testing.T) {
	etcd := startEtcd(t)
	client := newClient(t, etcd.Endpoint())
	relay := startRelay(t, etcd.Endpoint())
	lease := acquire(t, leases.NewLocker(newClient(t, relay.Endpoint())), "k")
	relay.Cut()
	deleted, err := client.Delete(testContext(t), lease.LockKey())
	if err != nil {
		t.Fatalf("delete: %v", err)
	}
	put, err := client.Put(testContext(t), "elsewhere", "")
	if err != nil {
		t.Fatalf("put: %v", err)
	}
	if _, err := client.Compact(testContext(t), put.Header.Revision); err != nil {
		t.Fatalf("compact beyond %d: %v", deleted.Header.Revision, err)
	}
	relay.Mend()
	wait(t, "the context to end", lease.Context().Done())
	if err := lease.Err(); !errors.Is(err, leases.ErrLost) {
		t.Errorf("got %v, want ErrLost", err)
	}
}

// A compaction alone takes nothing away.
func TestLease_Compaction(t *testing.T) {
	etcd := startEtcd(t)
	client := newClient(t, etcd.Endpoint())
	relay := startRelay(t, etcd.Endpoint())
	lease := acquire(t, leases.NewLocker(newClient(t, relay.Endpoint())), "k")
	relay.Cut()
	for range 3 {
		put, err := client.Put(testContext(t), "elsewhere", "")
		if err != nil {
			t.Fatalf("put: %v", err)
		}
		if _, err := client.Compact(testContext(t), put.Header.Revision); err != nil {
			t.Fatalf("compact: %v", err)
		}
	}
	relay.Mend()
	if _, err := client.Put(testContext(t), lease.LockKey(), "touched", clientv3.WithLease(lease.ID())); err != nil {
		t.Fatalf("put: %v", err)
	}
	if err := lease.Err(); err != nil {
		t.Errorf("after a compaction: %v", err)
	}
	revoke(t, client, lease.ID())
	wait(t, "the context to end", lease.Context().Done())
}

func TestLease_Release(t *testing.T) {
	client := newClient(t, startEtcd(t).Endpoint())
	locker := leases.NewLocker(client)
	lease := acquire(t, locker, "k")
	if err := lease.Release(testContext(t)); err != nil {
		t.Fatalf("Release: %v", err)
	}
	if got, want := keysUnder(t, client, leases.DefaultPrefix), 0; got != want {
		t.Errorf("keys left: got %d, want %d", got, want)
	}
	if got, want := liveLeases(t, client), 0; got != want {
		t.Errorf("leases left: got %d, want %d", got, want)
	}
	if err := context.Cause(lease.Context()); !errors.Is(err, leases.ErrReleased) {
		t.Errorf("cause: got %v, want ErrReleased", err)
	}
	if err := lease.Err(); !errors.Is(err, leases.ErrReleased) || errors.Is(err, leases.ErrLost) {
		t.Errorf("Err: got %v, want ErrReleased", err)
	}
	if err := lease.Release(testContext(t)); err != nil {
		t.Errorf("second Release: %v", err)
	}
}

// A holder that lost its lock gives it back when it wakes up: the new holder
// doesn't notice.
func TestLease_Release_Former(t *testing.T) {
	client := newClient(t, startEtcd(t).Endpoint())
	locker := leases.NewLocker(client)
	a := acquire(t, locker, "k")
	revoke(t, client, a.ID())
	b := acquire(t, locker, "k")

	if err := a.Release(testContext(t)); !errors.Is(err, leases.ErrLost) {
		t.Errorf("the former holder's Release: got %v, want ErrLost", err)
	}
	if err := b.Err(); err != nil {
		t.Errorf("the new holder: %v", err)
	}
	if _, err := leases.NewAuthority(client).Verify(testContext(t), "k", b.Token()); err != nil {
		t.Errorf("the new holder's token: %v", err)
	}
	if got, want := createRevision(t, client, b.LockKey()), b.Token(); got != want {
		t.Errorf("the new holder's key: got create revision %d, want %d", got, want)
	}
}

// Even under its own name, a key with another create revision isn't its own.
func TestLease_Release_SameName(t *testing.T) {
	client := newClient(t, startEtcd(t).Endpoint())
	a := acquire(t, leases.NewLocker(client), "k")
	if _, err := client.Delete(testContext(t), a.LockKey()); err != nil {
		t.Fatalf("delete: %v", err)
	}
	if _, err := client.Put(testContext(t), a.LockKey(), ""); err != nil {
		t.Fatalf("put: %v", err)
	}
	if err := a.Release(testContext(t)); !errors.Is(err, leases.ErrLost) {
		t.Errorf("Release: got %v, want ErrLost", err)
	}
	if createRevision(t, client, a.LockKey()) == 0 {
		t.Errorf("Release deleted somebody else's key")
	}
}

// Release without etcd ends the context at once, fails in bounded time, and
// can be made up for.
func TestLease_Release_Unavailable(t *testing.T) {
	etcd := startEtcd(t)
	client := newClient(t, etcd.Endpoint())
	for _, test := range []struct {
		name  string
		fault func(*relay)
	}{
		{"frozen", (*relay).Freeze},
		{"cut", (*relay).Cut},
	} {
		t.Run(test.name, func(t *testing.T) {
			relay := startRelay(t, etcd.Endpoint())
			locker := leases.NewLocker(newClient(t, relay.Endpoint()))
			locker.RequestTimeout = time.Second // enough to acquire it on a machine that is busy
			lease := acquire(t, locker, test.name)
			test.fault(relay)
			released := make(chan error, 1)
			go func() { released <- lease.Release(context.Background()) }()
			if err := wait(t, "Release to give up", released); !errors.Is(err, leases.ErrUnavailable) {
				t.Errorf("got %v, want ErrUnavailable", err)
			}
			if lease.Context().Err() == nil {
				t.Errorf("the context goes on")
			}
			relay.Thaw()
			relay.Mend()
			poll(t, "a Release to succeed", func() bool { return lease.Release(testContext(t)) == nil })
			if got, want := keysUnder(t, client, leases.DefaultPrefix), 0; got != want {
				t.Errorf("keys left: got %d, want %d", got, want)
			}
		})
	}
}

// The Lease outlives the context it was acquired under, and carries its values.
func TestLease_Context_Detached(t *testing.T) {
	client := newClient(t, startEtcd(t).Endpoint())
	type name struct{}
	ctx, cancel := context.WithCancel(context.WithValue(testContext(t), name{}, "value"))
	lease, err := leases.NewLocker(client).Acquire(ctx, "k")
	if err != nil {
		t.Fatalf("Acquire: %v", err)
	}
	cancel()
	if err := lease.Err(); err != nil {
		t.Errorf("after the end of the caller's context: %v", err)
	}
	if got, want := lease.Context().Value(name{}), "value"; got != want {
		t.Errorf("value: got %v, want %v", got, want)
	}
	if err := lease.Release(testContext(t)); err != nil {
		t.Errorf("Release: %v", err)
	}
}

// The key goes in the moment between the end of the context and the deletion:
// too late for the watch.
func TestLease_Release_GoneUnnoticed(t *testing.T) {
	etcd := startEtcd(t)
	other := newClient(t, etcd.Endpoint())
	meddle := func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		if txn, ok := req.(*pb.TxnRequest); ok && txn.Success[0].GetRequestDeleteRange() != nil {
			if _, err := other.Delete(ctx, leases.DefaultPrefix, clientv3.WithPrefix()); err != nil {
				return err
			}
		}
		return invoke(ctx, method, req, reply, cc, opts...)
	}
	lease := acquire(t, leases.NewLocker(newMeddledClient(t, etcd.Endpoint(), meddle, nil)), "k")
	if err := lease.Release(testContext(t)); !errors.Is(err, leases.ErrLost) {
		t.Errorf("got %v, want ErrLost", err)
	}
}

// A Release whose answer got lost has worked; the second one must not take the
// missing key for a lost lock.
func TestLease_Release_AnswerLost(t *testing.T) {
	etcd := startEtcd(t)
	lose := true
	meddle := func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		err := invoke(ctx, method, req, reply, cc, opts...)
		if txn, ok := req.(*pb.TxnRequest); ok && txn.Success[0].GetRequestDeleteRange() != nil && lose {
			lose = false
			return status.Error(codes.Unavailable, "the connection broke")
		}
		return err
	}
	lease := acquire(t, leases.NewLocker(newMeddledClient(t, etcd.Endpoint(), meddle, nil)), "k")
	if err := lease.Release(testContext(t)); !errors.Is(err, leases.ErrUnavailable) {
		t.Errorf("first: got %v, want ErrUnavailable", err)
	}
	if err := lease.Release(testContext(t)); err != nil {
		t.Errorf("second: %v", err)
	}
}
