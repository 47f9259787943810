package chaos

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/fenceproxy/fenceproxy/testharness/fault"
	"github.com/fenceproxy/fenceproxy/testharness/history/check"
)

// Options say what to run. NewOptions has the sizes of a full run.
type Options struct {
	Seed     uint64
	Duration time.Duration // how long there are faults
	Workers  int
	Keys     int
	Proxies  int
	// Straight leads the workers to PostgreSQL itself: the same run, without
	// fencing.
	Straight bool
	// Program is the command line of fenceproxy.
	Program []string
	// Self is a command line that ends in Serve.
	Self []string
	// Dir is where the history goes, a folder that isn't there yet or is empty.
	Dir string
	// Out is told how it goes.
	Out io.Writer
	// Workload is NewWorkload(Self) unless it is set.
	Workload *Workload
	// After is how long the workers go on when everything is healed.
	After time.Duration
	// Takeovers is how many there must have been before they stop, unless that
	// takes longer than repairTime: a slow machine needs more time for as much.
	Takeovers int
	// Calm is when nothing is broken anew but workers.
	Calm   fault.Calm
	Limits check.Limits
}

// The sizes of a full run.
const (
	DefaultWorkers = 50
	DefaultKeys    = 20
	DefaultProxies = 2
	DefaultAfter   = 8 * time.Second
	// Leases are as short as etcd grants them, so that they run out often.
	leastTTL = time.Second
	mostTTL  = 3 * time.Second
)

// NewOptions returns those of a full run of the promise.
func NewOptions(program, self []string) Options {
	return Options{
		Seed: 1, Duration: time.Minute, Workers: DefaultWorkers, Keys: DefaultKeys, Proxies: DefaultProxies,
		After: DefaultAfter, Program: program, Self: self, Out: io.Discard,
		Calm: fault.Calm{Every: 45 * time.Second, Length: 12 * time.Second}, Limits: check.NewLimits(),
	}
}

func (o *Options) check() error {
	switch {
	case o.Workers < 1 || o.Proxies < 1:
		return errors.New("a run needs a worker and a proxy at least")
	case o.Keys < 2:
		return errors.New("a run needs two keys at least, for transfers")
	case o.Dir == "":
		return errors.New("a run needs a folder for its history")
	case o.Duration <= 0:
		return errors.New("a run needs a time for its faults")
	case len(o.Program) == 0 || len(o.Self) == 0:
		return errors.New("a run needs the commands of fenceproxy and of its own parts")
	case len(o.Workload.Command) == 0 || o.Workload.Collect == nil:
		return errors.New("a workload needs the command of a worker, and how to collect what it wrote")
	}
	return nil
}

// keys are the names of the locks.
func (o *Options) keys() []string {
	keys := make([]string, o.Keys)
	for i := range keys {
		keys[i] = fmt.Sprintf("account:%02d", i)
	}
	return keys
}
