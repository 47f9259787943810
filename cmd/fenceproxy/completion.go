package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/fenceproxy/fenceproxy/testharness/scenario"
)

// shells are those that have a script.
var shells = []string{"bash", "zsh", "fish"}

// newCompletion is in the place of cobra's own, whose errors are worded otherwise.
func newCompletion() *cobra.Command {
	return &cobra.Command{
		Use:   "completion bash|zsh|fish",
		Short: "Print the script that lets a shell complete commands and flags",
		Long: `Print a script for a shell, which then proposes commands, flags and their values at Tab.
The Debian package has the scripts where the shells look for them. Otherwise:

  bash  eval "$(fenceproxy completion bash)", in ~/.bashrc; it needs Debian's package bash-completion
  zsh   source <(fenceproxy completion zsh), in ~/.zshrc, behind compinit
  fish  fenceproxy completion fish >~/.config/fish/completions/fenceproxy.fish`,
		Example:   `  eval "$(fenceproxy completion bash)"`,
		Args:      oneShell,
		ValidArgs: shells,
		RunE: func(cmd *cobra.Command, args []string) error {
			out := cmd.OutOrStdout()
			switch args[0] {
			case "bash":
				return cmd.Root().GenBashCompletionV2(out, true)
			case "zsh":
				return cmd.Root().GenZshCompletion(out)
			default:
				return cmd.Root().GenFishCompletion(out, true)
			}
		},
	}
}

func oneShell(cmd *cobra.Command, args []string) error {
	if err := exactArgs("the shell")(cmd, args); err != nil {
		return err
	}
	if !slices.Contains(shells, args[0]) {
		return usagef("completion: no script for %q%s", args[0], withList(didYouMean(args[0], shells, asItIs), "there are "+strings.Join(shells, ", ")))
	}
	return nil
}

// proposeValues has the shells propose what each flag and argument of cmd and its
// subcommands can be, and files only where one is meant.
func proposeValues(cmd *cobra.Command) {
	if cmd.ValidArgsFunction == nil && len(cmd.ValidArgs) == 0 {
		cmd.ValidArgsFunction = cobra.NoFileCompletions
	}
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		// It fails for a flag that has proposals already, and those stay.
		_ = cmd.RegisterFlagCompletionFunc(f.Name, flagValues(f))
	})
	for _, sub := range cmd.Commands() {
		proposeValues(sub)
	}
}

// flagValues are the proposals for a flag: the words of a choice, a path where the
// usage names a FILE or a DIR, and otherwise none.
func flagValues(f *pflag.Flag) cobra.CompletionFunc {
	if c, ok := f.Value.(*choice); ok {
		return cobra.FixedCompletions(c.among, cobra.ShellCompDirectiveNoFileComp)
	}
	switch name, _ := pflag.UnquoteUsage(f); strings.ToUpper(name) {
	case "FILE":
		return cobra.FixedCompletions(nil, cobra.ShellCompDirectiveDefault)
	case "DIR":
		return cobra.FixedCompletions(nil, cobra.ShellCompDirectiveFilterDirs)
	default:
		return cobra.NoFileCompletions
	}
}

// completing reports whether it is a shell's script that asks.
func completing(args []string) bool {
	return len(args) > 0 && (args[0] == cobra.ShellCompRequestCmd || args[0] == cobra.ShellCompNoDescRequestCmd)
}

// forShells makes the usages of flags texts that shells can show, and leaves out flags
// that the command line has no value for.
func forShells(cmd *cobra.Command) {
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		_, f.Usage = pflag.UnquoteUsage(f)
		if _, ok := f.Value.(*password); ok {
			f.Hidden = true
		}
	})
	for _, sub := range cmd.Commands() {
		forShells(sub)
	}
}

// proposeExplained are the proposals of explain: codes of refusals for who has begun
// one, and files.
func proposeExplained(_ *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
	var codes []cobra.Completion
	for _, c := range explainedCodes() {
		if len(args) == 0 && typed != "" && strings.HasPrefix(c.Code, typed) {
			codes = append(codes, cobra.CompletionWithDesc(c.Code, c.Name+": "+c.Means))
		}
	}
	return codes, cobra.ShellCompDirectiveDefault
}

// proposeCommands are the proposals of help.
func proposeCommands(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	var names []cobra.Completion
	if len(args) == 0 {
		for _, sub := range cmd.Root().Commands() {
			if sub.IsAvailableCommand() {
				names = append(names, cobra.CompletionWithDesc(sub.Name(), sub.Short))
			}
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// proposeScenarios are the proposals of demo: those that aren't named yet.
func proposeScenarios(_ *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	var names []cobra.Completion
	for _, story := range scenario.Stories() {
		if !slices.Contains(args, story.Name) {
			names = append(names, cobra.CompletionWithDesc(story.Name, story.Title))
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// proposeProgram are the proposals of lock: nothing for the key, the programs of
// PATH for the command behind --, and files for its arguments.
func proposeProgram(cmd *cobra.Command, args []string, start string) ([]cobra.Completion, cobra.ShellCompDirective) {
	switch {
	case len(args) == 0 || cmd.ArgsLenAtDash() < 0:
		return nil, cobra.ShellCompDirectiveNoFileComp
	case len(args) > 1 || strings.Contains(start, "/"):
		return nil, cobra.ShellCompDirectiveDefault
	default:
		return programs(start), cobra.ShellCompDirectiveDefault
	}
}

// programs are the names in the folders of PATH that begin with start.
func programs(start string) []string {
	var names []string
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		entries, _ := os.ReadDir(dir) // shells pass over those that can't be read
		for _, entry := range entries {
			if info, err := os.Stat(filepath.Join(dir, entry.Name())); strings.HasPrefix(entry.Name(), start) &&
				err == nil && !info.IsDir() && info.Mode()&0o111 != 0 {
				names = append(names, entry.Name())
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}
