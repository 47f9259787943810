package stack_test

import (
	"context"
	"net"
	"os"
	"testing"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"github.com/fenceproxy/fenceproxy/fencing"
	"github.com/fenceproxy/fenceproxy/leases"
	"github.com/fenceproxy/fenceproxy/testharness/stack"
)

func TestStack_FencedWrite(t *testing.T) {
	s := stack.New(t, "app")
	p, err := s.StartProxy("app", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	lease, err := leases.NewLocker(s.Client).TryAcquire(ctx, "order:1")
	if err != nil {
		t.Fatal(err)
	}
	defer lease.Release(ctx)
	config, err := pgx.ParseConfig(s.ProxyDSN(p.Addr(), stack.RoleApp, "app"))
	if err != nil {
		t.Fatal(err)
	}
	config.RuntimeParams[fencing.SettingKey] = lease.Key()
	config.RuntimeParams[fencing.SettingToken] = lease.Token().String()
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	if _, err := conn.Exec(ctx, "CREATE TABLE t (i int)"); err != nil {
		t.Errorf("got %v, want a holder's write to be accepted", err)
	}
	// The application's role can't touch a mark.
	if _, err := conn.Exec(ctx, "UPDATE fence.mark SET token = 1"); err == nil {
		t.Error("got nil, want no permission on the marks")
	}
}

func TestStack_Close(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	ctx := context.Background()
	s, err := stack.Start(ctx, stack.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.CreateDatabase(ctx, "app"); err != nil {
		t.Fatal(err)
	}
	p, err := s.StartProxy("app", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	addrs := []string{p.Addr(), s.Postgres.Addr(), s.Etcd.Endpoint()[len("http://"):]}
	data := s.Postgres.DataDir()
	for range 2 {
		if err := s.Close(); err != nil {
			t.Errorf("got %v, want nil", err)
		}
	}
	for _, addr := range addrs {
		if conn, err := net.Dial("tcp", addr); err == nil {
			conn.Close()
			t.Errorf("something still listens at %s", addr)
		}
	}
	if _, err := os.Stat(data); !os.IsNotExist(err) {
		t.Errorf("%s: got %v, want it removed", data, err)
	}
}
