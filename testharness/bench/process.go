package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fenceproxy/fenceproxy/testharness/child"
)

// A peer is a proxy that the load goes through: a process of its own.
type peer struct {
	addr string
	pid  int
	stop func()
}

// startTimeout bounds the start of a peer.
const startTimeout = 30 * time.Second

// startPeer starts a program that listens at addr, and waits until a session
// through it works.
func startPeer(ctx context.Context, addr string, ping func(context.Context) error, name string, args ...string) (*peer, error) {
	var log bytes.Buffer
	cmd := exec.Command(name, args...)
	cmd.Stdout, cmd.Stderr = &log, &log
	cmd.SysProcAttr = child.Attributes()
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait() // its log tells why it ended
		close(ended)
	}()
	p := &peer{addr: addr, pid: cmd.Process.Pid, stop: func() {
		_ = cmd.Process.Kill() // it may have ended by itself
		<-ended
	}}
	if err := p.await(ctx, ping, ended); err != nil {
		p.stop()
		return nil, fmt.Errorf("start %s: %w: %s", name, err, strings.TrimSpace(log.String()))
	}
	return p, nil
}

func (p *peer) await(ctx context.Context, ping func(context.Context) error, ended <-chan struct{}) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := ping(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ended:
			return errors.New("it ended")
		case <-ctx.Done():
			return err
		case <-tick.C:
		}
	}
}

// A usage is CPU time of a process.
type usage struct {
	all  time.Duration
	user time.Duration // of all, what wasn't the kernel's, as its ticks saw it
}

// used is how much CPU the peer's process has used; nothing without a process.
func (p *peer) used() (u usage, err error) {
	if p.pid == 0 {
		return usage{}, nil
	}
	if u.all, err = cpuTime(p.pid, schedulers); err == nil {
		u.user, err = cpuTime(p.pid, ticks)
	}
	return u, err
}

// Clocks of a process that Linux has: CPUCLOCK_VIRT and CPUCLOCK_SCHED.
const (
	ticks      = 1
	schedulers = 2
)

// cpuTime reads a clock, as clock_getcpuclockid of Linux names it. /proc has
// the same times in steps of 10 ms, which is too coarse for a short round.
func cpuTime(pid int, clock int32) (time.Duration, error) {
	var spent unix.Timespec
	if err := unix.ClockGettime(^int32(pid)<<3|clock, &spent); err != nil {
		return 0, fmt.Errorf("read the CPU time of process %d: %w", pid, err)
	}
	return time.Duration(spent.Nano()), nil
}

// A meter tells what a peer's CPU did since it was started.
type meter struct {
	peer   *peer
	before usage
}

func (p *peer) meter() (meter, error) {
	before, err := p.used()
	return meter{p, before}, err
}

// since is the CPU used since.
func (m meter) since() (usage, error) {
	now, err := m.peer.used()
	return usage{now.all - m.before.all, now.user - m.before.user}, err
}

// share is the CPU used in µs for each of n units. Direct uses none.
func (m meter) share(s *sample, used usage, n float64) {
	if m.peer.pid != 0 && n > 0 {
		s[cpu], s[user] = float64(used.all.Nanoseconds())/1000/n, float64(used.user.Nanoseconds())/1000/n
	}
}

// read is the share of what was used since.
func (m meter) read(s *sample, n float64) error {
	used, err := m.since()
	m.share(s, used, n)
	return err
}
