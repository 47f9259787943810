package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
)

// Exit statuses.
const (
	exitFailure = 1 // a mutant survived, or couldn't be tried
	exitUsage   = 2
)

// errSurvived: a protection can be taken out without its test going red.
var errSurvived = errors.New("a test is green without what it tests")

// errUsage: the command line is wrong, and package flag has said how.
var errUsage = errors.New("usage")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	switch {
	case err == nil:
	case errors.Is(err, errUsage):
		os.Exit(exitUsage)
	default:
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(exitFailure)
	}
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("mutants", flag.ContinueOnError)
	flags.SetOutput(stderr)
	only := flags.String("only", "", "names of mutants, joined with commas; all without it")
	list := flags.Bool("list", false, "print the table of docs/proof.md and try nothing")
	into := flags.String("build", "", "a `folder` to build one mutant into, for a chaos run, and try nothing")
	if err := flags.Parse(args); err != nil {
		return errUsage
	}
	chosen, err := choose(all(), *only)
	if err != nil {
		fmt.Fprintln(stderr, err)
		return errUsage
	}
	if *list {
		fmt.Fprint(stdout, table(chosen))
		return nil
	}
	if *into != "" {
		if len(chosen) != 1 {
			fmt.Fprintln(stderr, "-build wants -only with the name of one mutant")
			return errUsage
		}
		return build(ctx, chosen[0], *into)
	}
	return tryAll(ctx, chosen, stdout)
}

// choose returns the mutants of the given names.
func choose(mutants []mutant, names string) ([]mutant, error) {
	if names == "" {
		return mutants, nil
	}
	var chosen []mutant
	for name := range strings.SplitSeq(names, ",") {
		before := len(chosen)
		for _, m := range mutants {
			if m.name == name {
				chosen = append(chosen, m)
			}
		}
		if len(chosen) == before {
			return nil, fmt.Errorf("no mutant is named %q", name)
		}
	}
	return chosen, nil
}
