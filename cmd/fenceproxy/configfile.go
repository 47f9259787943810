package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/pflag"
	"gopkg.in/yaml.v3"
)

// A settingsFile is a YAML mapping whose keys are flag names with _ for -. A list
// stands for its items joined with commas.
type settingsFile struct {
	path  string
	flags *pflag.FlagSet
	known map[string]bool // also those of other commands
}

func fileKey(flag string) string { return strings.ReplaceAll(flag, "-", "_") }

// read sets the flags that are still open.
func (s *settingsFile) read(found *faults) {
	top, err := s.mapping()
	if err != nil {
		found.add(&unsettled{err, ""}) // what isn't read may say anything
	}
	if top == nil {
		return
	}
	seen := map[string]int{}
	for i := 0; i+1 < len(top.Content); i += 2 {
		key, value := top.Content[i], top.Content[i+1]
		where := fmt.Sprintf("%s:%d: %s", s.path, key.Line, key.Value)
		if line, ok := seen[key.Value]; ok {
			found.add(usagef("%s: stands in line %d already", where, line))
			continue
		}
		seen[key.Value] = key.Line
		found.add(s.set(key.Value, value, where))
	}
}

// mapping returns the settings, nil if there are none; with an error what could be read
// all the same.
func (s *settingsFile) mapping() (*yaml.Node, error) {
	text, err := os.ReadFile(s.path)
	if err != nil {
		return nil, usagef("config: %v", err)
	}
	var doc, second yaml.Node
	documents := yaml.NewDecoder(bytes.NewReader(text))
	if err := documents.Decode(&doc); err != nil && !errors.Is(err, io.EOF) {
		return nil, syntaxError(s.path, err)
	}
	switch err = documents.Decode(&second); {
	case err == nil:
		err = usagef("%s:%d: a second document, of which nothing would be read: put all settings in one, without ---", s.path, second.Line)
	case errors.Is(err, io.EOF):
		err = nil
	default:
		err = syntaxError(s.path, err)
	}
	if len(doc.Content) == 0 || doc.Content[0].Tag == "!!null" {
		return nil, err
	}
	top := doc.Content[0]
	if top.Kind != yaml.MappingNode {
		return nil, usagef("%s:%d: a mapping of settings to values is expected", s.path, top.Line)
	}
	return top, err
}

// syntaxError puts the line behind the file's name, as other errors have it. The
// library's words for an alias without its anchor repeat it, and it can be a password.
func syntaxError(path string, err error) error {
	why := strings.TrimPrefix(err.Error(), "yaml: ")
	if strings.HasPrefix(why, "unknown anchor") {
		return usagef("%s: a value that begins with * must stand in quotes", path)
	}
	line := 1 // where the library names none
	if n, _ := fmt.Sscanf(why, "line %d:", &line); n == 1 {
		_, why, _ = strings.Cut(why, ": ")
	}
	return usagef("%s:%d: %s", path, line, why)
}

func (s *settingsFile) set(key string, value *yaml.Node, where string) error {
	name := strings.ReplaceAll(key, "_", "-")
	if name == "config" {
		return usagef("%s: the file is named by --config or %s only; take the line out", where, variable(name))
	}
	if !s.known[name] || fileKey(name) != key {
		return noSetting(where, name, s.known, fileKey)
	}
	f := s.flags.Lookup(name)
	if name == policiesFlag {
		return s.setPolicies(f, value, where)
	}
	text, ok := scalars(value)
	if !ok {
		return &unsettled{usagef("%s: a value or a list of values is expected", where), name}
	}
	if f == nil || f.Changed {
		return nil // another command's, or set by command line or environment
	}
	if err := set(f, text, where); err != nil {
		return err
	}
	f.Annotations[fileNote] = []string{text}
	return nil
}

// setPolicies sets the flag whose value is more than a list of values.
func (s *settingsFile) setPolicies(f *pflag.Flag, value *yaml.Node, where string) error {
	rules := &policyRules{} // checked also where another command's file it is
	open := f != nil && !f.Changed
	if open {
		rules = f.Value.(*policyRules)
	}
	if wrong := rules.setNode(value); len(wrong) > 0 {
		var found faults
		for _, w := range wrong {
			found.add(usagef("%s:%d: %s: %v", s.path, w.line, policiesFlag, w.error))
		}
		return found
	}
	if open {
		noteOrigin(f, where)
		f.Annotations[fileNote] = []string{rules.text}
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
