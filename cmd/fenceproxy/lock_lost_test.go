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
	"github.com/fenceproxy/fenceproxy/testharness/etcdtest"
	"github.com/fenceproxy/fenceproxy/testharness/poll"
)

// lose takes a lock away from its holder, as an administrator might.
func lose(t testing.TB, client *clientv3.Client, key string) {
	t.Helper()
	if _, err := client.Delete(context.Background(), leases.LockPrefix(leases.DefaultPrefix, key)+"/", clientv3.WithPrefix()); err != nil {
		t.Fatal(err)
	}
}

// pidIn reads a process id; 0 while the file isn't there.
func pidIn(t testing.TB, path string) int {
	t.Helper()
	text, _ := os.ReadFile(path)
	pid, _ := strconv.Atoi(strings.TrimSpace(string(text)))
	return pid
}

func TestLock_LossEndsTheWholeGroup(t *testing.T) {
	for name, script := range map[string]string{
		// A shell with a child of its own, both ended by SIGTERM.
		"obedient": `sleep 600 & echo $! >"$0.new"; mv "$0.new" "$0"; wait`,
		// The shell goes at SIGTERM, its child only at SIGKILL.
		"stubborn child": `(trap '' TERM; exec sleep 600) & echo $! >"$0.new"; mv "$0.new" "$0"; wait`,
		// Nobody goes by himself.
		"stubborn": `trap '' TERM; sleep 600 & echo $! >"$0.new"; mv "$0.new" "$0"; wait`,
	} {
		t.Run(name, func(t *testing.T) {
			etcd := etcdtest.New(t)
			client := etcdClient(t, etcd)
			path := filepath.Join(t.TempDir(), "pid")
			p := start(t, nil, lockArgs(etcd, "job:1", "--grace", "500ms", "--", "sh", "-c", script, path)...)
			poll.Until(t, "the command's child", func() bool { return pidIn(t, path) > 0 })
			lose(t, client, "job:1")
			if code := p.wait(); code != 1 {
				t.Errorf("got exit %d, want 1", code)
			}
			if said := p.stderr.String(); !strings.Contains(said, "lock is lost") || strings.Count(said, "\n") != 1 {
				t.Errorf("got %q, want one line that the lock is lost", said)
			}
			pid := pidIn(t, path)
			poll.Until(t, "the end of the command's child", func() bool { return gone(pid) })
		})
	}
}

// gone tells whether a process has ended; one that nobody has waited for yet
// counts.
func gone(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return true
	}
	state := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))[0]
	return state == "Z" || state == "X"
}

func TestLock_LossWhenEtcdIsAway(t *testing.T) {
	etcd := etcdtest.New(t)
	path := filepath.Join(t.TempDir(), "pid")
	p := start(t, nil, lockArgs(etcd, "job:1", "--ttl", "2s", "--", "sh", "-c", `echo $$ >"$0.new"; mv "$0.new" "$0"; exec sleep 600`, path)...)
	poll.Until(t, "the command", func() bool { return pidIn(t, path) > 0 })
	etcd.Close()
	if code := p.wait(); code != 1 {
		t.Errorf("got exit %d, want 1: %s", code, p.stderr.String())
	}
	if said := p.stderr.String(); !strings.Contains(said, "not renewed in time") {
		t.Errorf("got %q, want the cause", said)
	}
}

// What becomes of a command that would like to say something at SIGTERM.
func TestLock_OnLost(t *testing.T) {
	script := `trap 'echo asked; exit 33' TERM; echo $$ >"$0.new"; mv "$0.new" "$0"; until test -e "$0.end"; do sleep 0.05; done; exit "$1"`
	for name, c := range map[string]struct {
		flags   []string
		own     string // the command's exit status if it isn't ended
		code    int
		asked   bool
		signals bool // SIGTERM after the loss
	}{
		"by default":       {nil, "0", 1, true, false},
		"term":             {[]string{"--on-lost", "term"}, "0", 1, true, false},
		"kill":             {[]string{"--on-lost", "kill", "--grace", "1h"}, "0", 1, false, false},
		"ignore":           {[]string{"--on-lost", "ignore"}, "0", 0, false, false},
		"ignore, fails":    {[]string{"--on-lost", "ignore"}, "7", 7, false, false},
		"ignore, signaled": {[]string{"--on-lost", "ignore"}, "0", 33, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			etcd := etcdtest.New(t)
			client := etcdClient(t, etcd)
			path := filepath.Join(t.TempDir(), "pid")
			p := start(t, nil, lockArgs(etcd, "job:1", append(c.flags, "--", "sh", "-c", script, path, c.own)...)...)
			poll.Until(t, "the command", func() bool { return pidIn(t, path) > 0 })
			lose(t, client, "job:1")
			poll.Until(t, "the word of the loss", func() bool { return strings.Contains(p.stderr.String(), "lock is lost") })
			if c.signals {
				p.signal(syscall.SIGTERM)
			} else if strings.HasPrefix(name, "ignore") {
				if err := os.WriteFile(path+".end", nil, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if code := p.wait(); code != c.code {
				t.Errorf("got exit %d, want %d: %s", code, c.code, p.stderr.String())
			}
			if asked := strings.Contains(p.stdout.String(), "asked"); asked != c.asked {
				t.Errorf("asked to end: got %v, want %v", asked, c.asked)
			}
			if said := p.stderr.String(); strings.Count(said, "fenceproxy: ") != 1 {
				t.Errorf("got %q, want one line of ours", said)
			}
		})
	}
}

// A command is ended although nobody reads any more what there is to say.
func TestLock_LossWithoutReader(t *testing.T) {
	etcd := etcdtest.New(t)
	client := etcdClient(t, etcd)
	path := filepath.Join(t.TempDir(), "pid")
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer writer.Close()
	cmd := exec.Command(os.Args[0], lockArgs(etcd, "job:1", "--", "sh", "-c", `echo $$ >"$0.new"; mv "$0.new" "$0"; exec sleep 600`, path)...)
	cmd.Env = append(os.Environ(), asProgram+"=1")
	cmd.Stderr = writer
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	poll.Until(t, "the command", func() bool { return pidIn(t, path) > 0 })
	reader.Close()
	lose(t, client, "job:1")
	_ = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != 1 {
		t.Errorf("got %v, want exit status 1", cmd.ProcessState)
	}
	pid := pidIn(t, path)
	if !gone(pid) {
		t.Error("the command goes on without its lock")
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
}
