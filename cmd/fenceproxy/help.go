package main

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
)

// newHelp is cobra's own help, but a command that there isn't is an error.
func newHelp() *cobra.Command {
	return &cobra.Command{
		Use:               "help [COMMAND]",
		Short:             "Help about a command",
		ValidArgsFunction: proposeCommands,
		RunE: func(cmd *cobra.Command, args []string) error {
			topic, rest, err := cmd.Root().Find(args)
			switch {
			case len(rest) > 0:
				return unknownCommand(cmd.Root(), rest[0])
			case err != nil:
				return err
			}
			topic.InitDefaultHelpFlag()
			return topic.Help()
		},
	}
}

// unknownCommand names the command that was meant: one that is spelled nearly so, or
// one that other programs call so.
func unknownCommand(root *cobra.Command, name string) error {
	var known []string
	meant := name
	for _, cmd := range root.Commands() {
		if cmd.IsAvailableCommand() {
			known = append(known, cmd.Name())
		}
		if slices.Contains(cmd.SuggestFor, name) {
			meant = cmd.Name()
		}
	}
	return usagef("unknown command %s%s", quotedArg(name), withList(didYouMean(meant, known, asItIs), "fenceproxy --help lists them"))
}

// terminalWidth is how many columns the terminal has that out is; 0 if it is none.
func terminalWidth(out io.Writer) int {
	f, ok := out.(*os.File)
	if !ok {
		return 0
	}
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0
	}
	return int(size.Col)
}

// usageTemplate is cobra's, but what flags mean is broken where the terminal ends.
func usageTemplate(root *cobra.Command, width int) string {
	return strings.ReplaceAll(root.UsageTemplate(), ".FlagUsages ", fmt.Sprintf(".FlagUsagesWrapped %d ", width))
}
