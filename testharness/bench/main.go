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
)

func main() { command.Main("bench", run) }

// options are what the command line says, and what follows from it.
type options struct {
	program string // fenceproxy
	page    string // the file to write; "" writes none
	only    string // a regular expression over the names of rows
	rounds  int
	seconds int // of a round that has no end of its own
	quick   bool

	scale     int // of pgbench's tables
	megabytes int // of a COPY
	sessions  int // that are idle
}

// partial says that not everything is measured.
func (o options) partial() bool { return o.quick || o.only != "" }

// wholePage says that a run is one to write the page from.
func (o options) wholePage() bool { return !o.partial() && o.rounds >= leastRounds }

// length is how long a round goes on.
func (o options) length() time.Duration { return time.Duration(o.seconds) * time.Second }

// Defaults of a full and of a quick run.
const (
	defaultRounds, quickRounds   = 5, 3
	defaultSeconds, quickSeconds = 2, 1
	// leastRounds is how often everything is played for a page.
	leastRounds = 5
)

func parse(args []string, stderr io.Writer) (options, error) {
	var o options
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&o.program, "program", "bin/fenceproxy", "the fenceproxy to measure")
	flags.StringVar(&o.page, "page", "", "write this file, once all has been measured")
	flags.StringVar(&o.only, "only", "", "measure only rows whose name, workload/clients/way, matches this regular expression")
	flags.IntVar(&o.rounds, "rounds", 0, "how often each row is played (5, quick: 3)")
	flags.IntVar(&o.seconds, "seconds", 0, "how long a round takes (2, quick: 1)")
	flags.BoolVar(&o.quick, "quick", false, "a part, with less data")
	if err := flags.Parse(args); err != nil {
		return o, command.ErrUsage
	}
	if flags.NArg() > 0 || o.rounds < 0 || o.seconds < 0 {
		fmt.Fprintln(stderr, "bench: an argument is no flag, or a number is below 0")
		return o, command.ErrUsage
	}
	rounds, seconds := defaultRounds, defaultSeconds
	o.scale, o.megabytes, o.sessions = 50, 1000, 5000
	if o.quick {
		rounds, seconds = quickRounds, quickSeconds
		o.scale, o.megabytes, o.sessions = 10, 64, 500
	}
	if o.rounds == 0 {
		o.rounds = rounds
	}
	if o.seconds == 0 {
		o.seconds = seconds
	}
	return o, nil
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
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
	rows, failed := play(ctx, workloads, o, stderr)
	if ctx.Err() != nil {
		return errors.Join(failed, context.Cause(ctx))
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
