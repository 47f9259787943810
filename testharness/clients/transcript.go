package clients

import (
	"fmt"
	"strings"
)

// A Step is one line that a program printed.
type Step struct{ Name, Seen string }

// A Transcript is what a program printed.
type Transcript []Step

// Add reads a line. A line that isn't a step is part of the last one, so that
// a difference in it shows.
func (t *Transcript) Add(line string) {
	name, seen, ok := strings.Cut(line, ": ")
	if ok && !strings.ContainsAny(name, " \t") {
		*t = append(*t, Step{name, seen})
		return
	}
	if len(*t) == 0 {
		*t = append(*t, Step{})
	}
	(*t)[len(*t)-1].Seen += "\n" + line
}

// Seen is what a step saw; "" where there is no such step.
func (t Transcript) Seen(name string) string {
	for _, s := range t {
		if s.Name == name {
			return s.Seen
		}
	}
	return ""
}

// Differences tells the steps that are not the same in another transcript.
func (t Transcript) Differences(other Transcript) []string {
	var all []string
	for i := range max(len(t), len(other)) {
		switch {
		case i >= len(t):
			all = append(all, fmt.Sprintf("%s: got %q, want nothing", other[i].Name, other[i].Seen))
		case i >= len(other):
			all = append(all, fmt.Sprintf("%s: got nothing, want %q", t[i].Name, t[i].Seen))
		case t[i] != other[i]:
			all = append(all, fmt.Sprintf("%s: got %q, want %q (%s)", other[i].Name, other[i].Seen, t[i].Seen, t[i].Name))
		}
	}
	return all
}

// Lacks tells what of wants a transcript doesn't have.
func (t Transcript) Lacks(wants map[string]string) []string {
	var all []string
	for name, want := range wants {
		if got := t.Seen(name); got == "" || want != "" && got != want {
			all = append(all, fmt.Sprintf("%s: got %q, want %q", name, got, want))
		}
	}
	return all
}
