package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"

	"github.com/prometheus/procfs"

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

// used is how much CPU the peer's process has used; 0 without a process.
func (p *peer) used() (time.Duration, error) {
	if p.pid == 0 {
		return 0, nil
	}
	process, err := procfs.NewProc(p.pid)
	if err != nil {
		return 0, fmt.Errorf("find process %d: %w", p.pid, err)
	}
	stat, err := process.Stat()
	if err != nil {
		return 0, fmt.Errorf("read the CPU time of process %d: %w", p.pid, err)
	}
	return time.Duration(stat.CPUTime() * float64(time.Second)), nil
}

// A meter tells what a peer's CPU did since it was started.
type meter struct {
	peer   *peer
	before time.Duration
}

func (p *peer) meter() (meter, error) {
	before, err := p.used()
	return meter{p, before}, err
}

// read is the CPU used since, in µs for each of n units. Direct uses none.
func (m meter) read(s *sample, n float64) error {
	if m.peer.pid == 0 || n == 0 {
		return nil
	}
	now, err := m.peer.used()
	s[cpu] = float64((now - m.before).Microseconds()) / n
	return err
}
