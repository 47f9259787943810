package main

import (
	"errors"
	"strings"
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

// oneLine is an error's text; errors that were joined stand on lines of their own.
func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }
