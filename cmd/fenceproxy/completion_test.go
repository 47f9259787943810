package main

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// proposals are what the program answers to the shells' scripts.
func proposals(t testing.TB, words ...string) (got []string, directive string) {
	t.Helper()
	var stdout, stderr strings.Builder
	if err := run(t.Context(), append([]string{cobra.ShellCompRequestCmd}, words...), &stdout, &stderr); err != nil {
		t.Fatalf("%q: got %v: %s", words, err, stderr.String())
	}
	for line := range strings.Lines(stdout.String()) {
		line = strings.TrimSuffix(line, "\n")
		if rest, found := strings.CutPrefix(line, ":"); found {
			return got, rest
		}
		// The scripts leave out what doesn't begin with what was typed.
		word, _, _ := strings.Cut(line, "\t")
		typed := words[len(words)-1]
		if strings.HasPrefix(word, typed[strings.LastIndex(typed, "=")+1:]) {
			got = append(got, word)
		}
	}
	t.Fatalf("%q: got %q, which has no end", words, stdout.String())
	return nil, ""
}

func TestCompletion_Proposals(t *testing.T) {
	const files, none, dirs = "0", "4", "16"
	for name, c := range map[string]struct {
		words, want []string
		directive   string
	}{
		"commands":            {[]string{"do"}, []string{"doctor"}, none},
		"help":                {[]string{"help", "un"}, []string{"unprotect"}, none},
		"no hidden one":       {[]string{"act"}, nil, none},
		"flags":               {[]string{"lock", "--wa"}, []string{"--wait"}, none},
		"words of a choice":   {[]string{"serve", "--fencing", ""}, []string{"accepted", "issued", "live"}, none},
		"a choice, joined":    {[]string{"serve", "--log-format=j"}, []string{"json"}, none},
		"a file":              {[]string{"serve", "--client-tls-key", ""}, nil, files},
		"a folder":            {[]string{"serve", "--embed-etcd", ""}, nil, dirs},
		"a duration":          {[]string{"serve", "--claim-timeout", ""}, nil, none},
		"a password":          {[]string{"serve", "--upstream-password", ""}, nil, none},
		"a code":              {[]string{"explain", "LF008"}, []string{"LF008"}, files},
		"no flag for secrets": {[]string{"serve", "--etcd-pass"}, []string{"--etcd-password-file"}, none},
		"SQL or a file":       {[]string{"explain", ""}, nil, files},
		"a table":             {[]string{"protect", ""}, nil, none},
		"named scenario":      {[]string{"demo", "paused-holder", "paused-h"}, nil, none},
		"a scenario":          {[]string{"demo", "paused-h"}, []string{"paused-holder"}, none},
		"a key":               {[]string{"lock", ""}, nil, none},
		"the command's files": {[]string{"lock", "k", "--", "cat", ""}, nil, files},
		"the command's flags": {[]string{"lock", "k", "--", "cat", "--wa"}, nil, files},
		"the command's path":  {[]string{"lock", "k", "--", "/bin/c"}, nil, files},
	} {
		t.Run(name, func(t *testing.T) {
			got, directive := proposals(t, c.words...)
			if strings.Join(got, " ") != strings.Join(c.want, " ") || directive != c.directive {
				t.Errorf("got %q and %s, want %q and %s", got, directive, c.want, c.directive)
			}
		})
	}
}

// What shells show of a flag is plain text.
func TestCompletion_Plain(t *testing.T) {
	var stdout, stderr strings.Builder
	if err := run(t.Context(), []string{cobra.ShellCompRequestCmd, "serve", "--"}, &stdout, &stderr); err != nil {
		t.Fatalf("got %v: %s", err, stderr.String())
	}
	if got := stdout.String(); strings.Contains(got, "`") || !strings.Contains(got, "--auth-file\ta FILE in the format") {
		t.Errorf("got %s, want descriptions without quotes", got)
	}
}
