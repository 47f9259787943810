package stack

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/fenceproxy/fenceproxy/leases"
	"github.com/fenceproxy/fenceproxy/testharness/child"
)

// A Process is a proxy in a process of its own: fenceproxy serve.
type Process struct {
	Addr  string // where clients connect
	Admin string // where /metrics, /healthz and /readyz are

	cmd  *exec.Cmd
	done chan struct{} // closed when its log has ended

	mu  sync.Mutex
	log strings.Builder
}

// StartProcess runs `program serve` on the stack and returns once it is ready.
// program is the command line of fenceproxy itself; flags are added to what
// the stack sets.
func (s *Stack) StartProcess(ctx context.Context, database string, program []string, flags ...string) (*Process, error) {
	return s.Launch(ctx, Way{Upstream: s.DSN(RoleFence, database), Etcd: s.endpoints}, program, flags...)
}

// A Way is how a proxy reaches what it stands between.
type Way struct {
	Upstream string   // DSN, of several servers perhaps
	Etcd     []string // endpoints

	Passed []*os.File // open for the proxy from descriptor 3 on
}

// Launch is StartProcess for a proxy that goes another way: over links that can
// be cut, or to several servers.
func (s *Stack) Launch(ctx context.Context, way Way, program []string, flags ...string) (*Process, error) {
	argv := append(append(program[:len(program):len(program)], "serve",
		"--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0",
		"--etcd", strings.Join(way.Etcd, ","), "--lock-prefix", leases.DefaultPrefix, "--log-format", "json"), flags...)
	p := &Process{cmd: exec.Command(argv[0], argv[1:]...), done: make(chan struct{})}
	// A password has no place on a command line.
	p.cmd.Env = append(os.Environ(), "FENCEPROXY_UPSTREAM="+way.Upstream)
	p.cmd.ExtraFiles = way.Passed
	p.cmd.SysProcAttr = child.Attributes()
	log, err := p.cmd.StderrPipe()
	if err != nil {
		return nil, fmt.Errorf("start proxy: %w", err)
	}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start proxy: %w", err)
	}
	s.processes = append(s.processes, p)
	ready := make(chan struct{})
	go p.read(log, ready)
	select {
	case <-ready:
		return p, nil
	case <-p.done:
		return nil, fmt.Errorf("start proxy: it ended: %s", strings.TrimSpace(p.Log()))
	case <-ctx.Done():
		p.Kill()
		return nil, fmt.Errorf("start proxy: %w: %s", context.Cause(ctx), strings.TrimSpace(p.Log()))
	}
}

// read keeps the log, and takes the addresses from its line "ready". It ends
// when the process does.
func (p *Process) read(log io.Reader, ready chan<- struct{}) {
	defer close(p.done)
	lines := bufio.NewScanner(log)
	for lines.Scan() {
		p.mu.Lock()
		p.log.Write(lines.Bytes())
		p.log.WriteByte('\n')
		p.mu.Unlock()
		var line struct{ Msg, Listen, Admin string }
		if json.Unmarshal(lines.Bytes(), &line) == nil && line.Msg == "ready" && p.Addr == "" {
			p.Addr, p.Admin = line.Listen, line.Admin
			close(ready)
		}
	}
}

// Log is what the process has logged so far.
func (p *Process) Log() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.String()
}

// PID is the process's id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Signal sends sig: SIGCONT wakes a proxy that was paused, SIGTERM has it drain.
func (p *Process) Signal(sig os.Signal) error { return p.cmd.Process.Signal(sig) }

// pausing is how often a process that is to stop is looked at.
const pausing = 5 * time.Millisecond

// Pause stops the process with SIGSTOP, and returns when all of it has stopped.
func (p *Process) Pause(ctx context.Context) error {
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		return fmt.Errorf("pause proxy: %w", err)
	}
	tick := time.NewTicker(pausing)
	defer tick.Stop()
	for {
		if stopped, err := child.Stopped(p.PID()); err != nil || stopped {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("pause proxy: %w", context.Cause(ctx))
		}
	}
}

// Kill ends the process at once, paused or not, and waits for it.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill()
	_, _ = p.Wait()
}

// Wait waits for the process to end and returns its exit status. It may be
// called after Kill.
func (p *Process) Wait() (int, error) {
	<-p.done
	err := p.cmd.Wait()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) && p.cmd.ProcessState == nil {
		return 0, err
	}
	return p.cmd.ProcessState.ExitCode(), nil
}
