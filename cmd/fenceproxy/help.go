package main

import "github.com/spf13/cobra"

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

func unknownCommand(root *cobra.Command, name string) error {
	var known []string
	for _, cmd := range root.Commands() {
		if cmd.IsAvailableCommand() {
			known = append(known, cmd.Name())
		}
	}
	return usagef("unknown command %s%s", quotedArg(name), withList(didYouMean(name, known, asItIs), "fenceproxy --help lists them"))
}
