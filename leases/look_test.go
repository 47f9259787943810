package leases_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/fenceproxy/fenceproxy/leases"
)

// held holds the answers of reads back while it is closed to them.
type held struct {
	closed atomic.Bool
	caught chan struct{} // holds a token when an answer is held back
	pass   chan struct{}
}

func (h *held) meddle(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	err := invoke(ctx, method, req, reply, cc, opts...)
	if _, reads := req.(*pb.TxnRequest); reads && h.closed.CompareAndSwap(true, false) {
		h.caught <- struct{}{}
		<-h.pass
	}
	return err
}

// Who takes a lock while it is being looked at is seen, though the look didn't
// see it and the holder that was known before kept it from being looked at.
func TestWatch_TakenDuringLook(t *testing.T) {
	etcd := startEtcd(t)
	other := newClient(t, etcd.Endpoint())
	h := &held{caught: make(chan struct{}, 1), pass: make(chan struct{})}
	w := startWatch(t, newMeddledClient(t, etcd.Endpoint(), h.meddle, nil))
	w.Follow("k")
	locker := leases.NewLocker(other)
	first := acquire(t, locker, "k")
	untilHolder(t, w, "k", first.Token())
	h.closed.Store(true)
	if _, err := other.Revoke(t.Context(), first.ID()); err != nil {
		t.Fatal(err)
	}
	wait(t, "the free lock to be looked at", h.caught)
	free := time.Now()
	next := acquire(t, locker, "k")
	poll(t, "the watch has told of the next holder", func() bool {
		age, ok := w.Age()
		return ok && age < time.Since(free)
	})
	close(h.pass)
	untilHolder(t, w, "k", next.Token())
}

// While locks can't be looked at nobody waits for a look, however many are due.
func TestWatch_SeenWhileAway(t *testing.T) {
	etcd := startEtcd(t)
	var reads atomic.Int64
	stuck := func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		if _, looks := req.(*pb.TxnRequest); looks && reads.Add(1) > 1 {
			<-ctx.Done()
		}
		return status.Error(codes.DataLoss, "a test")
	}
	w := leases.NewWatch(newMeddledClient(t, etcd.Endpoint(), stuck, nil))
	w.LookTimeout = patience
	key := func(i int) string { return fmt.Sprint("k", i) }
	const many = 200
	for i := range many {
		w.Follow(key(i))
	}
	run(t, w)
	ctx := testContext(t)
	for i := range many {
		if _, known := w.Seen(ctx, key(i)); known {
			t.Errorf("%s is known", key(i))
		}
	}
	if ctx.Err() != nil {
		t.Error("a lock that can't be looked at was waited for")
	}
}
