package embedded_test

import (
	"bytes"
	"context"
	"net/url"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/goleak"
	"go.uber.org/zap"

	"github.com/fenceproxy/fenceproxy/leases"
	"github.com/fenceproxy/fenceproxy/leases/embedded"
)

// patience is longer than any healthy run comes near.
const patience = 30 * time.Second

// checkLeaks fails a test that leaves goroutines behind.
func checkLeaks(t testing.TB) {
	t.Helper()
	before := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, before) })
}

func testContext(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

// startEtcdOn runs an etcd that must have nothing to say.
func startEtcdOn(t testing.TB, dir, addr string) *embedded.Etcd {
	t.Helper()
	var log syncBuffer
	e := embedded.New(dir)
	e.Addr, e.Log = addr, &log
	if err := e.Start(testContext(t)); err != nil {
		t.Fatalf("start etcd: %v", err)
	}
	t.Cleanup(func() {
		e.Close()
		if got := log.String(); got != "" {
			t.Errorf("etcd logged: %s", got)
		}
	})
	return e
}

type syncBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// acquire takes a lock in an etcd.
func acquire(t testing.TB, etcd *embedded.Etcd, key string) (*clientv3.Client, *leases.Lease) {
	t.Helper()
	client, err := leases.NewClient([]string{etcd.Endpoint()}, nil)
	if err != nil {
		t.Fatalf("NewClient: %v", err)
	}
	t.Cleanup(func() { client.Close() })
	lease, err := leases.NewLocker(client).Acquire(testContext(t), key)
	if err != nil {
		t.Fatalf("Acquire(%q): %v", key, err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = lease.Release(ctx)
	})
	return client, lease
}

// wait waits for something to be ready or done.
func wait(t testing.TB, what string, done <-chan struct{}) {
	t.Helper()
	select {
	case <-done:
	case <-time.After(patience):
		t.Fatalf("waited %v for %s", patience, what)
	}
}

// foreignConfig is that of an etcd that isn't ours.
func foreignConfig(dir string) *embed.Config {
	free := url.URL{Scheme: "http", Host: "127.0.0.1:0"}
	config := embed.NewConfig()
	config.Dir = dir
	config.ListenClientUrls, config.AdvertiseClientUrls = []url.URL{free}, []url.URL{free}
	config.ListenPeerUrls = nil
	config.EnableGRPCGateway = false
	config.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
	return config
}
