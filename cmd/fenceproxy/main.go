package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), endSignals(syscall.SIGINT, syscall.SIGTERM)...)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(exitCode(err, os.Stderr))
}

// endSignals are those given and SIGHUP, which a terminal that closes sends;
// but not if this process was started with SIGHUP ignored, as nohup does.
func endSignals(signals ...os.Signal) []os.Signal {
	if signal.Ignored(syscall.SIGHUP) {
		return signals
	}
	return append(signals, syscall.SIGHUP)
}

// run carries out one command line. It returns when the command is done or,
// for the ones that serve, some time after ctx is.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	root := newRoot(environment{lookup: os.LookupEnv, all: os.Environ(), args: args, width: terminalWidth(stdout)})
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	cmd, err := root.ExecuteContextC(ctx)
	return located(cmd.Flags(), err)
}

// newRoot makes the command tree. The environment is passed in, so that what
// reads it can be seen.
func newRoot(env environment) *cobra.Command {
	root := &cobra.Command{
		Use:   "fenceproxy",
		Short: "A PostgreSQL proxy that refuses the writes of lock holders that lost their lock",
		Long: `A PostgreSQL proxy that refuses the writes of lock holders that lost their lock.

"fenceproxy demo" shows what happens without it, and with it; "fenceproxy dev" is a
playground. Before a database of yours it takes "fenceproxy init" once, "fenceproxy serve",
and "fenceproxy doctor", which tells what isn't in place.`,
		Version:       programVersion(),
		SilenceUsage:  true,
		SilenceErrors: true,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return unknownCommand(cmd, args[0])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.CompletionOptions.DisableDefaultCmd = true
	root.SetFlagErrorFunc(flagError)
	root.SetVersionTemplate("{{.Version}}\n")
	root.SetHelpCommand(newHelp())
	for _, group := range []struct {
		title    string
		commands []*cobra.Command
	}{
		{"To try it:", []*cobra.Command{newDemo(env), newDev()}},
		{"To run it:", []*cobra.Command{newInit(env), newServe(env), newHealth(env), newProtect(env), newUnprotect(env), newAdoptLineage(env)}},
		{"To work under a lock:", []*cobra.Command{newLock(env)}},
		{"To see what it does, and why:", []*cobra.Command{newStatus(env), newDoctor(env), newExplain()}},
	} {
		root.AddGroup(&cobra.Group{ID: group.title, Title: group.title})
		for _, cmd := range group.commands {
			cmd.GroupID = group.title
			root.AddCommand(cmd)
		}
	}
	root.AddCommand(newVersion(), newCompletion(), newMan(), newActor())
	root.SetUsageTemplate(usageTemplate(root, env.width))
	proposeValues(root)
	if completing(env.args) {
		forShells(root)
	}
	return root
}

// A usageError is a command line, variable or file that can't be carried out
// as it stands: exit status 2.
type usageError struct{ text string }

func (e *usageError) Error() string { return e.text }

func usagef(format string, args ...any) error {
	return &usageError{fmt.Sprintf(format, args...)}
}

// An exitStatus ends the program with a status and no word of its own: what
// there was to say has been said.
type exitStatus int

func (e exitStatus) Error() string { return fmt.Sprintf("exit status %d", int(e)) }

// exitCode says what err is worth as an exit status, and tells stderr in one
// line what went wrong.
func exitCode(err error, stderr io.Writer) int {
	var status exitStatus
	var usage *usageError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &status):
		return int(status)
	}
	var several faults
	if !errors.As(err, &several) {
		several = faults{err}
	}
	for _, fault := range several {
		fmt.Fprintf(stderr, "fenceproxy: %s\n", visible(oneLine(fault)))
	}
	if errors.As(err, &usage) {
		return 2
	}
	return 1
}

// exactArgs is cobra.ExactArgs with a usage error that names what is missing.
func exactArgs(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) > len(names) {
			return usagef("%s: unexpected argument %s; usage: %s", cmd.Name(), quotedArg(args[len(names)]), cmd.UseLine())
		}
		if len(args) < len(names) {
			return usagef("%s: %s is missing; usage: %s", cmd.Name(), names[len(args)], cmd.UseLine())
		}
		return nil
	}
}
