package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/fenceproxy/fenceproxy/testharness/command"
	"github.com/fenceproxy/fenceproxy/testharness/stack"
)

func main() { command.Main("bench", run) }

// options are what the command line says, and what follows from it.
type options struct {
	program string // fenceproxy
	page    string // the file to write; "" writes none
	only    string // a regular expression over the names of rows
	rounds  int
	seconds float64 // of a round that has no end of its own
	quick   bool

	extent
}

// An extent is how much there is to do in rounds that end by themselves.
type extent struct {
	scale     int // of pgbench's tables
	megabytes int // of a COPY
	takeovers int // of a lock
	sessions  int // that are idle
}

// partial says that not everything is measured.
func (o options) partial() bool { return o.quick || o.only != "" }

// wholePage says that a run is one to write the page from.
func (o options) wholePage() bool { return !o.partial() && o.rounds >= leastRounds }

// length is how long a round goes on.
func (o options) length() time.Duration { return time.Duration(o.seconds * float64(time.Second)) }

// Defaults of a full and of a quick run.
const (
	defaultRounds, quickRounds = 5, 3
	// defaultSeconds: what a round measures begins when all clients are at work.
	defaultSeconds = 0.7
	// leastRounds is how often everything is played for a page.
	leastRounds = 5
)

// fullExtent has as many takeovers as a p99 wants.
func fullExtent() extent {
	return extent{scale: 50, megabytes: 1000, takeovers: 100, sessions: 5000}
}

func quickExtent() extent {
	return extent{scale: 10, megabytes: 64, takeovers: 5, sessions: 1000}
}

func parse(args []string, stderr io.Writer) (options, error) {
	var o options
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&o.program, "program", "bin/fenceproxy", "the fenceproxy to measure")
	flags.StringVar(&o.page, "page", "", "write this file, once all has been measured")
	flags.StringVar(&o.only, "only", "", "measure only rows whose name, workload/clients/way, matches this regular expression")
	flags.IntVar(&o.rounds, "rounds", 0, "how often each row is played (5, quick: 3)")
	flags.Float64Var(&o.seconds, "seconds", 0, "how long a round measures (0.7)")
	flags.BoolVar(&o.quick, "quick", false, "a part, with less data")
	if err := flags.Parse(args); err != nil {
		return o, command.ErrUsage
	}
	if flags.NArg() > 0 || o.rounds < 0 || o.seconds < 0 {
		fmt.Fprintln(stderr, "bench: an argument is no flag, or a number is below 0")
		return o, command.ErrUsage
	}
	rounds := defaultRounds
	o.extent = fullExtent()
	if o.quick {
		rounds = quickRounds
		o.extent = quickExtent()
	}
	if o.rounds == 0 {
		o.rounds = rounds
	}
	if o.seconds == 0 {
		o.seconds = defaultSeconds
	}
	return o, nil
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	if len(args) == 2 && args[0] == memberRole {
		return stack.ServeMember(ctx, args[1], os.Stdin, stdout)
	}
	o, err := parse(args, stderr)
	if err != nil {
		return err
	}
	// Debian puts servers where only root's PATH leads.
	if err := os.Setenv("PATH", os.Getenv("PATH")+":/usr/sbin"); err != nil {
		return err
	}
	if o.program, err = filepath.Abs(o.program); err != nil {
		return err
	}
	workloads, err := selected(plan(o), o)
	if err != nil {
		return err
	}
	m, err := describe(ctx, o)
	if err != nil {
		return err
	}
	watch := newProgress(stderr, workloads, o)
	rows, failed := play(ctx, workloads, o, watch)
	if cause := context.Cause(ctx); cause != nil {
		m = append(m, fact{"interrupted", watch.ended()})
		failed = errors.Join(failed, fmt.Errorf("%w: what was measured is printed, and no page written", cause))
	}
	report := page(m, o, rows)
	fmt.Fprint(stdout, report)
	switch {
	case failed != nil || o.page == "":
		return failed
	case !o.wholePage():
		fmt.Fprintf(stderr, "bench: %s is written by a run of everything, with %d rounds or more; this wasn't one\n", o.page, leastRounds)
		return nil
	}
	return os.WriteFile(o.page, []byte(report), 0o644)
}
