package main

import "github.com/spf13/cobra"

// newHelp is cobra's own help, but a command that there isn't is an error.
func newHelp() *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND]",
		Short: "Help about a command",
		RunE: func(cmd *cobra.Command, args []string) error {
			topic, rest, err := cmd.Root().Find(args)
			switch {
			case len(rest) > 0:
				return unknownCommand(rest[0])
			case err != nil:
				return err
			}
			topic.InitDefaultHelpFlag()
			return topic.Help()
		},
	}
}

func unknownCommand(name string) error {
	return usagef("unknown command %q; fenceproxy --help lists them", name)
}
