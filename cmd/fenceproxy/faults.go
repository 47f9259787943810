package main

import (
	"errors"
	"strings"

	"github.com/spf13/pflag"
)

// faults are several things that are wrong with what a command was given, told
// together, each in a line.
type faults []error

// add notes what is wrong; nil is nothing.
func (f *faults) add(err error) {
	var several faults
	switch {
	case err == nil:
	case errors.As(err, &several):
		*f = append(*f, several...)
	default:
		*f = append(*f, err)
	}
}

// err is nil if nothing is wrong.
func (f faults) err() error {
	if len(f) == 0 {
		return nil
	}
	return f
}

func (f faults) Error() string {
	texts := make([]string, len(f))
	for i, err := range f {
		texts[i] = oneLine(err)
	}
	return strings.Join(texts, "\n")
}

func (f faults) Unwrap() []error { return f }

// An unsettled fault is one for which the value of a setting isn't known: what else
// would be said of that setting may be wrong.
type unsettled struct {
	error
	flag string // "" is each that nothing has set
}

func (u *unsettled) Unwrap() error { return u.error }

// doubt reports whether an error is about a setting that these leave unsettled.
func (f faults) doubt(flags *pflag.FlagSet, about error) bool {
	for _, name := range settingName.FindAllString(about.Error(), -1) {
		flag := flags.Lookup(flagOf(name))
		if flag == nil || flag.Changed {
			continue
		}
		for _, err := range f {
			var u *unsettled
			if errors.As(err, &u) && (u.flag == "" || u.flag == flag.Name) {
				return true
			}
		}
	}
	return false
}

// oneLine is an error's text; errors that were joined stand on lines of their own.
func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }
