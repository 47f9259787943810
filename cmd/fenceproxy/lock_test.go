package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fenceproxy/fenceproxy/leases"
	"github.com/fenceproxy/fenceproxy/leases/embedded"
	"github.com/fenceproxy/fenceproxy/testharness/etcdtest"
	"github.com/fenceproxy/fenceproxy/testharness/poll"
)

// lockArgs is a command line of lock on etcd.
func lockArgs(etcd *embedded.Etcd, key string, rest ...string) []string {
	return append([]string{"lock", key, "--etcd", etcd.Endpoint()}, rest...)
}

func etcdClient(t testing.TB, etcd *embedded.Etcd) *clientv3.Client {
	t.Helper()
	client, err := leases.NewClient([]string{etcd.Endpoint()}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return client
}

// holderKeys are the etcd keys in line for a lock.
func holderKeys(t testing.TB, client *clientv3.Client, key string) []string {
	t.Helper()
	got, err := client.Get(context.Background(), leases.LockPrefix(leases.DefaultPrefix, key)+"/", clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	var keys []string
	for _, kv := range got.Kvs {
		keys = append(keys, fmt.Sprintf("%s %d", kv.Key, kv.CreateRevision))
	}
	return keys
}

// hold takes the lock of key as another client would.
func hold(t testing.TB, client *clientv3.Client, key string) *leases.Lease {
	t.Helper()
	lease, err := leases.NewLocker(client).TryAcquire(context.Background(), key)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = lease.Release(context.Background()) })
	return lease
}

func TestLock_ExitStatus(t *testing.T) {
	etcd := etcdtest.New(t)
	client := etcdClient(t, etcd)
	for name, c := range map[string]struct {
		argv []string
		want int
	}{
		"success":        {[]string{"true"}, 0},
		"failure":        {[]string{"sh", "-c", "exit 7"}, 7},
		"signal":         {[]string{"sh", "-c", "kill -KILL $$"}, 128 + 9},
		"not found":      {[]string{"no-such-command-anywhere"}, 127},
		"no such path":   {[]string{"/no/such/command"}, 127},
		"not executable": {[]string{"/etc/passwd"}, 126},
		"own flags":      {[]string{"sh", "-c", `[ "$1" = --ttl ]`, "sh", "--ttl"}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			code, stdout, stderr := program(t, nil, lockArgs(etcd, "job:1", append([]string{"--"}, c.argv...)...)...)
			if code != c.want || stdout != "" {
				t.Errorf("got exit %d, stdout %q, stderr %q, want exit %d", code, stdout, stderr, c.want)
			}
			if left := holderKeys(t, client, "job:1"); len(left) > 0 {
				t.Errorf("got %v left in etcd, want the lock released", left)
			}
		})
	}
}

func TestLock_Environment(t *testing.T) {
	etcd := etcdtest.New(t)
	key := `a key/with \ and 'quotes'`
	env := []string{"PGOPTIONS=-c statement_timeout=5s", "FENCE_KEY=old", "FENCE_TOKEN=1"}
	client := etcdClient(t, etcd)
	script := `printf '%s\n' "$FENCE_KEY" "$FENCE_TOKEN" "$PGOPTIONS"; cat`
	p := start(t, env, lockArgs(etcd, key, "--", "sh", "-c", script)...)
	if code := p.wait(); code != 0 {
		t.Fatalf("got exit %d: %s", code, p.stderr.String())
	}
	lines := strings.Split(p.stdout.String(), "\n")
	if lines[0] != key {
		t.Errorf("FENCE_KEY: got %q, want %q", lines[0], key)
	}
	// The only key ever put into this etcd was created at revision 2.
	if lines[1] != "2" {
		t.Errorf("FENCE_TOKEN: got %q, want 2", lines[1])
	}
	want := `-c statement_timeout=5s -c fence.key=a\ key/with\ \\\ and\ 'quotes' -c fence.token=2`
	if lines[2] != want {
		t.Errorf("PGOPTIONS: got %q, want %q", lines[2], want)
	}
	if left := holderKeys(t, client, key); len(left) > 0 {
		t.Errorf("got %v left in etcd", left)
	}
}

func TestLock_HoldsWhileCommandRuns(t *testing.T) {
	etcd := etcdtest.New(t)
	client := etcdClient(t, etcd)
	marker := filepath.Join(t.TempDir(), "token")
	p := start(t, nil, lockArgs(etcd, "job:1", "--ttl", "2s", "--", "sh", "-c", `echo $FENCE_TOKEN > "$0.new"; mv "$0.new" "$0"; exec sleep 60`, marker)...)
	var token string
	poll.Until(t, "the command's start", func() bool {
		text, err := os.ReadFile(marker)
		token = strings.TrimSpace(string(text))
		return err == nil
	})
	keys := holderKeys(t, client, "job:1")
	if len(keys) != 1 || !strings.HasSuffix(keys[0], " "+token) {
		t.Errorf("got %v in etcd, want one key created at %s", keys, token)
	}
	code, _, stderr := program(t, nil, lockArgs(etcd, "job:1", "--", "true")...)
	if code != 1 || !strings.Contains(stderr, "lock is taken") || strings.Count(stderr, "\n") != 1 {
		t.Errorf("second holder: got exit %d, %q, want 1 and one line that the lock is taken", code, stderr)
	}
	p.signal(syscall.SIGTERM)
	if code := p.wait(); code != 128+15 {
		t.Errorf("got exit %d, want that of a command ended by SIGTERM", code)
	}
	if left := holderKeys(t, client, "job:1"); len(left) > 0 {
		t.Errorf("got %v left in etcd, want the lock released", left)
	}
}

func TestLock_RenewsItsLease(t *testing.T) {
	etcd := etcdtest.New(t)
	// Twice the time to live; a lock that isn't renewed is lost on the way.
	code, _, stderr := program(t, nil, lockArgs(etcd, "job:1", "--ttl", "2s", "--", "sleep", "4")...)
	if code != 0 {
		t.Errorf("got exit %d: %s", code, stderr)
	}
}

func TestLock_Wait(t *testing.T) {
	etcd := etcdtest.New(t)
	client := etcdClient(t, etcd)
	lease := hold(t, client, "job:1")

	code, _, stderr := program(t, nil, lockArgs(etcd, "job:1", "--wait", "100ms", "--", "true")...)
	if code != 1 || !strings.Contains(stderr, "lock is taken") {
		t.Errorf("wait in vain: got exit %d, %q, want 1 and that the lock is taken", code, stderr)
	}

	p := start(t, nil, lockArgs(etcd, "job:1", "--wait", "1m", "--", "true")...)
	poll.Until(t, "a waiter", func() bool { return len(holderKeys(t, client, "job:1")) == 2 })
	if err := lease.Release(context.Background()); err != nil {
		t.Fatal(err)
	}
	if code := p.wait(); code != 0 {
		t.Errorf("got exit %d: %s", code, p.stderr.String())
	}
}

func TestLock_InterruptedWhileWaiting(t *testing.T) {
	etcd := etcdtest.New(t)
	client := etcdClient(t, etcd)
	hold(t, client, "job:1")
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP} {
		p := start(t, nil, lockArgs(etcd, "job:1", "--wait", "1m", "--", "true")...)
		poll.Until(t, "a waiter", func() bool { return len(holderKeys(t, client, "job:1")) == 2 })
		p.signal(sig)
		if code := p.wait(); code != 1 {
			t.Errorf("%v: got exit %d: %s", sig, code, p.stderr.String())
		}
		if left := holderKeys(t, client, "job:1"); len(left) != 1 {
			t.Errorf("%v: got %v in line, want the holder only", sig, left)
		}
	}
	p := start(t, nil, lockArgs(etcd, "job:1", "--wait", "1h", "--", "true")...)
	poll.Until(t, "a waiter", func() bool { return len(holderKeys(t, client, "job:1")) == 2 })
	p.signal(syscall.SIGQUIT)
	if code := p.wait(); code == 0 {
		t.Error("SIGQUIT: got exit 0")
	}
}

func TestLock_ForwardsSignals(t *testing.T) {
	etcd := etcdtest.New(t)
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2} {
		path := filepath.Join(t.TempDir(), "pid")
		script := `trap 'exit 33' INT TERM HUP QUIT USR1 USR2; echo $$ >"$0.new"; mv "$0.new" "$0"; while :; do sleep 0.05; done`
		p := start(t, nil, lockArgs(etcd, "job:1", "--", "sh", "-c", script, path)...)
		poll.Until(t, "the command", func() bool { return pidIn(t, path) > 0 })
		p.signal(sig)
		if code := p.wait(); code != 33 {
			t.Errorf("%v: got exit %d, want the command's own 33: %s", sig, code, p.stderr.String())
		}
	}
}

// A command reads what its caller sends.
func TestLock_StandardInput(t *testing.T) {
	etcd := etcdtest.New(t)
	cmd := exec.Command(os.Args[0], lockArgs(etcd, "job:1", "--", "cat")...)
	cmd.Env = append(os.Environ(), asProgram+"=1")
	cmd.Stdin = strings.NewReader("hello\n")
	if out, err := cmd.CombinedOutput(); err != nil || string(out) != "hello\n" {
		t.Errorf("got %q, %v, want what was sent", out, err)
	}
}

// A lock that nohup started outlives its terminal, and its command does.
func TestLock_HangUpIgnored(t *testing.T) {
	etcd := etcdtest.New(t)
	// The ignored signals as a mask, SIGHUP's bit being the lowest.
	args := lockArgs(etcd, "job:1", "--", "sed", "-n", `s/^SigIgn:.*\(.\)$/\1/p`, "/proc/self/status")
	for _, c := range []struct {
		trap string
		want int64
	}{{`trap "" HUP; `, 1}, {"", 0}} {
		cmd := exec.Command("sh", append([]string{"-c", c.trap + `exec "$0" "$@"`, os.Args[0]}, args...)...)
		cmd.Env = append(os.Environ(), asProgram+"=1")
		out, err := cmd.CombinedOutput()
		mask, parseErr := strconv.ParseInt(strings.TrimSpace(string(out)), 16, 8)
		if err != nil || parseErr != nil || mask&1 != c.want {
			t.Errorf("%q: got %s, %v, want SIGHUP's bit %d", c.trap, out, err, c.want)
		}
	}
}

func TestLock_EtcdUnreachable(t *testing.T) {
	for name, flags := range map[string][]string{"tries once": nil, "waits": {"--wait", "500ms"}} {
		t.Run(name, func(t *testing.T) {
			args := append([]string{"lock", "job:1", "--etcd", "http://127.0.0.1:1"}, flags...)
			code, _, stderr := program(t, nil, append(args, "--", "true")...)
			if code != 1 || strings.Count(stderr, "\n") != 1 {
				t.Errorf("got exit %d, %q, want 1 and one line", code, stderr)
			}
			for _, want := range []string{"etcd can't be reached", "http://127.0.0.1:1", "connection refused", "start it or mend --etcd"} {
				if !strings.Contains(stderr, want) {
					t.Errorf("got %q, want %q in it", stderr, want)
				}
			}
			if strings.Contains(stderr, "deadline") {
				t.Errorf("got %q, want the cause and not what came of it", stderr)
			}
		})
	}
}
