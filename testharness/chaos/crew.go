package chaos

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/fenceproxy/fenceproxy/leases"
	"github.com/fenceproxy/fenceproxy/testharness/child"
)

// homeTime is how long workers may take to finish what they have begun.
const homeTime = 30 * time.Second

// A crew is the processes of the workers.
type crew struct {
	cluster *cluster
	workers []*hand

	mu    sync.Mutex
	tally Tally
}

// A hand is one worker, through all its lives. A track of faults and the crew's
// own methods never work on the same one at the same time.
type hand struct {
	index int

	mu    sync.Mutex
	lives int
	cmd   *exec.Cmd
	in    io.Closer
	heard chan struct{} // closed when the process's output has ended
}

func workerName(i int) string { return fmt.Sprintf("worker-%02d", i+1) }

// name is what a worker is called in this life.
func (h *hand) name() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return fmt.Sprintf("%s.%d", workerName(h.index), h.lives)
}

// hire starts all workers.
func (c *cluster) hire() (*crew, error) {
	crew := &crew{cluster: c}
	for i := range c.options.Workers {
		h := &hand{index: i}
		crew.workers = append(crew.workers, h)
		if err := crew.start(h); err != nil {
			return crew, err
		}
	}
	return crew, nil
}

// start begins a life of a worker.
func (c *crew) start(h *hand) error {
	h.mu.Lock()
	h.lives++
	h.mu.Unlock()
	o := c.cluster.options
	zone := zoneName(h.index)
	assignment, err := json.Marshal(Assignment{
		Name: h.name(), Seed: o.Seed, Etcd: c.cluster.endpoints(zone), Prefix: leases.DefaultPrefix, Gates: c.cluster.gates(zone),
		Keys: o.keys(), FirstID: int64((h.index+1)*1000+h.lives) * idsOfWorker, History: filepath.Join(o.Dir, h.name()+".jsonl"),
		Lies: !o.Straight, LeastTTL: leastTTL, MostTTL: mostTTL,
	})
	if err != nil {
		return fmt.Errorf("start %s: %w", h.name(), err)
	}
	command := o.Workload.Command
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stderr, cmd.SysProcAttr = os.Stderr, child.Attributes()
	in, err := cmd.StdinPipe()
	if err != nil {
		return fmt.Errorf("start %s: %w", h.name(), err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return fmt.Errorf("start %s: %w", h.name(), err)
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", h.name(), err)
	}
	h.cmd, h.in, h.heard = cmd, in, make(chan struct{})
	go c.listen(out, h.heard)
	if _, err := in.Write(append(assignment, '\n')); err != nil {
		return fmt.Errorf("start %s: %w", h.name(), err)
	}
	return nil
}

// listen adds up what a worker says it has done. It ends with the process.
func (c *crew) listen(from io.Reader, heard chan<- struct{}) {
	defer close(heard)
	decoder := json.NewDecoder(from)
	for {
		var t Tally
		if decoder.Decode(&t) != nil {
			return
		}
		c.mu.Lock()
		c.tally.Add(t)
		c.mu.Unlock()
	}
}

// done is what all workers have said they have done.
func (c *crew) done() (t Tally) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t.Add(c.tally)
	return t
}

// named returns what a worker is called now; anything else keeps its name.
func (c *crew) named(target string) string {
	for _, h := range c.workers {
		if workerName(h.index) == target {
			return h.name()
		}
	}
	return target
}

func (c *crew) hand(target string) (*hand, error) {
	for _, h := range c.workers {
		if workerName(h.index) == target {
			return h, nil
		}
	}
	return nil, fmt.Errorf("no worker is called %s", target)
}

func (c *crew) pause(_ context.Context, target string) (func(context.Context) error, error) {
	h, err := c.hand(target)
	if err != nil {
		return nil, err
	}
	if err := h.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		return nil, err
	}
	return func(context.Context) error { return h.cmd.Process.Signal(syscall.SIGCONT) }, nil
}

func (c *crew) kill(_ context.Context, target string) (func(context.Context) error, error) {
	h, err := c.hand(target)
	if err != nil {
		return nil, err
	}
	if err := h.end(); !killed(err) {
		return nil, fmt.Errorf("it had ended by itself: %w", cmp.Or(err, errWithoutFault))
	}
	return func(context.Context) error { return c.start(h) }, nil
}

// errWithoutFault is what a worker ended with that wasn't told to.
var errWithoutFault = errors.New("exit status 0")

// killed reports whether a process ended as it does when it is killed.
func killed(err error) bool {
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return false
	}
	status, ok := exit.Sys().(syscall.WaitStatus)
	return ok && status.Signal() == syscall.SIGKILL
}

// end kills a worker's process and waits for it.
func (h *hand) end() error {
	_ = h.cmd.Process.Kill() // it may have ended by itself
	<-h.heard
	h.in.Close()
	return h.cmd.Wait()
}

// home lets all workers finish what they have begun, and kills those that don't
// in time. It returns what went wrong in a worker itself.
func (c *crew) home() error {
	for _, h := range c.workers {
		h.in.Close()
	}
	deadline := time.NewTimer(homeTime)
	defer deadline.Stop()
	late := false
	var errs []error
	for _, h := range c.workers {
		if !late {
			select {
			case <-h.heard:
			case <-deadline.C:
				late = true
			}
		}
		if late {
			_ = h.end()
			continue
		}
		var exit *exec.ExitError
		if err := h.cmd.Wait(); errors.As(err, &exit) {
			errs = append(errs, fmt.Errorf("%s ended: %w", h.name(), err))
		}
	}
	if late {
		errs = append(errs, fmt.Errorf("some workers didn't finish within %v", homeTime))
	}
	return errors.Join(errs...)
}

// dismiss ends what is left of the workers.
func (c *crew) dismiss() {
	for _, h := range c.workers {
		if h.cmd != nil && h.cmd.ProcessState == nil {
			_ = h.end()
		}
	}
}
