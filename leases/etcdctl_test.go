package leases_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fenceproxy/fenceproxy/fencing"
	"github.com/fenceproxy/fenceproxy/leases"
	"github.com/fenceproxy/fenceproxy/testharness/child"
	"github.com/fenceproxy/fenceproxy/testharness/etcdtest"
)

// An etcdctlLock is a running `etcdctl lock KEY CMD`, whose CMD says what it
// was given and lasts until it is told to end.
type etcdctlLock struct {
	t    testing.TB
	cmd  *exec.Cmd
	out  etcdtest.Log
	flag string // a file that CMD lives as long as
	done chan struct{}
}

func startEtcdctlLock(t testing.TB, endpoint, key string) *etcdctlLock {
	t.Helper()
	program, err := exec.LookPath("etcdctl")
	if err != nil {
		t.Fatal("etcdctl is missing, which this test takes locks with: install Debian's package etcd-client, or etcdctl 3.4 or newer from https://etcd.io, and put it on PATH; `make setup` does where it can")
	}
	l := &etcdctlLock{t: t, flag: filepath.Join(t.TempDir(), "flag"), done: make(chan struct{})}
	if err := os.WriteFile(l.flag, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	const command = `echo "$ETCD_LOCK_KEY $ETCD_LOCK_REV"; while [ -e "$0" ] && kill -0 $PPID; do sleep 0.01; done`
	l.cmd = exec.Command(program, "--endpoints", endpoint, "lock", "--", leases.LockPrefix(leases.DefaultPrefix, key), "sh", "-c", command, l.flag)
	l.cmd.Stdout, l.cmd.Stderr = &l.out, &l.out
	l.cmd.SysProcAttr = child.Attributes()
	if err := l.cmd.Start(); err != nil {
		t.Fatalf("start etcdctl: %v", err)
	}
	go func() {
		defer close(l.done)
		_ = l.cmd.Wait() // its status is in ProcessState
	}()
	t.Cleanup(func() {
		os.Remove(l.flag)
		wait(t, "etcdctl to end", l.done)
	})
	return l
}

// held waits for CMD's start and returns ETCD_LOCK_KEY and ETCD_LOCK_REV.
func (l *etcdctlLock) held() (lockKey string, revision fencing.Token) {
	l.t.Helper()
	poll(l.t, "etcdctl's command to start", func() bool { return strings.HasSuffix(l.out.String(), "\n") })
	lockKey, number, _ := strings.Cut(strings.TrimSpace(l.out.String()), " ")
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil {
		l.t.Fatalf("etcdctl said %q", l.out.String())
	}
	return lockKey, fencing.Token(n)
}

// release ends CMD, and with it etcdctl and its hold.
func (l *etcdctlLock) release() {
	l.t.Helper()
	if err := os.Remove(l.flag); err != nil {
		l.t.Fatal(err)
	}
	wait(l.t, "etcdctl to end", l.done)
	if code := l.cmd.ProcessState.ExitCode(); code != 0 {
		l.t.Errorf("etcdctl: got exit %d, want 0: %s", code, l.out.String())
	}
}

// What etcdctl holds, a Locker waits for.
func TestLocker_EtcdctlHolds(t *testing.T) {
	etcd := startEtcd(t)
	client := newClient(t, etcd.Endpoint())
	locker := leases.NewLocker(client)
	for _, key := range []string{"order:8472", "a/b", "daily report"} {
		t.Run(key, func(t *testing.T) {
			ctx := testContext(t)
			theirs := startEtcdctlLock(t, etcd.Endpoint(), key)
			lockKey, _ := theirs.held()
			token := createRevision(t, client, lockKey)
			if _, err := leases.NewAuthority(client).Verify(ctx, key, token); err != nil {
				t.Errorf("etcdctl's create revision, %d: %v", token, err)
			}
			_, err := locker.TryAcquire(ctx, key)
			if !errors.Is(err, leases.ErrTaken) {
				t.Errorf("TryAcquire: got %v, want ErrTaken", err)
			}
			contains(t, "error", fmt.Sprint(err), "held by "+lockKey, "token "+token.String())

			waiting := acquireLater(t, ctx, locker, client, key, 2)
			theirs.release()
			ours := wait(t, "Acquire after etcdctl's end", waiting)
			if ours.err != nil {
				t.Fatalf("Acquire: %v", ours.err)
			}
			if ours.lease.Token() <= token {
				t.Errorf("tokens: got %d after %d", ours.lease.Token(), token)
			}
			if err := ours.lease.Release(ctx); err != nil {
				t.Errorf("Release: %v", err)
			}
		})
	}
}

// What a Lease holds, etcdctl waits for; and then what it exports as
// ETCD_LOCK_REV is a later revision than its token, which the refusal tells.
func TestAuthority_Verify_EtcdctlRevision(t *testing.T) {
	etcd := startEtcd(t)
	client := newClient(t, etcd.Endpoint())
	authority := leases.NewAuthority(client)
	ctx := testContext(t)
	const key = "order:8472"
	ours := acquire(t, leases.NewLocker(client), key)
	theirs := startEtcdctlLock(t, etcd.Endpoint(), key)
	poll(t, "etcdctl to get in line", func() bool {
		return keysUnder(t, client, leases.LockPrefix(leases.DefaultPrefix, key)+"/") == 2
	})
	line, err := client.Get(ctx, leases.LockPrefix(leases.DefaultPrefix, key)+"/", clientv3.WithLastCreate()...)
	if err != nil || len(line.Kvs) != 1 {
		t.Fatalf("read the line: %v, %v", line, err)
	}
	token := fencing.Token(line.Kvs[0].CreateRevision)
	_, err = authority.Verify(ctx, key, token)
	refused(t, err, fencing.CodeNotHolder, key, token)
	if got := theirs.out.String(); got != "" {
		t.Errorf("etcdctl's command runs while the lock is held: %s", got)
	}

	if err := ours.Release(ctx); err != nil {
		t.Fatalf("Release: %v", err)
	}
	lockKey, revision := theirs.held()
	if got := createRevision(t, client, lockKey); got != token {
		t.Errorf("token: got %d, want that of the waiter, %d", got, token)
	}
	if revision <= token {
		t.Fatalf("ETCD_LOCK_REV %d is not above the create revision %d: this proves nothing", revision, token)
	}
	_, err = authority.Verify(ctx, key, revision)
	refusal := refused(t, err, fencing.CodeNotHolder, key, revision)
	contains(t, "hint", refusal.Hint, "ETCD_LOCK_REV", lockKey, "create revision: "+token.String())
	if _, err := authority.Verify(ctx, key, token); err != nil {
		t.Errorf("the create revision: %v", err)
	}
	theirs.release()
}
