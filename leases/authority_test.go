package leases_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"google.golang.org/grpc"

	"github.com/fenceproxy/fenceproxy/fencing"
	"github.com/fenceproxy/fenceproxy/leases"
	"github.com/fenceproxy/fenceproxy/testharness/etcdtest"
)

// refused checks that err is a refusal with code whose message starts with the
// code's name and names key and token, and returns it.
func refused(t *testing.T, err error, code fencing.Code, key string, token fencing.Token) *fencing.Error {
	t.Helper()
	var refusal *fencing.Error
	if !errors.As(err, &refusal) {
		t.Fatalf("got %v, want a refusal", err)
	}
	if got, want := refusal.Code, code; got != want {
		t.Errorf("code: got %s, want %s", got, want)
	}
	start := fmt.Sprintf("%s: %s token %d ", code.Name(), key, token)
	if !strings.HasPrefix(refusal.Message, start) {
		t.Errorf("message %q does not start with %q", refusal.Message, start)
	}
	if refusal.Detail == "" || refusal.Hint == "" {
		t.Errorf("detail %q or hint %q is empty", refusal.Detail, refusal.Hint)
	}
	return refusal
}

func contains(t *testing.T, what, text string, wants ...string) {
	t.Helper()
	for _, want := range wants {
		if !strings.Contains(text, want) {
			t.Errorf("%s %q does not contain %q", what, text, want)
		}
	}
}

func TestAuthority_Verify_Holder(t *testing.T) {
	etcd := startEtcd(t)
	client := newClient(t, etcd.Endpoint())
	lease := acquire(t, leases.NewLocker(client), "order:8472")
	put, err := client.Put(testContext(t), "elsewhere", "")
	if err != nil {
		t.Fatalf("put: %v", err)
	}
	got, err := leases.NewAuthority(client).Verify(testContext(t), "order:8472", lease.Token())
	want := fencing.Verification{
		LockKey:  lease.LockKey(),
		Cluster:  fmt.Sprintf("%x", put.Header.ClusterId),
		Revision: put.Header.Revision,
	}
	if err != nil || got != want {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
}

// One question is one linearizable range, and nothing else.
func TestAuthority_Verify_AsksOnce(t *testing.T) {
	etcd := startEtcd(t)
	lease := acquire(t, leases.NewLocker(newClient(t, etcd.Endpoint())), "k")
	var mu sync.Mutex
	var asked []any
	note := func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		mu.Lock()
		asked = append(asked, req)
		mu.Unlock()
		return invoke(ctx, method, req, reply, cc, opts...)
	}
	authority := leases.NewAuthority(newMeddledClient(t, etcd.Endpoint(), note, nil))
	for _, token := range []fencing.Token{lease.Token(), lease.Token() + 1000} {
		asked = nil
		_, _ = authority.Verify(testContext(t), "k", token)
		if len(asked) != 1 {
			t.Fatalf("token %d: asked %v, want one range", token, asked)
		}
		get, ok := asked[0].(*pb.RangeRequest)
		if !ok || get.Serializable || get.Revision != 0 {
			t.Errorf("token %d: asked %v, want a linearizable range of the present", token, asked[0])
		}
		if got, want := string(get.Key), "/fenceproxy/locks/k/"; got != want {
			t.Errorf("token %d: asked for %s, want %s", token, got, want)
		}
	}
}

// A contended `etcdctl lock` gets its turn, with its create revision, its key,
// and the header revision that it exports as ETCD_LOCK_REV.
func contendedLock(t *testing.T, client *clientv3.Client, key string) (created, header fencing.Token, lockKey string, id clientv3.LeaseID) {
	t.Helper()
	ctx := testContext(t)
	first := acquire(t, leases.NewLocker(client), key)
	session := newSession(t, client)
	mutex := concurrency.NewMutex(session, leases.LockPrefix(leases.DefaultPrefix, key))
	locked := make(chan error, 1)
	go func() { locked <- mutex.Lock(ctx) }()
	poll(t, "the Mutex to get in line", func() bool { return keysUnder(t, client, leases.LockPrefix(leases.DefaultPrefix, key)+"/") == 2 })
	for range 3 {
		if _, err := client.Put(ctx, "elsewhere", ""); err != nil {
			t.Fatalf("put: %v", err)
		}
	}
	if err := first.Release(ctx); err != nil {
		t.Fatalf("Release: %v", err)
	}
	if err := wait(t, "Mutex.Lock", locked); err != nil {
		t.Fatalf("Mutex.Lock: %v", err)
	}
	return createRevision(t, client, mutex.Key()), fencing.Token(mutex.Header().Revision), mutex.Key(), session.Lease()
}

func TestAuthority_Verify_Refuses(t *testing.T) {
	client := newClient(t, startEtcd(t).Endpoint())
	authority := leases.NewAuthority(client)
	ctx := testContext(t)

	created, header, lockKey, id := contendedLock(t, client, "k")
	if header <= created {
		t.Fatalf("header revision %d is not above create revision %d: this proves nothing", header, created)
	}
	locker := leases.NewLocker(client)
	waiting, stop := context.WithCancel(ctx)
	first := acquireLater(t, waiting, locker, client, "k", 2)
	second := acquireLater(t, waiting, locker, client, "k", 3)
	defer func() { stop(); <-first; <-second }()

	line, err := client.Get(ctx, leases.LockPrefix(leases.DefaultPrefix, "k")+"/", clientv3.WithPrefix(),
		clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend))
	if err != nil || len(line.Kvs) != 3 {
		t.Fatalf("read the line: %v, %v", line, err)
	}
	waiter, waiterLease := fencing.Token(line.Kvs[2].CreateRevision), fencing.Token(line.Kvs[2].Lease)
	touched, err := client.Put(ctx, lockKey, "touched", clientv3.WithLease(id))
	if err != nil {
		t.Fatalf("put: %v", err)
	}
	modified := fencing.Token(touched.Header.Revision)

	right := "the holder's token is " + created.String()
	for _, test := range []struct {
		name  string
		token fencing.Token
		what  string
		hints []string
	}{
		{"waiter", waiter, "a waiter's, number 3 in line", []string{"You are waiting"}},
		{"header revision", header, "not the create revision", []string{"header revision", "ETCD_LOCK_REV", "create revision: " + created.String(), lockKey, "stop"}},
		{"mod revision", modified, "not the create revision", []string{"mod revision", "create revision: " + created.String(), "stop"}},
		{"holder's lease ID", fencing.Token(id), "lease ID of the holder", []string{"instead of the lease ID: " + created.String()}},
		{"waiter's lease ID", waiterLease, "lease ID of a waiter, number 3 in line", []string{"You are waiting", waiter.String()}},
		{"superseded", created - 1, "is gone", []string{"stop", "re-acquire"}},
		{"future", 1 << 40, "above etcd's revision", []string{"restored from a backup", "another etcd cluster", created.String()}},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := authority.Verify(ctx, "k", test.token)
			refusal := refused(t, err, fencing.CodeNotHolder, "k", test.token)
			contains(t, "message", refusal.Message, test.what, right)
			contains(t, "detail", refusal.Detail, "Key k", "presented token "+test.token.String(), "holder's token "+created.String(), lockKey, "waiters 2")
			contains(t, "hint", refusal.Hint, test.hints...)
		})
	}
	if _, err := authority.Verify(ctx, "k", created); err != nil {
		t.Errorf("the holder itself: %v", err)
	}
}

func TestAuthority_Verify_Free(t *testing.T) {
	client := newClient(t, startEtcd(t).Endpoint())
	authority := leases.NewAuthority(client)
	lease := acquire(t, leases.NewLocker(client), "k")
	if err := lease.Release(testContext(t)); err != nil {
		t.Fatalf("Release: %v", err)
	}
	for _, token := range []fencing.Token{lease.Token(), 1 << 40} {
		_, err := authority.Verify(testContext(t), "k", token)
		refusal := refused(t, err, fencing.CodeNotHolder, "k", token)
		contains(t, "message", refusal.Message, "nobody holds the lock")
		contains(t, "hint", refusal.Hint, "re-acquire")
	}
}

// A phantom presents the token of a key that died behind its Lock call.
func TestAuthority_Verify_Expired(t *testing.T) {
	client := newClient(t, startEtcd(t).Endpoint())
	authority := leases.NewAuthority(client)
	a := acquire(t, leases.NewLocker(client), "k")
	revoke(t, client, a.ID())
	b := acquire(t, leases.NewLocker(client), "k")
	_, err := authority.Verify(testContext(t), "k", a.Token())
	refusal := refused(t, err, fencing.CodeNotHolder, "k", a.Token())
	contains(t, "message", refusal.Message, "gone", "the holder's token is "+b.Token().String())
	if _, err := authority.Verify(testContext(t), "k", b.Token()); err != nil {
		t.Errorf("the real holder: %v", err)
	}
}

// The holder is the oldest in line, whatever the names sort like.
func TestAuthority_Verify_Order(t *testing.T) {
	client := newClient(t, startEtcd(t).Endpoint())
	lease := acquire(t, leases.NewLocker(client), "k")
	put, err := client.Put(testContext(t), leases.DefaultPrefix+"k/0", "")
	if err != nil {
		t.Fatalf("put: %v", err)
	}
	authority := leases.NewAuthority(client)
	if _, err := authority.Verify(testContext(t), "k", lease.Token()); err != nil {
		t.Errorf("the holder: %v", err)
	}
	token := fencing.Token(put.Header.Revision)
	_, err = authority.Verify(testContext(t), "k", token)
	contains(t, "hint", refused(t, err, fencing.CodeNotHolder, "k", token).Hint, "You are waiting")
}

// Only direct children stand in line.
func TestAuthority_Verify_Nested(t *testing.T) {
	ctx := context.Background()
	for _, test := range []struct {
		name string
		hold func(*testing.T, *clientv3.Client) // holds a/b
	}{
		{"escaped", func(t *testing.T, client *clientv3.Client) { acquire(t, leases.NewLocker(client), "a/b") }},
		{"raw", func(t *testing.T, client *clientv3.Client) {
			if err := concurrency.NewMutex(newSession(t, client), leases.DefaultPrefix+"a/b").Lock(ctx); err != nil {
				t.Fatalf("Mutex.Lock: %v", err)
			}
		}},
	} {
		t.Run(test.name+" a/b before a", func(t *testing.T) {
			client := newClient(t, startEtcd(t).Endpoint())
			test.hold(t, client)
			_, err := leases.NewAuthority(client).Verify(ctx, "a", 2)
			refusal := refused(t, err, fencing.CodeNotHolder, "a", 2)
			contains(t, "message", refusal.Message, "nobody holds the lock")

			// Not by a Mutex, which would wait for the raw a/b.
			put, err := client.Put(ctx, leases.DefaultPrefix+"a/1234", "")
			if err != nil {
				t.Fatalf("put: %v", err)
			}
			got, err := leases.NewAuthority(client).Verify(ctx, "a", fencing.Token(put.Header.Revision))
			if want := leases.DefaultPrefix + "a/1234"; err != nil || got.LockKey != want {
				t.Errorf("a: got %+v, %v, want %s as the holder", got, err, want)
			}
		})
		t.Run("a before "+test.name+" a/b", func(t *testing.T) {
			client := newClient(t, startEtcd(t).Endpoint())
			a := acquire(t, leases.NewLocker(client), "a")
			test.hold(t, client)
			if _, err := leases.NewAuthority(client).Verify(ctx, "a", a.Token()); err != nil {
				t.Errorf("a: %v", err)
			}
			nested := a.Token() + 1
			_, err := leases.NewAuthority(client).Verify(ctx, "a", nested)
			refusal := refused(t, err, fencing.CodeNotHolder, "a", nested)
			if strings.Contains(refusal.Hint, "You are waiting") {
				t.Errorf("a/b looks like a waiter on a: %s", refusal.Hint)
			}
		})
	}
	t.Run("raw a/b claimed as a/b", func(t *testing.T) {
		client := newClient(t, startEtcd(t).Endpoint())
		mutex := concurrency.NewMutex(newSession(t, client), leases.DefaultPrefix+"a/b")
		if err := mutex.Lock(ctx); err != nil {
			t.Fatalf("Mutex.Lock: %v", err)
		}
		token := createRevision(t, client, mutex.Key())
		_, err := leases.NewAuthority(client).Verify(ctx, "a/b", token)
		refusal := refused(t, err, fencing.CodeNotHolder, "a/b", token)
		contains(t, "hint", refusal.Hint, leases.DefaultPrefix+"a%2Fb", "escaped")
	})
}

// A key that could forge a line of a log is quoted.
func TestAuthority_Verify_HostileKey(t *testing.T) {
	client := newClient(t, startEtcd(t).Endpoint())
	key := "k\nERROR: forged"
	_, err := leases.NewAuthority(client).Verify(testContext(t), key, 7)
	refusal := refused(t, err, fencing.CodeNotHolder, `"k\nERROR: forged"`, 7)
	if strings.Contains(refusal.Message+refusal.Detail+refusal.Hint, "\n") {
		t.Errorf("a line break got through: %+v", refusal)
	}
}

func TestAuthority_Verify_Unverified(t *testing.T) {
	etcd := startEtcd(t)
	relay := startRelay(t, etcd.Endpoint())
	client := newClient(t, relay.Endpoint())
	lease := acquire(t, leases.NewLocker(newClient(t, etcd.Endpoint())), "k")
	authority := leases.NewAuthority(client)
	verify := func(timeout time.Duration) error {
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		defer cancel()
		_, err := authority.Verify(ctx, "k", lease.Token())
		return err
	}
	if err := verify(patience); err != nil {
		t.Fatalf("before any fault: %v", err)
	}

	relay.Freeze()
	refusal := refused(t, verify(300*time.Millisecond), fencing.CodeUnverified, "k", lease.Token())
	contains(t, "message of a frozen etcd", refusal.Message, "did not answer in time")
	contains(t, "detail", refusal.Detail, relay.Endpoint(), "presented token "+lease.Token().String())
	contains(t, "hint", refusal.Hint, "Retry", "endpoint status")
	if !errors.Is(refusal, context.DeadlineExceeded) {
		t.Errorf("cause of a frozen etcd: got %v, want context.DeadlineExceeded", refusal.Cause)
	}

	gone, cancel := context.WithCancel(context.Background())
	cancel()
	_, err := authority.Verify(gone, "k", lease.Token())
	refusal = refused(t, err, fencing.CodeUnverified, "k", lease.Token())
	contains(t, "message of a cancelled question", refusal.Message, "given up")

	relay.Thaw()
	poll(t, "verification to work again", func() bool { return verify(patience) == nil })
}

func TestAuthority_Verify_Stopped(t *testing.T) {
	checkLeaks(t)
	dir := t.TempDir()
	etcd := etcdtest.On(t, dir, "127.0.0.1:0")
	addr := strings.TrimPrefix(etcd.Endpoint(), "http://")
	client := newClient(t, etcd.Endpoint())
	lease := acquire(t, leases.NewLocker(client), "k")
	authority := leases.NewAuthority(client)
	verify := func(timeout time.Duration) error {
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		defer cancel()
		_, err := authority.Verify(ctx, "k", lease.Token())
		return err
	}
	etcd.Close()
	refusal := refused(t, verify(500*time.Millisecond), fencing.CodeUnverified, "k", lease.Token())
	contains(t, "message", refusal.Message, "can't be reached")
	contains(t, "cause", refusal.Cause.Error(), "connection refused")

	ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
	defer cancel()
	err := authority.Ping(ctx)
	if !errors.Is(err, leases.ErrUnavailable) {
		t.Errorf("Ping: got %v, want ErrUnavailable", err)
	}
	contains(t, "Ping's error", err.Error(), "can't be reached", "connection refused", addr)

	etcdtest.On(t, dir, addr)
	poll(t, "verification to work again", func() bool { return verify(patience) == nil })
	if err := authority.Ping(testContext(t)); err != nil {
		t.Errorf("Ping: %v", err)
	}
	if err := lease.Err(); err != nil {
		t.Errorf("the holder, across a restart of etcd: %v", err)
	}
}

// One member out of several accepts questions and never answers.
func TestAuthority_Verify_FrozenMember(t *testing.T) {
	etcd := startEtcd(t)
	relay := startRelay(t, etcd.Endpoint())
	lease := acquire(t, leases.NewLocker(newClient(t, etcd.Endpoint())), "k")
	authority := leases.NewAuthority(newClient(t, relay.Endpoint(), etcd.Endpoint()))
	verify := func(timeout time.Duration) error {
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		defer cancel()
		_, err := authority.Verify(ctx, "k", lease.Token())
		return err
	}
	for range 4 { // until both members are connected
		if err := verify(patience); err != nil {
			t.Fatalf("before the fault: %v", err)
		}
	}
	relay.Freeze()
	for i := range 4 {
		if err := verify(2 * time.Second); err != nil {
			t.Errorf("question %d: %v", i, err)
		}
	}
}

// A member without a leader refuses; it must not answer from what it knows.
func TestAuthority_Verify_NoLeader(t *testing.T) {
	// Not checkLeaks: members of a cluster leave goroutines of theirs.
	members, stop := startPair(t)
	endpoint := "http://" + members[0].Clients[0].Addr().String()
	client := newClient(t, endpoint)
	lease := acquire(t, leases.NewLocker(client), "k")
	authority := leases.NewAuthority(client)
	if _, err := authority.Verify(testContext(t), "k", lease.Token()); err != nil {
		t.Fatalf("with a leader: %v", err)
	}
	stop[1]()
	poll(t, "the other member to know that it has no leader", func() bool { return members[0].Server.Leader() == 0 })

	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_, err := authority.Verify(ctx, "k", lease.Token())
	refusal := refused(t, err, fencing.CodeUnverified, "k", lease.Token())
	contains(t, "message", refusal.Message, "etcd has no leader")
	if !errors.Is(refusal, context.DeadlineExceeded) {
		t.Errorf("cause: got %v, want context.DeadlineExceeded too: an election may end within the time", refusal.Cause)
	}
}
