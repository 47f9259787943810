package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"

	"github.com/fenceproxy/fenceproxy/testharness/command"
)

// errSurvived: a protection can be taken out without its test going red.
var errSurvived = errors.New("a test is green without what it tests")

func main() { command.Main("mutants", run) }

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("mutants", flag.ContinueOnError)
	flags.SetOutput(stderr)
	only := flags.String("only", "", "names of mutants, joined with commas; all without it")
	list := flags.Bool("list", false, "print the table of docs/proof.md and try nothing")
	against := flags.String("against", "", "a `test`, such as testharness/steps.TestSteps, to try instead of the one that is named for each")
	into := flags.String("build", "", "a `folder` to build one mutant into, for a chaos run, and try nothing")
	if err := flags.Parse(args); err != nil {
		return command.ErrUsage
	}
	chosen, err := choose(all(), *only)
	if err != nil {
		fmt.Fprintln(stderr, err)
		return command.ErrUsage
	}
	if *list {
		fmt.Fprint(stdout, table(chosen))
		return nil
	}
	if *into != "" {
		if len(chosen) != 1 {
			fmt.Fprintln(stderr, "-build wants -only with the name of one mutant")
			return command.ErrUsage
		}
		return build(ctx, chosen[0], *into)
	}
	if *against != "" {
		folder, name, _ := strings.Cut(*against, ".")
		for i := range chosen {
			chosen[i].test = test{folder: folder, name: name}
		}
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
