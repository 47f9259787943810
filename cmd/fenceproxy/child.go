package main

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// child is the command that runs while a lock is held. It is the leader of a
// process group of its own, so that all that it starts can be ended with it
// and nothing else is.
type child struct {
	pid  int
	tty  *os.File // the terminal that it was given, or nil
	done chan struct{}

	status syscall.WaitStatus // set once done is closed
}

// Exit statuses of a command that can't be started, as shells have them.
const (
	exitNotExecutable = 126
	exitNotFound      = 127
)

// startChild runs argv with this process's standard files. If this process
// has the terminal, the command gets it: it would be stopped at its first
// read otherwise.
func startChild(argv, env []string) (*child, error) {
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = env
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c := &child{done: make(chan struct{})}
	if ours(os.Stdin) {
		c.tty = os.Stdin
		cmd.SysProcAttr.Foreground = true
		cmd.SysProcAttr.Ctty = int(os.Stdin.Fd())
		signal.Ignore(syscall.SIGTTOU) // or taking the terminal back would stop us
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	c.pid = cmd.Process.Pid
	go c.wait()
	return c, nil
}

// ours says whether f is a terminal whose foreground is this process group.
func ours(f *os.File) bool {
	group, err := unix.IoctlGetInt(int(f.Fd()), unix.TIOCGPGRP)
	return err == nil && group == unix.Getpgrp()
}

// wait ends when the command does. A command that is suspended from the
// terminal is made to go on: the shell can't see it, and it holds a lock.
func (c *child) wait() {
	for {
		var status syscall.WaitStatus
		_, err := syscall.Wait4(c.pid, &status, syscall.WUNTRACED, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err == nil && status.Stopped():
			if c.tty != nil && status.StopSignal() != syscall.SIGSTOP {
				c.signal(syscall.SIGCONT)
			}
		default:
			if c.tty != nil {
				// The terminal may be gone; then nobody needs it back.
				_ = unix.IoctlSetPointerInt(int(c.tty.Fd()), unix.TIOCSPGRP, unix.Getpgrp())
			}
			c.status = status
			close(c.done)
			return
		}
	}
}

// signal sends sig to the command and all in its group; that it is gone is
// no fault.
func (c *child) signal(sig syscall.Signal) { _ = syscall.Kill(-c.pid, sig) }

// end asks the group to end, and kills what is left of it after the grace.
// It returns when the command has ended.
func (c *child) end(grace time.Duration) {
	c.signal(syscall.SIGTERM)
	deadline := time.NewTimer(grace)
	defer deadline.Stop()
	select {
	case <-c.done:
	case <-deadline.C:
		c.kill()
		return
	}
	// The leader may have left others behind.
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for syscall.Kill(-c.pid, 0) == nil {
		select {
		case <-tick.C:
		case <-deadline.C:
			c.signal(syscall.SIGKILL)
			return
		}
	}
}

// kill ends the group without asking, and returns when the command has ended.
func (c *child) kill() {
	c.signal(syscall.SIGKILL)
	<-c.done
}

// exitCode is the command's exit status as a shell gives it: 128 and the
// signal's number if one ended it. To be called once done is closed.
func (c *child) exitCode() int {
	if c.status.Signaled() {
		return 128 + int(c.status.Signal())
	}
	return c.status.ExitStatus()
}

// startFailure is the exit status for a command that can't be started.
func startFailure(err error) exitStatus {
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
		return exitNotFound
	}
	return exitNotExecutable
}
