package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fenceproxy/fenceproxy/testharness/command"
)

// errDiffers: a test fails only through the proxy, or no longer as testdata
// says.
var errDiffers = errors.New("the proxy makes a difference")

func main() { command.Main("pgregress", run) }

// options are what the command line says.
type options struct {
	files   string // what fetch-regress.sh made
	program string // fenceproxy
	out     string // where the suites' output goes
	keep    bool   // keep out, whatever came of it
	suites  []string
	tagged  bool
}

func parse(args []string, stderr io.Writer) (options, error) {
	var o options
	var names string
	flags := flag.NewFlagSet("pgregress", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&o.files, "files", "", "the folder that fetch-regress.sh prints")
	flags.StringVar(&o.program, "program", "bin/fenceproxy", "the fenceproxy to test")
	flags.StringVar(&o.out, "out", "", "keep what the suites write in this folder; by default it is a temporary one, kept only where the proxy makes a difference")
	flags.StringVar(&names, "suites", "", "the suites to run, joined with commas; by default all: "+strings.Join(suiteNames(), ","))
	flags.BoolVar(&o.tagged, "tagged", true, "run them in tagged sessions too")
	if err := flags.Parse(args); err != nil {
		return o, command.ErrUsage
	}
	o.suites, o.keep = suiteNames(), o.out != ""
	if names != "" {
		o.suites = strings.Split(names, ",")
	}
	for _, name := range o.suites {
		if !slices.Contains(suiteNames(), name) {
			fmt.Fprintf(stderr, "pgregress: -suites: there is no suite %q, only %s\n", name, strings.Join(suiteNames(), ", "))
			return o, command.ErrUsage
		}
	}
	if o.files == "" || flags.NArg() > 0 {
		fmt.Fprintln(stderr, "pgregress: -files is missing, or there is an argument that is no flag")
		return o, command.ErrUsage
	}
	return o, nil
}

func suiteNames() []string {
	var names []string
	for _, s := range suites() {
		names = append(names, s.name)
	}
	return names
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) (err error) {
	o, err := parse(args, stderr)
	if err != nil {
		return err
	}
	if err := o.resolve(); err != nil {
		return err
	}
	defer func() {
		if !o.keep && !errors.Is(err, errDiffers) {
			err = errors.Join(err, os.RemoveAll(o.out))
		}
	}()
	expected, err := readExpected()
	if err != nil {
		return err
	}
	var rows []row
	for _, s := range suites() {
		if !slices.Contains(o.suites, s.name) {
			continue
		}
		more, err := o.play(ctx, s, expected, stderr)
		if err != nil {
			return err
		}
		rows = append(rows, more...)
	}
	return report(stdout, rows, o.out)
}

// resolve makes the paths absolute, and the folder of the output: the suites
// and the server run elsewhere, and the server as another user.
func (o *options) resolve() (err error) {
	if o.program, err = filepath.Abs(o.program); err != nil {
		return err
	}
	if o.files, err = filepath.Abs(o.files); err != nil {
		return err
	}
	if !o.keep {
		if o.out, err = os.MkdirTemp("", "fenceproxy-pg-regress-"); err != nil {
			return fmt.Errorf("make the folder of the output: %w", err)
		}
		return os.Chmod(o.out, 0o755)
	}
	if o.out, err = filepath.Abs(o.out); err != nil {
		return err
	}
	return os.MkdirAll(o.out, 0o755)
}

// play runs a suite on its legs: a row for the untagged proxy, and one for the
// tagged.
func (o options) play(ctx context.Context, s suite, expected differences, stderr io.Writer) ([]row, error) {
	pairs := [][2]leg{{straight, proxied}}
	if o.tagged && !s.untagged {
		pairs = append(pairs, [2]leg{fenced, tagged})
	}
	var rows []row
	for _, pair := range pairs {
		var results [2][]result
		for i, l := range pair {
			fmt.Fprintf(stderr, "%s: %v\n", s.name, l)
			var err error
			if results[i], err = o.playLeg(ctx, s, l); err != nil {
				return nil, err
			}
		}
		r, err := compare(s, pair[1], results[0], results[1], expected)
		if err != nil {
			return nil, err
		}
		rows = append(rows, r)
	}
	return rows, nil
}

func (o options) playLeg(ctx context.Context, s suite, l leg) ([]result, error) {
	b, err := openBench(ctx, o, s.name, l, s.database)
	if err != nil {
		return nil, err
	}
	results, err := s.run(ctx, b)
	if err := errors.Join(err, b.close()); err != nil {
		return nil, fmt.Errorf("%s, %v: %w", s.name, l, err)
	}
	return results, nil
}
