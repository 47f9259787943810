package main

import (
	"errors"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/fenceproxy/fenceproxy/proxy/spelling"
)

// envPrefix starts the name of each variable that stands for a flag:
// FENCEPROXY_CLAIM_TIMEOUT is --claim-timeout.
const envPrefix = "FENCEPROXY_"

// secretFlags are those whose values never stand in a message.
var secretFlags = []string{"upstream", "upstream-password", "etcd-password", "admin-token"}

// consentFlags are given to one command line, and are no settings.
var consentFlags = []string{"yes", "force", "ready", checkConfigFlag}

// environment is where settings come from, besides the file.
type environment struct {
	lookup func(string) (string, bool)
	all    []string
	args   []string // the command line
	width  int      // of the terminal that is written to; 0: it is none
}

// configure sets the flags of cmd that the command line left open: from the
// environment, and what that leaves open too from the file that --config
// names. Errors name the variable, or the file, line and key; all that are found
// are told.
func configure(cmd *cobra.Command, env environment) error {
	return configureFlags(cmd.Flags(), knownFlags(cmd.Root()), env)
}

func configureFlags(flags *pflag.FlagSet, known map[string]bool, env environment) error {
	var found faults
	env.check(known, &found)
	flags.VisitAll(func(f *pflag.Flag) {
		if value, ok := env.lookup(variable(f.Name)); ok && !f.Changed && known[f.Name] {
			found.add(set(f, value, variable(f.Name)))
		}
	})
	if config := flags.Lookup("config"); config != nil && config.Value.String() != "" {
		file := settingsFile{path: config.Value.String(), flags: flags, known: maps.Clone(known)}
		delete(file.known, config.Name) // a file names no other one
		file.read(&found)
	}
	return found.err()
}

// knownFlags are the names of the flags that variables and files can set:
// all commands' flags that have to do with a running system, so that one
// file or environment serves them all.
func knownFlags(root *cobra.Command) map[string]bool {
	known := map[string]bool{}
	for _, cmd := range root.Commands() {
		if cmd.Flags().Lookup("config") == nil {
			continue
		}
		cmd.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) { known[f.Name] = f.Name != "help" })
	}
	delete(known, "help")
	for _, name := range consentFlags {
		delete(known, name)
	}
	return known
}

// set gives a flag a value; where names the value's origin in an error.
func set(f *pflag.Flag, value, where string) error {
	take := f.Value.Set
	if hides, ok := f.Value.(interface{ setHidden(string) error }); ok {
		take = hides.setHidden
	}
	if err := take(value); err != nil {
		return &unsettled{badValue(f, value, where, err), f.Name}
	}
	noteOrigin(f, where)
	return nil
}

func noteOrigin(f *pflag.Flag, where string) {
	f.Changed = true
	f.Annotations = map[string][]string{originNote: {where}}
}

// Annotations of a flag that the command line hasn't set.
const (
	originNote = "set by"
	fileNote   = "in the file" // its text there
)

// origin is what set a flag: the flag itself, a variable, or a line of the file.
func origin(flags *pflag.FlagSet, name string) string {
	if by := flags.Lookup(name).Annotations[originNote]; len(by) > 0 {
		return by[0]
	}
	return "--" + name
}

// mayHoldSecret reports whether a text may be a URL or a DSN with a password, or with a
// key in its query.
func mayHoldSecret(text string) bool {
	return strings.ContainsAny(text, "@?") || strings.Contains(strings.ToLower(text), "password")
}

// quotedArg is a text of the command line as an error repeats it.
func quotedArg(text string) string {
	if mayHoldSecret(text) {
		return hidden
	}
	return strconv.Quote(text)
}

// badValue words a value that a flag doesn't take.
func badValue(f *pflag.Flag, value, where string, cause error) error {
	if slices.Contains(secretFlags, f.Name) || mayHoldSecret(value) {
		return usagef("%s: bad value: %v", where, cause)
	}
	return usagef("%s: bad value %q: %v", where, value, cause)
}

// flagError words what pflag says about a command line.
func flagError(cmd *cobra.Command, err error) error {
	var bad *pflag.InvalidValueError
	if errors.As(err, &bad) {
		cause := errors.Unwrap(bad)
		if bad.GetFlag().Value.Type() == "bool" {
			cause = errors.New("true or false is expected")
		}
		return badValue(bad.GetFlag(), bad.GetValue(), "--"+bad.GetFlag().Name, cause)
	}
	suggestion := ""
	var unknown *pflag.NotExistError
	if errors.As(err, &unknown) {
		var known []string
		cmd.Flags().VisitAll(func(f *pflag.Flag) { known = append(known, f.Name) })
		suggestion = didYouMean(unknown.GetSpecifiedName(), known, func(name string) string { return "--" + name })
	}
	return usagef("%v%s", err, withList(suggestion, cmd.CommandPath()+" --help lists the flags"))
}

// serviceLink matches what Kubernetes puts into the environment of each
// container when a Service is called fenceproxy. They are not ours.
var serviceLink = regexp.MustCompile(`^FENCEPROXY_(.*_)?(SERVICE_HOST|SERVICE_PORT(_.+)?|PORT(_\d+_(TCP|UDP).*)?)$`)

// check refuses variables that look like settings and are none: a setting
// that is misspelled must not be silently without effect.
func (e environment) check(known map[string]bool, found *faults) {
	for _, entry := range e.all {
		name, _, _ := strings.Cut(entry, "=")
		if !strings.HasPrefix(name, envPrefix) || name == envPrefix+"PG_BIN" || serviceLink.MatchString(name) {
			continue
		}
		if flag := flagOfVariable(name); !known[flag] || variable(flag) != name {
			found.add(noSetting(name, flag, known, variable))
		}
	}
}

// noSetting words that a name is none of a setting. The one that may have been meant is
// unsettled.
func noSetting(where, flag string, known map[string]bool, form func(string) string) error {
	names := slices.Collect(maps.Keys(known))
	err := usagef("%s: no such setting%s", where, didYouMean(flag, names, form))
	if near := spelling.Nearest(flag, names); near != "" {
		return &unsettled{err, near}
	}
	return err
}

// flagOfVariable is the reverse of variable.
func flagOfVariable(name string) string {
	return strings.ReplaceAll(strings.ToLower(strings.TrimPrefix(name, envPrefix)), "_", "-")
}

func variable(flag string) string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}
