// Command cmd carries out a chaos run, or looks at the history of one again.
// The exit status is 0 if the promise was kept, 1 if it was broken or nothing
// can be said; with -straight, without fencing, 0 only if it was broken in every
// way that stale holders break it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/fenceproxy/fenceproxy/testharness/chaos"
	"github.com/fenceproxy/fenceproxy/testharness/command"
	"github.com/fenceproxy/fenceproxy/testharness/history"
	"github.com/fenceproxy/fenceproxy/testharness/history/check"
)

// serveWord is the first argument of the processes that a run starts.
const serveWord = "serve"

func main() { command.Main("chaos", run) }

// errBroken says that the report has more to say.
var errBroken = errors.New("the promise was broken")

func run(ctx context.Context, args []string, out, _ io.Writer) error {
	if len(args) > 0 && args[0] == serveWord {
		return chaos.Serve(ctx, args[1:], os.Stdin, out)
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	flags := flag.NewFlagSet("chaos", flag.ExitOnError)
	program := flags.String("program", "bin/fenceproxy", "the fenceproxy `binary`")
	o := chaos.NewOptions(nil, []string{self, serveWord})
	flags.Uint64Var(&o.Seed, "seed", o.Seed, "what faults and workers are drawn from")
	flags.DurationVar(&o.Duration, "duration", o.Duration, "how long there are faults")
	flags.IntVar(&o.Workers, "workers", o.Workers, "processes that work")
	flags.IntVar(&o.Keys, "keys", o.Keys, "locks that they work under")
	flags.IntVar(&o.Proxies, "proxies", o.Proxies, "proxies that they go through")
	flags.BoolVar(&o.Straight, "straight", false, "go straight to PostgreSQL, without fencing")
	flags.StringVar(&o.Dir, "dir", "", "`folder` for the history, kept; a temporary one that is kept if something is wrong")
	plan := flags.Bool("plan", false, "print the plan of faults and do nothing")
	again := flags.String("check", "", "check the history in this `folder` again")
	if err := flags.Parse(args); err != nil {
		return err
	}
	switch {
	case flags.NArg() > 0:
		return fmt.Errorf("unexpected arguments: %s", strings.Join(flags.Args(), " "))
	case *plan:
		for _, e := range chaos.Plan(o) {
			fmt.Fprintln(out, e)
		}
		return nil
	case *again != "":
		return recheck(*again, o.Limits, out)
	}
	o.Program, o.Out = []string{*program}, out
	return carryOut(ctx, o, out)
}

// recheck judges a history that was kept.
func recheck(dir string, limits check.Limits, out io.Writer) error {
	h, err := history.Load(dir)
	if err != nil {
		return err
	}
	report := check.Check(h, limits)
	report.Print(out)
	switch {
	case !report.OK():
		return errBroken
	case len(report.Unjudged()) == len(report.Verdicts):
		return errors.New("nothing happened that could be judged: the history proves nothing")
	}
	return nil
}

func carryOut(ctx context.Context, o chaos.Options, out io.Writer) (err error) {
	keep := o.Dir != ""
	if !keep {
		if o.Dir, err = os.MkdirTemp("", "fenceproxy-chaos-history-"); err != nil {
			return fmt.Errorf("make a folder for the history: %w", err)
		}
	}
	result, err := chaos.Run(ctx, o)
	if err == nil {
		result.Print(out)
		err = verdict(result)
	}
	switch {
	case !keep && (err == nil || unbegun(o.Dir)):
		return errors.Join(err, os.RemoveAll(filepath.Clean(o.Dir)))
	case err != nil:
		return fmt.Errorf("%w: seed %d, history in %s", err, o.Seed, o.Dir)
	}
	return nil
}

// unbegun reports whether a history has nothing of any worker.
func unbegun(dir string) bool {
	files, err := os.ReadDir(dir)
	return err == nil && len(files) <= 1 // the harness's own
}

// verdict returns an error if a run isn't as it must be.
func verdict(result chaos.Result) error {
	unjudged := result.Report.Unjudged()
	switch {
	case result.Straight:
		return unharmed(result.Report)
	case !result.Report.OK():
		return errBroken
	case len(unjudged) > 0:
		return fmt.Errorf("nothing happened that %v could be judged by: the run proves nothing", unjudged)
	}
	return nil
}

// unharmed returns an error if a run without fencing wasn't harmed as it must be.
func unharmed(report check.Report) error {
	missing := chaos.Missing(report)
	if len(missing) == 0 {
		return nil
	}
	return fmt.Errorf("without fencing nothing broke %v: the run proves nothing", missing)
}
