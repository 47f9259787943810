// Package command is how the harness's own programs begin and end: benchmarks,
// mutants, chaos runs, PostgreSQL's test suites.
package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

// Exit statuses.
const (
	exitFailure = 1
	exitUsage   = 2
)

// ErrUsage says that the command line is wrong, and that it has been said how.
var ErrUsage = errors.New("usage")

// Main runs a program to its end and exits with its status: 0, 1 after an error,
// which is printed behind the program's name, or 2 after ErrUsage. SIGINT, SIGTERM,
// a terminal that closes and a reader of its output who goes end the context.
func Main(name string, run func(ctx context.Context, args []string, stdout, stderr io.Writer) error) {
	signals := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) { // as nohup has it
		signals = append(signals, syscall.SIGHUP)
	}
	ctx, stop := signal.NotifyContext(context.Background(), signals...)
	ctx, stdout, leave := Audience(ctx, os.Stdout)
	err := run(ctx, os.Args[1:], stdout, os.Stderr)
	leave()
	stop()
	switch {
	case err == nil:
	case errors.Is(err, ErrUsage):
		os.Exit(exitUsage)
	default:
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(exitFailure)
	}
}
