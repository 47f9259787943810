package main

import (
	"fmt"
	"io"
	"log/slog"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"gopkg.in/yaml.v3"

	"github.com/fenceproxy/fenceproxy/proxy"
)

// checkConfigFlag has serve look at its settings and do nothing else.
const checkConfigFlag = "check-config"

// validate looks at all settings together, and at the files that they name. It
// connects to nothing, and tells all that is wrong.
func (c *serveCommand) validate(logger *slog.Logger) (proxy.ClientTLS, error) {
	var found faults
	found.add(c.check())
	clientTLS, err := c.tls.open(logger)
	found.add(err)
	_, err = readUserlist(c.authFile)
	found.add(err)
	_, err = c.policy.policies()
	found.add(err)
	return clientTLS, found.err()
}

// andTogether adds to what is wrong with single settings what is wrong with all of them
// together, as far as that can be told without those.
func (c *serveCommand) andTogether(flags *pflag.FlagSet, single error) error {
	var found, together faults
	found.add(single)
	_, err := c.validate(slog.New(slog.DiscardHandler))
	together.add(err)
	all := found
	for _, fault := range together {
		if !found.doubt(flags, fault) {
			all = append(all, fault)
		}
	}
	return all
}

// reread reads the settings once more, as the command line, the environment and
// the file have them now. It tells all that is wrong with any of them.
func (c *serveCommand) reread(cmd *cobra.Command, env environment) (*serveCommand, *pflag.FlagSet, error) {
	_, args, err := cmd.Root().Find(env.args)
	if err != nil {
		return nil, nil, fmt.Errorf("read the command line again: %w", err)
	}
	next := newServeCommand()
	flags := pflag.NewFlagSet("serve", pflag.ContinueOnError)
	flags.BoolP("help", "h", false, "") // or it would be printed
	next.addFlags(flags)
	next.origin = func(flag string) string { return origin(flags, flag) }
	var found faults
	if err := flags.ParseAll(args, func(f *pflag.Flag, value string) error {
		if err := flags.Set(f.Name, value); err != nil {
			found.add(&unsettled{flagError(cmd, err), f.Name})
		}
		return nil
	}); err != nil {
		found.add(&unsettled{flagError(cmd, err), ""}) // what is behind it isn't read
	}
	found.add(configureFlags(flags, knownFlags(cmd.Root()), env))
	if len(found) == 0 {
		return next, flags, nil
	}
	return next, flags, next.andTogether(flags, found)
}

// badFlags tells what is wrong with a command line that can't be taken, and with all
// other settings.
func (c *serveCommand) badFlags(cmd *cobra.Command, env environment, err error) error {
	_, flags, all := c.reread(cmd, env)
	if flags == nil || all == nil {
		return flagError(cmd, err) // not reached: it is as bad as before
	}
	return located(flags, all)
}

// checkConfig says what is wrong with the settings, or prints them: a file that
// means the same, without the secrets.
func (c *serveCommand) checkConfig(flags *pflag.FlagSet, out io.Writer) error {
	if _, err := c.validate(slog.New(slog.DiscardHandler)); err != nil {
		return asUsage(err)
	}
	return printSettings(flags, out)
}

// asUsage makes each fault one of the settings: exit status 2.
func asUsage(err error) error {
	var found faults
	found.add(err)
	for i, fault := range found {
		found[i] = usagef("%s", oneLine(fault))
	}
	return found.err()
}

// printSettings prints each setting with what set it.
func printSettings(flags *pflag.FlagSet, out io.Writer) (err error) {
	flags.VisitAll(func(f *pflag.Flag) {
		if err != nil || !isSetting(f) {
			return
		}
		_, err = fmt.Fprintf(out, "%s  # %s\n", settingLine(f), setBy(flags, f))
	})
	return err
}

// isSetting reports whether a flag of serve is one, and not about settings.
func isSetting(f *pflag.Flag) bool {
	return !slices.Contains([]string{"config", "help", checkConfigFlag}, f.Name)
}

// setBy is what gave a setting its value.
func setBy(flags *pflag.FlagSet, f *pflag.Flag) string {
	if f.Changed {
		return origin(flags, f.Name)
	}
	return "default"
}

// isSecret reports whether a setting has a value that is never shown.
func isSecret(f *pflag.Flag) bool { return slices.Contains(secretFlags, f.Name) && f.Changed }

// settingLine is a setting as the file has it; one that is a secret or has no
// value is a comment.
func settingLine(f *pflag.Flag) string {
	value := f.Value.String()
	switch {
	case isSecret(f):
		return "#" + fileKey(f.Name) + ": " + hidden
	case value == "" && f.DefValue == "":
		return "#" + fileKey(f.Name) + ":"
	case f.Name == policiesFlag:
		return fileKey(f.Name) + ": " + value
	}
	node := yaml.Node{Kind: yaml.ScalarNode, Value: value}
	if text, err := yaml.Marshal(&node); err == nil {
		value = string(text[:len(text)-1])
	}
	return fileKey(f.Name) + ": " + value
}
