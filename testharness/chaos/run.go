package chaos

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/fenceproxy/fenceproxy/testharness/fault"
	"github.com/fenceproxy/fenceproxy/testharness/history"
	"github.com/fenceproxy/fenceproxy/testharness/history/check"
	"github.com/fenceproxy/fenceproxy/testharness/stack"
)

// A Result is what came of a run.
type Result struct {
	Seed     uint64
	Straight bool
	Tally    Tally
	Faults   map[string]int // how often each kind was carried out
	Took     time.Duration  // for which the workers worked
	Checked  time.Duration  // for which the history was judged
	Report   check.Report
}

// A run is one run.
type run struct {
	options Options
	record  *history.Recorder
	cluster *cluster
	crew    *crew
	faults  *fault.Run
	began   time.Time
	took    time.Duration
}

// errIdle is a run that proves nothing, whatever was broken in it.
var errIdle = errors.New("no worker recorded a write that was acknowledged: there is nothing to judge")

// Run carries out a run and judges it. An error means that there is nothing to
// judge; that the promise was broken is no error, but stands in the Report. What
// was started has ended when it returns, and the history is in Options.Dir.
func Run(ctx context.Context, options Options) (Result, error) {
	if options.Workload == nil {
		options.Workload = NewWorkload(options.Self, options.keys())
	}
	if err := options.check(); err != nil {
		return Result{}, err
	}
	if err := os.MkdirAll(options.Dir, 0o700); err != nil {
		return Result{}, fmt.Errorf("make the folder of the history: %w", err)
	}
	file, err := os.OpenFile(filepath.Join(options.Dir, "harness.jsonl"), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return Result{}, fmt.Errorf("open the harness's history: %w", err)
	}
	defer file.Close()
	r := &run{options: options, record: history.NewRecorder("", file)}
	if err := r.play(ctx); err != nil {
		return Result{}, err
	}
	fmt.Fprintln(options.Out, "checking")
	began := time.Now()
	h, err := history.Load(options.Dir)
	if err != nil {
		return Result{}, err
	}
	if !slices.ContainsFunc(h.Ops, func(op history.Op) bool { return op.Kind == history.KindWrite && op.Outcome == history.OutcomeOK }) {
		return Result{}, errIdle
	}
	result := Result{Seed: options.Seed, Straight: options.Straight, Tally: r.crew.done(), Faults: map[string]int{}, Took: r.took,
		Report: check.Check(h, options.Limits)}
	result.Checked = time.Since(began)
	for _, f := range h.Faults {
		result.Faults[f.Kind]++
	}
	return result, nil
}

// play starts everything, lets it run under faults, and takes down the end.
func (r *run) play(ctx context.Context) (err error) {
	r.cluster = &cluster{options: &r.options, record: r.record}
	defer func() { err = errors.Join(err, r.cluster.close(), r.record.Err()) }()
	fmt.Fprintf(r.options.Out, "starting, seed %d\n", r.options.Seed)
	if err := r.cluster.start(ctx); err != nil {
		return err
	}
	watcher := Watch(ctx, r.cluster.db.Client, r.record)
	if err := r.work(ctx); err != nil {
		watcher.Stop()
		return err
	}
	if err := watcher.Finish(ctx); err != nil {
		return err
	}
	return r.collect(ctx)
}

// work has the workers work, under faults and for a while after them.
func (r *run) work(ctx context.Context) (err error) {
	r.crew, err = r.cluster.hire()
	defer r.crew.dismiss()
	if err != nil {
		return err
	}
	r.began = time.Now()
	r.faults = &fault.Run{Plan: Plan(r.options), Injuries: r.cluster.injuries(r.crew), Name: r.crew.named, Record: r.record}
	telling, stop := context.WithCancel(ctx)
	var teller sync.WaitGroup
	teller.Add(1)
	go func() {
		defer teller.Done()
		r.tell(telling)
	}()
	defer teller.Wait()
	defer stop()
	err = r.faults.Carry(ctx)
	if !r.enough(ctx) {
		return errors.Join(err, context.Cause(ctx))
	}
	r.took = time.Since(r.began)
	return errors.Join(err, r.crew.home())
}

// enough waits until the workers have worked for long enough without faults, and
// done enough. It returns false if ctx ended first.
func (r *run) enough(ctx context.Context) bool {
	after := time.NewTimer(max(r.options.Duration-time.Since(r.began), 0) + r.options.After)
	defer after.Stop()
	select {
	case <-after.C:
	case <-ctx.Done():
		return false
	}
	for deadline := time.Now().Add(repairTime); r.crew.done().Takeovers < r.options.Takeovers && time.Now().Before(deadline); {
		if !pause(ctx) {
			return false
		}
	}
	return true
}

// collect reads what is in the tables, once nothing can change them any more:
// the proxies are gone, and so are the sessions of applications.
func (r *run) collect(ctx context.Context) error {
	for _, p := range r.cluster.proxies {
		p.Kill()
	}
	ctx, cancel := context.WithTimeout(ctx, repairTime)
	defer cancel()
	conn, err := r.cluster.db.connect(ctx)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	for {
		var n int
		err := conn.QueryRow(ctx, "SELECT count(*) FROM pg_stat_activity WHERE usename = ANY ($1)", []string{stack.RoleApp, stack.RoleFence}).Scan(&n)
		if err == nil && n == 0 {
			break
		}
		if !pause(ctx) {
			return fmt.Errorf("wait for the last sessions: %w", errors.Join(context.Cause(ctx), err))
		}
	}
	tables, err := r.options.Workload.Collect(ctx, conn)
	if err != nil {
		return err
	}
	if r.options.Straight {
		tables.Marks = nil // nobody fences, so that none is a mark that was lost
	}
	r.record.Add(history.Record{Tables: &tables})
	return nil
}
