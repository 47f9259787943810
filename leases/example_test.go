package leases_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/fenceproxy/fenceproxy/leases"
	"github.com/fenceproxy/fenceproxy/leases/embedded"
)

// A lock is taken, another holder is told who has it, and it is given back. The
// token is what sessions of fenceproxy present.
func Example() {
	ctx := context.Background()
	etcd, stop := startExampleEtcd(ctx) // or the URLs of a cluster
	defer stop()
	client, err := leases.NewClient([]string{etcd}, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	locker := leases.NewLocker(client)
	lease, err := locker.TryAcquire(ctx, "order:8472")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("fence.key=%s fence.token=%v\n", lease.Key(), lease.Token())

	if _, err := locker.TryAcquire(ctx, "order:8472"); errors.Is(err, leases.ErrTaken) {
		fmt.Println("somebody holds it")
	}
	if err := lease.Release(ctx); err != nil {
		log.Fatal(err)
	}
	// Output:
	// fence.key=order:8472 fence.token=2
	// somebody holds it
}

// Acquire waits in line until its context ends; the lock may then outlive that
// context.
func ExampleLocker_Acquire() {
	ctx := context.Background()
	etcd, stop := startExampleEtcd(ctx)
	defer stop()
	client, err := leases.NewClient([]string{etcd}, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	locker := leases.NewLocker(client)

	first, err := locker.Acquire(ctx, "report")
	if err != nil {
		log.Fatal(err)
	}
	waiting, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
	defer cancel()
	switch _, err := locker.Acquire(waiting, "report"); {
	case errors.Is(err, leases.ErrTaken):
		fmt.Println("taken all the time")
	case errors.Is(err, leases.ErrUnavailable):
		fmt.Println("etcd can't be reached")
	}

	if err := first.Release(ctx); err != nil {
		log.Fatal(err)
	}
	second, err := locker.Acquire(ctx, "report")
	if err != nil {
		log.Fatal(err)
	}
	defer second.Release(ctx)
	fmt.Println("a later holder's token is higher:", second.Token() > first.Token())
	// Output:
	// taken all the time
	// a later holder's token is higher: true
}

// Work under a lock runs under its context, which ends when the lock is lost, and
// in which other calls end too.
func ExampleLease_Context() {
	ctx := context.Background()
	etcd, stop := startExampleEtcd(ctx)
	defer stop()
	client, err := leases.NewClient([]string{etcd}, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	lease, err := leases.NewLocker(client).TryAcquire(ctx, "report")
	if err != nil {
		log.Fatal(err)
	}

	if _, err := client.Delete(ctx, lease.LockKey()); err != nil { // an administrator takes it away
		log.Fatal(err)
	}
	<-lease.Context().Done()
	fmt.Println("lost:", errors.Is(context.Cause(lease.Context()), leases.ErrLost))
	fmt.Println("lost:", errors.Is(lease.Release(ctx), leases.ErrLost))
	// Output:
	// lost: true
	// lost: true
}

// Holders in other languages use etcd's own locks under this name.
func ExampleLockPrefix() {
	fmt.Println(leases.LockPrefix(leases.DefaultPrefix, "order:8472"))
	fmt.Println(leases.LockPrefix(leases.DefaultPrefix, "orders/8472"))
	// Output:
	// /fenceproxy/locks/order:8472
	// /fenceproxy/locks/orders%2F8472
}

// startExampleEtcd starts an etcd on a free port and returns its URL.
func startExampleEtcd(ctx context.Context) (url string, stop func()) {
	dir, err := os.MkdirTemp("", "fenceproxy-example-")
	if err != nil {
		log.Fatal(err)
	}
	etcd := embedded.New(dir)
	etcd.Addr = "127.0.0.1:0"
	if err := etcd.Start(ctx); err != nil {
		log.Fatal(err)
	}
	return etcd.Endpoint(), func() {
		etcd.Close()
		_ = os.RemoveAll(dir)
	}
}
