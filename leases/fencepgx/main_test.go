package fencepgx_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fenceproxy/fenceproxy/leases"
	"github.com/fenceproxy/fenceproxy/leases/fencepgx"
	"github.com/fenceproxy/fenceproxy/testharness/fault"
	"github.com/fenceproxy/fenceproxy/testharness/stack"
)

// What tests and examples work on: an etcd, a PostgreSQL with table item, and a
// proxy in front of it.
var (
	servers  *stack.Stack
	etcdURL  string
	proxyDSN string
)

func TestMain(m *testing.M) { os.Exit(serveAndRun(m)) }

func serveAndRun(m *testing.M) int {
	ctx := context.Background()
	if err := serve(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer servers.Close()
	return m.Run()
}

func serve(ctx context.Context) (err error) {
	if servers, err = stack.Start(ctx, stack.Options{}); err != nil {
		return err
	}
	etcdURL = servers.Etcd.Endpoint()
	if err := servers.CreateDatabase(ctx, "app"); err != nil {
		return err
	}
	if err := servers.Install(ctx, "app"); err != nil {
		return err
	}
	proxy, err := servers.StartProxy("app", "", nil)
	if err != nil {
		return err
	}
	proxyDSN = servers.ProxyDSN(proxy.Addr(), stack.RoleApp, "app")
	conn, err := pgx.Connect(ctx, proxyDSN)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, "CREATE TABLE item (name text PRIMARY KEY)")
	return err
}

// newPool returns a pool of one connection, so that it is the same each time.
func newPool(t testing.TB, set func(*pgxpool.Config)) *pgxpool.Pool {
	t.Helper()
	config, err := pgxpool.ParseConfig(proxyDSN)
	if err != nil {
		t.Fatal(err)
	}
	config.MaxConns = 1
	if set != nil {
		set(config)
	}
	fencepgx.Configure(config)
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// newDeaf returns a Locker that hears nothing from etcd any more once deafen was
// called: it goes on to believe what it believed, up to its lease's end.
func newDeaf(t testing.TB) (locker *leases.Locker, deafen func()) {
	t.Helper()
	link, err := fault.NewLink(strings.TrimPrefix(etcdURL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(link.Close)
	client, err := leases.NewClient([]string{"http://" + link.Addr()}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	locker = leases.NewLocker(client)
	locker.RequestTimeout = time.Second
	return locker, func() { link.Set(fault.Cut) }
}

// lose takes the lock of key away from whoever holds it, and gives it to somebody
// who claims it through the proxy.
func lose(t testing.TB, key string) {
	t.Helper()
	ctx := context.Background()
	if _, err := servers.Client.Delete(ctx, leases.LockPrefix(leases.DefaultPrefix, key)+"/", clientv3.WithPrefix()); err != nil {
		t.Fatal(err)
	}
	next, err := leases.NewLocker(servers.Client).TryAcquire(ctx, key)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = next.Release(ctx) })
	conn := stack.Connect(t, proxyDSN, "fence.key", key, "fence.token", next.Token().String())
	if _, err := conn.Exec(ctx, "SELECT"); err != nil {
		t.Fatalf("claim as the next holder: %v", err)
	}
}

// one is the one text that a query returns.
func one(ctx context.Context, t testing.TB, db interface {
	QueryRow(context.Context, string, ...any) pgx.Row
}, sql string, args ...any) (text string) {
	t.Helper()
	if err := db.QueryRow(ctx, sql, args...).Scan(&text); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return text
}

// there says whether a row was written.
func there(t testing.TB, name string) bool {
	t.Helper()
	conn := stack.Connect(t, servers.DSN(stack.RoleApp, "app"))
	return one(context.Background(), t, conn, "SELECT count(*)::text FROM item WHERE name = $1", name) == "1"
}

const (
	insert = "INSERT INTO item VALUES ($1)"
	tag    = "SELECT coalesce(current_setting('fence.tokens', true), '')"
	pid    = "SELECT pg_backend_pid()::text"
)
