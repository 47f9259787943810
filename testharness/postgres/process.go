package postgres

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// stopTimeout is how long an immediate shutdown may take before SIGKILL.
const stopTimeout = 10 * time.Second

// pollEvery is how often start-up and shutdown are looked at.
const pollEvery = 5 * time.Millisecond

// logTail is how much of the server's log an error shows, in bytes.
const logTail = 2000

// Why a server ends at once, where the caller can do something about it.
var (
	// ErrPortTaken: something else listens on the port that was asked for.
	ErrPortTaken = errors.New("the port is taken")
	// errMemoryInUse: a backend of a killed postmaster is not quite gone.
	errMemoryInUse = errors.New("backends of the server's former life are still there")
)

// A process is one life of the postmaster.
type process struct {
	cmd    *exec.Cmd
	exited chan struct{} // closed when the process is gone and reaped
}

// launch starts the postmaster on s.port and waits until it is ready.
func (s *Server) launch(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, DefaultStartTimeout)
	defer cancel()
	for {
		err := s.launchOnce(ctx)
		if !errors.Is(err, errMemoryInUse) || ctx.Err() != nil {
			return err
		}
	}
}

func (s *Server) launchOnce(ctx context.Context) error {
	log, err := os.OpenFile(s.LogFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("open the server's log: %w", err)
	}
	defer log.Close()
	before, err := log.Seek(0, 2)
	if err != nil {
		return fmt.Errorf("open the server's log: %w", err)
	}
	cmd := exec.Command(s.Program("postgres"), "-D", s.DataDir(), "-p", strconv.Itoa(s.port))
	cmd.Dir, cmd.Env = s.base, environment()
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = attributes(s.owner.credential)
	p, err := startProcess(cmd)
	if err != nil {
		return fmt.Errorf("start postgres: %w", err)
	}
	if err := s.waitReady(ctx, p); err != nil {
		said := s.logSince(before)
		switch {
		case strings.Contains(said, "could not bind IPv4 address"):
			// That says it all.
			return errors.Join(fmt.Errorf("start postgres on port %d: %w", s.port, ErrPortTaken), p.stop())
		case strings.Contains(said, "pre-existing shared memory block"):
			err = errMemoryInUse
		}
		return errors.Join(fmt.Errorf("start postgres on port %d: %w; its log ends: %s", s.port, err, said), p.stop())
	}
	s.process = p
	return nil
}

// startProcess starts cmd on a thread that lives as long as the process: on
// Linux a child's parent-death signal comes when the parent *thread* that
// forked it dies (prctl(2), PR_SET_PDEATHSIG).
func startProcess(cmd *exec.Cmd) (*process, error) {
	p := &process{cmd: cmd, exited: make(chan struct{})}
	started := make(chan error, 1)
	go p.run(started)
	if err := <-started; err != nil {
		return nil, err
	}
	return p, nil
}

// run returns when the process has ended.
func (p *process) run(started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := p.cmd.Start()
	started <- err
	if err != nil {
		return
	}
	_ = p.cmd.Wait() // how it ended stands in its log
	close(p.exited)
}

func (p *process) pid() int { return p.cmd.Process.Pid }

// gone waits for the process's end and says whether it came in time.
func (p *process) gone(within time.Duration) bool {
	timer := time.NewTimer(within)
	defer timer.Stop()
	select {
	case <-p.exited:
		return true
	case <-timer.C:
		return false
	}
}

// stop shuts down immediately. SIGCONT first: a test may have paused it.
func (p *process) stop() error {
	p.signalAll(syscall.SIGCONT)
	p.signal(syscall.SIGQUIT)
	if p.gone(stopTimeout) {
		return nil
	}
	return errors.Join(fmt.Errorf("postgres (pid %d) didn't stop within %s and was killed", p.pid(), stopTimeout), p.kill())
}

// kill stops the postmaster first, so that it starts no further backend, and
// then ends its children before it: one that outlived it would keep the shared
// memory, and the next start would be refused.
func (p *process) kill() error {
	p.signal(syscall.SIGSTOP)
	for _, child := range children(p.pid()) {
		_ = syscall.Kill(child, syscall.SIGKILL) // it may have ended by itself
	}
	p.signal(syscall.SIGKILL)
	if !p.gone(stopTimeout) {
		return fmt.Errorf("postgres (pid %d) is still there after SIGKILL", p.pid())
	}
	return nil
}

// signal ignores the one error there is, that the process has ended: os.Process
// never signals a process id that has been reaped.
func (p *process) signal(sig syscall.Signal) { _ = p.cmd.Process.Signal(sig) }

// signalAll signals the postmaster, so that it starts no further backend, and
// then its children.
func (p *process) signalAll(sig syscall.Signal) {
	p.signal(sig)
	for _, child := range children(p.pid()) {
		_ = syscall.Kill(child, sig) // it may have ended by itself
	}
}

// waitReady reads the postmaster's status from its pid file, as pg_ctl does:
// line 1 is the process, line 8 the status (miscadmin.h, LOCK_FILE_LINE_*). A
// connection would prove less, for another server may have taken the port.
func (s *Server) waitReady(ctx context.Context, p *process) error {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		text, err := os.ReadFile(filepath.Join(s.DataDir(), "postmaster.pid"))
		if lines := bytes.Split(text, []byte("\n")); err == nil && len(lines) >= 8 &&
			string(bytes.TrimSpace(lines[0])) == strconv.Itoa(p.pid()) && string(bytes.TrimSpace(lines[7])) == "ready" {
			return nil
		}
		select {
		case <-p.exited:
			return errors.New("it ended at once")
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// logSince returns what the server logged from an offset on, the end of it
// where that is long.
func (s *Server) logSince(offset int64) string {
	text, err := os.ReadFile(s.LogFile())
	if err != nil || int64(len(text)) < offset {
		return "(no log)"
	}
	text = text[offset:]
	if len(text) > logTail {
		text = text[len(text)-logTail:]
	}
	return string(bytes.TrimSpace(text))
}
