package fencepgx_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fenceproxy/fenceproxy/leases"
	"github.com/fenceproxy/fenceproxy/leases/fencepgx"
)

// A pool for all of a program, and work under a lock.
func Example() {
	ctx := context.Background()
	etcd, err := leases.NewClient([]string{etcdURL}, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer etcd.Close()
	config, err := pgxpool.ParseConfig(proxyDSN)
	if err != nil {
		log.Fatal(err)
	}
	fencepgx.Configure(config)
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()

	err = fencepgx.Do(ctx, leases.NewLocker(etcd), "order:8472", func(ctx context.Context) error {
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "INSERT INTO item VALUES ('of order 8472')")
			return err
		})
	})
	fmt.Println("lock lost:", errors.Is(err, leases.ErrLost), "error:", err)
	// Output: lock lost: false error: <nil>
}

// A job that another machine may have begun already.
func ExampleUnder() {
	ctx := context.Background()
	etcd, err := leases.NewClient([]string{etcdURL}, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer etcd.Close()
	conn, err := pgx.Connect(ctx, proxyDSN)
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close(ctx)

	lease, err := leases.NewLocker(etcd).TryAcquire(ctx, "nightly")
	if errors.Is(err, leases.ErrTaken) {
		return
	}
	if err != nil {
		log.Fatal(err)
	}
	err = fencepgx.Under(ctx, lease, func(ctx context.Context) error {
		if err := fencepgx.Tag(ctx, conn); err != nil {
			return err
		}
		_, err := conn.Exec(ctx, "INSERT INTO item VALUES ('of the night')")
		return err
	})
	fmt.Println(err)
	// Output: <nil>
}

// Behind a pooler that shares sessions, each transaction is tagged.
func ExampleTagTx() {
	ctx := context.Background()
	etcd, err := leases.NewClient([]string{etcdURL}, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer etcd.Close()
	pool, err := pgxpool.New(ctx, proxyDSN)
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()

	err = fencepgx.Do(ctx, leases.NewLocker(etcd), "order:8473", func(ctx context.Context) error {
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			if err := fencepgx.TagTx(ctx, tx); err != nil {
				return err
			}
			_, err := tx.Exec(ctx, "INSERT INTO item VALUES ('of order 8473')")
			return err
		})
	})
	fmt.Println(err)
	// Output: <nil>
}
