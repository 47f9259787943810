package main

import (
	"regexp"
	"strings"

	"github.com/spf13/pflag"
)

// settingName is how messages about several settings, or about the file that one names,
// call them.
var settingName = regexp.MustCompile(`--[a-z][a-z0-9-]*|` + envPrefix + `[A-Z0-9_]+`)

// flagOf is the flag of a setting's name.
func flagOf(name string) string {
	if flag, ok := strings.CutPrefix(name, "--"); ok {
		return flag
	}
	return flagOfVariable(name)
}

// A locatedError tells of settings where they were set.
type locatedError struct {
	error
	text string
}

func (e *locatedError) Error() string { return e.text }
func (e *locatedError) Unwrap() error { return e.error }

// located has each fault name settings by where they were set: the variable, or file,
// line and key, in the place of the flag that somebody hasn't used.
func located(flags *pflag.FlagSet, err error) error {
	if err == nil || flags == nil {
		return err
	}
	var found faults
	found.add(err)
	told := make(faults, len(found))
	for i, fault := range found {
		told[i] = &locatedError{fault, settingName.ReplaceAllStringFunc(fault.Error(), func(name string) string {
			flag := flagOf(name)
			if f := flags.Lookup(flag); f == nil || !f.Changed || len(f.Annotations[originNote]) == 0 || flag == "config" {
				return name
			}
			return origin(flags, flag)
		})}
	}
	if len(told) == 1 {
		return told[0]
	}
	return told
}
