package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"

	"github.com/spf13/pflag"
)

// hidden is what is printed in a secret's place.
const hidden = "(hidden)"

// A secret is a text that no way of printing shows. It is behind a pointer, for
// package fmt asks no method of what is in a field that isn't exported.
type secret struct{ text *string }

func (secret) String() string               { return hidden }
func (secret) GoString() string             { return hidden }
func (secret) LogValue() slog.Value         { return slog.StringValue(hidden) }
func (secret) MarshalText() ([]byte, error) { return []byte(hidden), nil }
func (secret) Format(f fmt.State, _ rune)   { _, _ = io.WriteString(f, hidden) }

// reveal is the text, for whom it is meant.
func (s secret) reveal() string {
	if s.text == nil {
		return ""
	}
	return *s.text
}

// A password is a setting that a variable or the file can hold, but not the
// command line, which everybody on the machine can read.
type password struct{ secret }

// Set is what the command line calls.
func (p *password) Set(string) error {
	return errors.New("on the command line everybody could read it: name a file that has it, or use the variable or the file of settings")
}

// setHidden is Set from a variable or the file of settings.
func (p *password) setHidden(text string) error {
	line, ok := oneSecret(text)
	if !ok {
		return errors.New("it is empty, or more than one line")
	}
	p.text = &line
	return nil
}

// oneSecret is the secret in a text, if that is one line. What ends the line isn't part
// of it: editors and Kubernetes' Secrets put a newline behind.
func oneSecret(text string) (line string, ok bool) {
	line = strings.TrimRight(text, "\r\n")
	return line, line != "" && !strings.ContainsAny(line, "\r\n")
}

func (p *password) String() string { return "" }
func (*password) Type() string     { return "password" }

// passwordFlags are the two ways to give a password: the text, or a file that is
// read whenever it is needed.
type passwordFlags struct {
	name string // of the flag of the text
	text password
	file string
}

func (f *passwordFlags) add(flags *pflag.FlagSet, usage string) {
	flags.Var(&f.text, f.name, usage+": by "+variable(f.name)+" or the file of settings only")
	flags.StringVar(&f.file, f.name+"-file", "", usage+", in a `FILE`")
}

func (f *passwordFlags) set() bool { return f.text.text != nil || f.file != "" }

// given is which of the two was.
func (f *passwordFlags) given() string {
	if f.file != "" {
		return "--" + f.name + "-file"
	}
	return variable(f.name)
}

// ways are those of the two that were used, each by itself.
func (f *passwordFlags) ways() (used []passwordFlags) {
	if f.text.text != nil {
		used = append(used, passwordFlags{name: f.name, text: f.text})
	}
	if f.file != "" {
		used = append(used, passwordFlags{name: f.name, file: f.file})
	}
	return used
}

// check looks whether a password that was given can be read, and in one way only.
func (f *passwordFlags) check() error {
	var found faults
	ways := f.ways()
	if len(ways) > 1 {
		found.add(usagef("%s and --%s-file exclude each other", variable(f.name), f.name))
	}
	for _, way := range ways {
		_, err := way.read()
		found.add(err)
	}
	return found.err()
}

// read returns the password, empty if none was given.
func (f *passwordFlags) read() (secret, error) {
	if f.file == "" {
		return f.text.secret, nil
	}
	text, err := os.ReadFile(f.file)
	if err != nil {
		return secret{}, usagef("--%s-file: %v", f.name, err)
	}
	line, ok := oneSecret(string(text))
	if !ok {
		return secret{}, usagef("--%s-file %s: one line with the password is expected", f.name, f.file)
	}
	return secret{&line}, nil
}
