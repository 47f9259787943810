package embedded_test

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.etcd.io/etcd/server/v3/embed"

	"github.com/fenceproxy/fenceproxy/leases"
	"github.com/fenceproxy/fenceproxy/leases/embedded"
	"github.com/fenceproxy/fenceproxy/testharness/etcdtest"
)

// take takes a lock and asks about it: the quickest way to hear the
// cluster's ID and its revision.
func take(t *testing.T, etcd *embedded.Etcd) (cluster string, revision int64) {
	t.Helper()
	client, lease := acquire(t, etcd, "k")
	got, err := leases.NewAuthority(client).Verify(testContext(t), "k", lease.Token())
	if err != nil {
		t.Fatalf("Verify: %v", err)
	}
	if err := lease.Release(testContext(t)); err != nil {
		t.Fatalf("Release: %v", err)
	}
	return got.Cluster, got.Revision
}

// Tokens go on growing over a restart on the same folder, and another folder
// is another history, which must not look like the same.
func TestEtcd_Start(t *testing.T) {
	checkLeaks(t)
	dir := t.TempDir()
	first := etcdtest.On(t, dir, "127.0.0.1:0")
	cluster, revision := take(t, first)
	first.Close()
	first.Close()

	again := etcdtest.On(t, dir, strings.TrimPrefix(first.Endpoint(), "http://"))
	if got, want := again.Endpoint(), first.Endpoint(); got != want {
		t.Errorf("endpoint: got %s, want %s", got, want)
	}
	gotCluster, gotRevision := take(t, again)
	if gotCluster != cluster {
		t.Errorf("cluster after a restart: got %s, want %s", gotCluster, cluster)
	}
	if gotRevision <= revision {
		t.Errorf("revision after a restart: got %d, want more than %d", gotRevision, revision)
	}

	other := etcdtest.On(t, t.TempDir(), "127.0.0.1:0")
	if otherCluster, _ := take(t, other); otherCluster == cluster {
		t.Errorf("two folders have the same cluster ID, %s", cluster)
	}
}

func TestEtcd_Start_DirLocked(t *testing.T) {
	t.Run("by an Etcd", func(t *testing.T) {
		checkLeaks(t)
		dir := t.TempDir()
		running := etcdtest.On(t, dir, "127.0.0.1:0")
		refuseDir(t, dir)
		running.Close()
		etcdtest.On(t, dir, "127.0.0.1:0")
	})
	t.Run("by another etcd", func(t *testing.T) {
		checkLeaks(t)
		dir := t.TempDir()
		foreign, err := embed.StartEtcd(etcdtest.Foreign(dir))
		if err != nil {
			t.Fatalf("start a foreign etcd: %v", err)
		}
		t.Cleanup(foreign.Close)
		wait(t, "a foreign etcd to be ready", foreign.Server.ReadyNotify())
		refuseDir(t, dir)
		refuseDir(t, dir)
	})
}

func refuseDir(t *testing.T, dir string) {
	t.Helper()
	second := embedded.New(dir)
	second.Addr = "127.0.0.1:0"
	err := second.Start(testContext(t))
	if !errors.Is(err, embedded.ErrDirLocked) {
		second.Close()
		t.Fatalf("second etcd on a folder: got %v, want ErrDirLocked", err)
	}
	if !strings.Contains(err.Error(), dir) {
		t.Errorf("error %q does not name the folder", err)
	}
	second.Close()
}

func TestEtcd_Start_AddrInUse(t *testing.T) {
	checkLeaks(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("listen: %v", err)
	}
	dir, addr := t.TempDir(), listener.Addr().String()
	etcd := embedded.New(dir)
	etcd.Addr = addr
	err = etcd.Start(testContext(t))
	if !errors.Is(err, embedded.ErrAddrInUse) || !strings.Contains(err.Error(), addr) {
		t.Errorf("got %v, want ErrAddrInUse with the address", err)
	}
	listener.Close()
	etcdtest.On(t, dir, addr) // the folder is free again
}

func TestEtcd_Start_Refuses(t *testing.T) {
	checkLeaks(t)
	for _, addr := range []string{"0.0.0.0:0", ":2379", "192.0.2.1:2379", "example.com:2379", "2379", ""} {
		dir := filepath.Join(t.TempDir(), "data")
		etcd := embedded.New(dir)
		etcd.Addr = addr
		if err := etcd.Start(testContext(t)); !errors.Is(err, leases.ErrInvalid) {
			t.Errorf("address %q: got %v, want ErrInvalid", addr, err)
		}
		if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("address %q: the folder was made", addr)
		}
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatalf("write file: %v", err)
	}
	etcd := embedded.New(file)
	etcd.Addr = "127.0.0.1:0"
	if err := etcd.Start(testContext(t)); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("a file as the folder: got %v, want an error that names it", err)
	}
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	etcd = embedded.New(t.TempDir())
	etcd.Addr = "127.0.0.1:0"
	if err := etcd.Start(gone); err != nil && !errors.Is(err, context.Canceled) {
		t.Errorf("an ended context: got %v, want context.Canceled", err)
	}
	etcd.Close()
}

// Close doesn't wait for those who watch.
func TestEtcd_Close_CutsOff(t *testing.T) {
	checkLeaks(t)
	etcd := etcdtest.On(t, t.TempDir(), "127.0.0.1:0")
	_, lease := acquire(t, etcd, "k")
	done := make(chan struct{})
	go func() {
		etcd.Close()
		close(done)
	}()
	wait(t, "Close", done)
	if err := lease.Err(); err != nil {
		t.Errorf("the holder, for now: %v", err)
	}
}
