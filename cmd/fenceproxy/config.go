package main

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"gopkg.in/yaml.v3"
)

// envPrefix starts the name of each variable that stands for a flag:
// FENCEPROXY_CLAIM_TIMEOUT is --claim-timeout.
const envPrefix = "FENCEPROXY_"

// secretFlags are those whose values never stand in a message.
var secretFlags = []string{"upstream"}

// consentFlags are given to one command line, and are no settings.
var consentFlags = []string{"yes", "force"}

// environment is where variables come from.
type environment struct {
	lookup func(string) (string, bool)
	all    []string
}

// configure sets the flags of cmd that the command line left open: from the
// environment, and what that leaves open too from the file that --config
// names. Errors name the variable, or the file, line and key.
func configure(cmd *cobra.Command, env environment) error {
	known := knownFlags(cmd.Root())
	if err := env.check(known); err != nil {
		return err
	}
	var failed error
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		value, ok := env.lookup(variable(f.Name))
		if failed != nil || f.Changed || !ok || !known[f.Name] {
			return
		}
		failed = set(f, value, variable(f.Name))
	})
	if failed != nil {
		return failed
	}
	config := cmd.Flags().Lookup("config")
	if config == nil || config.Value.String() == "" {
		return nil
	}
	delete(known, config.Name) // a file names no other one
	return configureFromFile(cmd.Flags(), config.Value.String(), known)
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
	if err := f.Value.Set(value); err != nil {
		return badValue(f, value, where, err)
	}
	f.Changed = true
	f.Annotations = map[string][]string{originNote: {where}}
	return nil
}

// originNote is the annotation of a flag that the command line hasn't set.
const originNote = "set by"

// origin is what set a flag: the flag itself, a variable, or a line of the file.
func origin(flags *pflag.FlagSet, name string) string {
	if by := flags.Lookup(name).Annotations[originNote]; len(by) > 0 {
		return by[0]
	}
	return "--" + name
}

// badValue words a value that a flag doesn't take.
func badValue(f *pflag.Flag, value, where string, cause error) error {
	if slices.Contains(secretFlags, f.Name) {
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
	return usagef("%v; %s --help lists the flags", err, cmd.CommandPath())
}

// serviceLink matches what Kubernetes puts into the environment of each
// container when a Service is called fenceproxy. They are not ours.
var serviceLink = regexp.MustCompile(`^FENCEPROXY_(.*_)?(SERVICE_HOST|SERVICE_PORT(_.+)?|PORT(_\d+_(TCP|UDP).*)?)$`)

// check refuses variables that look like settings and are none: a setting
// that is misspelled must not be silently without effect.
func (e environment) check(known map[string]bool) error {
	for _, entry := range e.all {
		name, _, _ := strings.Cut(entry, "=")
		if !strings.HasPrefix(name, envPrefix) || name == envPrefix+"PG_BIN" || serviceLink.MatchString(name) {
			continue
		}
		flag := strings.ReplaceAll(strings.ToLower(strings.TrimPrefix(name, envPrefix)), "_", "-")
		if !known[flag] || variable(flag) != name {
			return usagef("%s: no such setting%s", name, didYouMean(flag, known, variable))
		}
	}
	return nil
}

func variable(flag string) string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

func fileKey(flag string) string { return strings.ReplaceAll(flag, "-", "_") }

// configureFromFile reads a YAML mapping whose keys are flag names with _
// for -. A list stands for its items joined with commas.
func configureFromFile(flags *pflag.FlagSet, path string, known map[string]bool) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return usagef("config: %v", err)
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(text, &doc); err != nil {
		return syntaxError(path, err)
	}
	if len(doc.Content) == 0 {
		return nil
	}
	top := doc.Content[0]
	if top.Kind != yaml.MappingNode {
		return usagef("%s:%d: a mapping of settings to values is expected", path, top.Line)
	}
	seen := map[string]int{}
	for i := 0; i+1 < len(top.Content); i += 2 {
		key, value := top.Content[i], top.Content[i+1]
		where := fmt.Sprintf("%s:%d: %s", path, key.Line, key.Value)
		if line, ok := seen[key.Value]; ok {
			return usagef("%s: stands in line %d already", where, line)
		}
		seen[key.Value] = key.Line
		if err := setFromNode(flags, key.Value, value, where, known); err != nil {
			return err
		}
	}
	return nil
}

// syntaxError puts the line behind the file's name, as other errors have it.
func syntaxError(path string, err error) error {
	why := strings.TrimPrefix(err.Error(), "yaml: ")
	var line int
	if n, _ := fmt.Sscanf(why, "line %d:", &line); n == 1 {
		_, why, _ = strings.Cut(why, ": ")
		path = fmt.Sprintf("%s:%d", path, line)
	}
	return usagef("%s: %s", path, why)
}

func setFromNode(flags *pflag.FlagSet, key string, value *yaml.Node, where string, known map[string]bool) error {
	name := strings.ReplaceAll(key, "_", "-")
	if name == "config" {
		return usagef("%s: the file is named by --config or %s only; take the line out", where, variable(name))
	}
	if !known[name] || fileKey(name) != key {
		return usagef("%s: no such setting%s", where, didYouMean(name, known, fileKey))
	}
	f := flags.Lookup(name)
	if name == policiesFlag {
		return setPolicies(f, value, where)
	}
	text, ok := scalars(value)
	if !ok {
		return usagef("%s: a value or a list of values is expected", where)
	}
	if f == nil || f.Changed {
		return nil // another command's, or set by command line or environment
	}
	return set(f, text, where)
}

// setPolicies sets the flag whose value is more than a list of values.
func setPolicies(f *pflag.Flag, value *yaml.Node, where string) error {
	rules := &policyRules{} // checked also where another command's file it is
	if f != nil && !f.Changed {
		rules = f.Value.(*policyRules)
	}
	if err := rules.SetNode(value); err != nil {
		return usagef("%s: %v", where, err)
	}
	return nil
}

// scalars is the text of a scalar, or of a list of scalars joined with
// commas.
func scalars(value *yaml.Node) (string, bool) {
	switch value.Kind {
	case yaml.ScalarNode:
		return value.Value, value.Tag != "!!null"
	case yaml.SequenceNode:
		items := make([]string, len(value.Content))
		for i, item := range value.Content {
			if item.Kind != yaml.ScalarNode {
				return "", false
			}
			items[i] = item.Value
		}
		return strings.Join(items, ","), true
	default:
		return "", false
	}
}

// didYouMean names the known setting that is spelled most like name, in the
// form that the caller's place has it.
func didYouMean(name string, known map[string]bool, form func(string) string) string {
	best, distance := "", 4
	for k := range known {
		if d := editDistance(name, k); d < distance || d == distance && k < best {
			best, distance = k, d
		}
	}
	if best == "" {
		return ""
	}
	return "; did you mean " + form(best) + "?"
}

// editDistance is the number of letters to change, add or drop (Levenshtein).
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		diagonal := row[0]
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			diagonal, row[j] = row[j], min(row[j]+1, row[j-1]+1, diagonal+cost)
		}
	}
	return row[len(b)]
}
