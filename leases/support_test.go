package leases_test

import (
	"context"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/fenceproxy/fenceproxy/fencing"
	"github.com/fenceproxy/fenceproxy/leases"
	"github.com/fenceproxy/fenceproxy/leases/embedded"
	"github.com/fenceproxy/fenceproxy/testharness/etcdtest"
)

// patience is how long a test waits for what must happen. It is far below the
// time to live of a default lease, and far above what a slow machine needs.
const patience = 8 * time.Second

// checkLeaks fails t if a goroutine is left once all else is cleaned up, so it
// must be called before anything registers a cleanup.
func checkLeaks(t testing.TB) {
	t.Helper()
	before := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, before) })
}

// startEtcd runs an etcd that must leave no goroutine behind.
func startEtcd(t testing.TB) *embedded.Etcd {
	t.Helper()
	checkLeaks(t)
	return etcdtest.New(t)
}

// testContext ends long after any test should have.
func testContext(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func newClient(t testing.TB, endpoints ...string) *clientv3.Client {
	t.Helper()
	client, err := leases.NewClient(endpoints, nil)
	if err != nil {
		t.Fatalf("NewClient: %v", err)
	}
	t.Cleanup(func() { client.Close() })
	return client
}

// newMeddledClient returns a client whose unary requests go through meddle and
// whose streams through stream; either may be nil.
func newMeddledClient(t testing.TB, endpoint string, meddle grpc.UnaryClientInterceptor, stream grpc.StreamClientInterceptor) *clientv3.Client {
	t.Helper()
	var options []grpc.DialOption
	if meddle != nil {
		options = append(options, grpc.WithChainUnaryInterceptor(meddle))
	}
	if stream != nil {
		options = append(options, grpc.WithChainStreamInterceptor(stream))
	}
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoint}, Logger: zap.NewNop(), DialOptions: options})
	if err != nil {
		t.Fatalf("make client: %v", err)
	}
	t.Cleanup(func() { client.Close() })
	return client
}

// acquire takes the lock of key and gives it back at the end, whatever
// becomes of it meanwhile.
func acquire(t testing.TB, locker *leases.Locker, key string) *leases.Lease {
	t.Helper()
	lease, err := locker.Acquire(testContext(t), key)
	if err != nil {
		t.Fatalf("Acquire(%q): %v", key, err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = lease.Release(ctx)
	})
	return lease
}

// newSession opens a plain session of etcd's own package, as another etcd
// client would.
func newSession(t testing.TB, client *clientv3.Client) *concurrency.Session {
	t.Helper()
	session, err := concurrency.NewSession(client, concurrency.WithTTL(60))
	if err != nil {
		t.Fatalf("open session: %v", err)
	}
	t.Cleanup(session.Orphan)
	return session
}

// wait waits for ch to be closed or to yield.
func wait[T any](t testing.TB, what string, ch <-chan T) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(patience):
		t.Fatalf("waited %v for %s", patience, what)
		panic("unreachable")
	}
}

// poll waits until ok returns true.
func poll(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !ok(); {
		if time.Now().After(deadline) {
			t.Fatalf("waited %v for %s", patience, what)
		}
		<-time.After(2 * time.Millisecond)
	}
}

// createRevision returns that of an etcd key, or 0 if there is no such key.
func createRevision(t testing.TB, client *clientv3.Client, key string) fencing.Token {
	t.Helper()
	resp, err := client.Get(testContext(t), key)
	if err != nil {
		t.Fatalf("get %s: %v", key, err)
	}
	if len(resp.Kvs) == 0 {
		return 0
	}
	return fencing.Token(resp.Kvs[0].CreateRevision)
}

// keysUnder counts the keys that start with prefix.
func keysUnder(t testing.TB, client *clientv3.Client, prefix string) int {
	t.Helper()
	resp, err := client.Get(testContext(t), prefix, clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil {
		t.Fatalf("count keys: %v", err)
	}
	return int(resp.Count)
}

// liveLeases counts the leases that etcd knows.
func liveLeases(t testing.TB, client *clientv3.Client) int {
	t.Helper()
	resp, err := client.Leases(testContext(t))
	if err != nil {
		t.Fatalf("list leases: %v", err)
	}
	return len(resp.Leases)
}

func revoke(t testing.TB, client *clientv3.Client, id clientv3.LeaseID) {
	t.Helper()
	if _, err := client.Revoke(testContext(t), id); err != nil {
		t.Fatalf("revoke lease: %v", err)
	}
}

// A clock stands still until it is told to move.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func newClock() *clock { return &clock{now: time.Date(2026, 3, 1, 3, 0, 0, 0, time.UTC)} }

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// A relay stands between a client and etcd, and can be frozen, so that it
// accepts and never answers, or cut.
type relay struct {
	listener net.Listener
	target   string
	running  sync.WaitGroup

	mu     sync.Mutex
	thaw   chan struct{} // closed while bytes flow
	cut    bool
	closed bool
	conns  map[net.Conn]bool
}

func startRelay(t testing.TB, endpoint string) *relay {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("listen: %v", err)
	}
	return startRelayOn(t, listener, endpoint)
}

func startRelayOn(t testing.TB, listener net.Listener, endpoint string) *relay {
	r := &relay{listener: listener, target: strings.TrimPrefix(endpoint, "http://"), thaw: make(chan struct{}), conns: map[net.Conn]bool{}}
	close(r.thaw)
	r.running.Add(1)
	go r.accept()
	t.Cleanup(func() {
		r.mu.Lock()
		r.closed = true
		r.mu.Unlock()
		r.Cut()
		r.Thaw()
		listener.Close()
		r.running.Wait()
	})
	return r
}

func (r *relay) Endpoint() string { return "http://" + r.listener.Addr().String() }

// Freeze stops all bytes, of connections yet to come too.
func (r *relay) Freeze() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.thaw = make(chan struct{})
}

func (r *relay) Thaw() {
	r.mu.Lock()
	defer r.mu.Unlock()
	select {
	case <-r.thaw:
	default:
		close(r.thaw)
	}
}

// Cut closes all connections and refuses new ones until Mend.
func (r *relay) Cut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cut = true
	for conn := range r.conns {
		conn.Close()
	}
}

func (r *relay) Mend() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cut = false
}

func (r *relay) flowing() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.thaw
}

// keep takes conn into account, or closes it if the relay is cut.
func (r *relay) keep(conn net.Conn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cut || r.closed {
		conn.Close()
		return false
	}
	r.conns[conn] = true
	return true
}

func (r *relay) accept() {
	defer r.running.Done()
	for {
		near, err := r.listener.Accept()
		if err != nil {
			return
		}
		far, err := net.Dial("tcp", r.target)
		if err != nil {
			near.Close()
			continue
		}
		if !r.keep(near) || !r.keep(far) {
			near.Close()
			far.Close()
			continue
		}
		r.running.Add(2)
		go r.copy(near, far)
		go r.copy(far, near)
	}
}

// copy returns when either connection is closed and the relay not frozen.
func (r *relay) copy(to, from net.Conn) {
	defer r.running.Done()
	defer to.Close()
	defer from.Close()
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		<-r.flowing()
		if err != nil {
			return
		}
		if _, err := to.Write(buf[:n]); err != nil {
			return
		}
	}
}
