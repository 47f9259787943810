package child_test

import (
	"os/exec"
	"syscall"
	"testing"

	"github.com/fenceproxy/fenceproxy/testharness/child"
	"github.com/fenceproxy/fenceproxy/testharness/poll"
)

// start starts a process that does nothing until the test ends.
func start(t *testing.T) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("sleep", "600")
	cmd.SysProcAttr = child.Attributes()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd
}

func TestStopped(t *testing.T) {
	cmd := start(t)
	is := func(want bool) func() bool {
		return func() bool {
			got, err := child.Stopped(cmd.Process.Pid)
			if err != nil {
				t.Fatal(err)
			}
			return got == want
		}
	}
	poll.Until(t, "that it runs", is(false))
	_ = cmd.Process.Signal(syscall.SIGSTOP)
	poll.Until(t, "that it has stopped", is(true))
	_ = cmd.Process.Signal(syscall.SIGCONT)
	poll.Until(t, "that it runs again", is(false))
	if _, err := child.Stopped(1 << 30); err == nil {
		t.Error("got nil, want an error for a process that isn't there")
	}
}
