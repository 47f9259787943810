package embedded_test

import (
	"context"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"

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
