package clients

import (
	"fmt"
	"strings"
)

// A Result is what a client saw on every leg.
type Result struct {
	Client Client
	Legs   map[Leg]Transcript
}

// Table is the results in Markdown.
func Table(results []Result) string {
	var b strings.Builder
	b.WriteString("| client | version | what was tried | untagged | tagged | tagged, TLS | lock lost meanwhile | stale token | unknown token |\n")
	b.WriteString("|---|---|---|---|---|---|---|---|---|\n")
	for _, r := range results {
		straight, stale := r.Legs[Straight], r.Legs[Stale]
		var tried []string
		for _, s := range straight {
			if s.Name != "version" {
				tried = append(tried, s.Name)
			}
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s | %s | %s | %s |\n",
			r.Client.Name, straight.Seen("version"), strings.Join(tried, ", "),
			r.compared(Untagged), r.compared(Tagged), r.compared(Encrypted),
			distinct(stale.Seen("evicted")), distinct(stale.Seen("stale")), distinct(stale.Seen("unknown")))
	}
	return b.String()
}

// Line says in short how a client fared.
func (r Result) Line() string {
	stale := r.Legs[Stale]
	return fmt.Sprintf("%-22s %2d steps  untagged %s, tagged %s, TLS %s  lock lost %s, stale %s, unknown %s",
		r.Client.Name, len(r.Legs[Straight]), r.compared(Untagged), r.compared(Tagged), r.compared(Encrypted),
		distinct(stale.Seen("evicted")), distinct(stale.Seen("stale")), distinct(stale.Seen("unknown")))
}

// compared tells a leg from the straight one.
func (r Result) compared(leg Leg) string {
	if n := len(r.Legs[Straight].Differences(r.Legs[leg])); n > 0 {
		return fmt.Sprintf("%d differences", n)
	}
	return "same"
}

// distinct leaves out words that are the same as the one before.
func distinct(words string) string {
	var all []string
	for _, w := range strings.Fields(words) {
		if len(all) == 0 || all[len(all)-1] != w {
			all = append(all, w)
		}
	}
	return strings.Join(all, " ")
}

// Recipes is how each client tags a session, in Markdown. source returns the
// text of a program.
func Recipes(all []Client, source func(name string) (string, error)) (string, error) {
	var b strings.Builder
	names := map[string][]string{} // of the clients with a recipe
	for _, c := range all {
		names[c.Recipe] = append(names[c.Recipe], c.Name)
	}
	for _, c := range all {
		if names[c.Recipe] == nil {
			continue
		}
		text, err := source(c.Recipe)
		if err != nil {
			return "", err
		}
		recipe, err := cut(text)
		if err != nil {
			return "", fmt.Errorf("%s: %w", c.Recipe, err)
		}
		fmt.Fprintf(&b, "### %s\n\n```%s\n%s\n```\n\n", strings.Join(names[c.Recipe], ", "), c.Language, recipe)
		names[c.Recipe] = nil
	}
	return strings.TrimSuffix(b.String(), "\n"), nil
}

// cut returns the lines of a program between the comments "recipe" and "end",
// indented no more than the first. Ruby has an end that is no comment.
func cut(text string) (string, error) {
	var lines []string
	inside := false
	for line := range strings.Lines(text) {
		switch words := strings.TrimSpace(line); strings.Trim(words, " /#") {
		case "recipe":
			inside = true
			continue
		case "end":
			if inside && words != "end" {
				return strings.TrimSpace(strings.Join(lines, "\n")), nil
			}
		}
		if inside {
			line = strings.TrimRight(line, "\n")
			if len(lines) > 0 {
				indent := lines[0][:len(lines[0])-len(strings.TrimLeft(lines[0], " \t"))]
				line = strings.TrimPrefix(line, indent)
			}
			lines = append(lines, line)
		}
	}
	return "", fmt.Errorf("it has no lines from `recipe` to `end`")
}

// Section returns what stands in a document between the comments that begin and
// end a section.
func Section(doc, name string) (string, error) {
	_, rest, begins := strings.Cut(doc, begin(name))
	section, _, ends := strings.Cut(rest, end(name))
	if !begins || !ends {
		return "", fmt.Errorf("the document has no section %s", name)
	}
	return section, nil
}

// Replace puts text into a section of a document.
func Replace(doc, name, text string) (string, error) {
	old, err := Section(doc, name)
	if err != nil {
		return "", err
	}
	return strings.Replace(doc, begin(name)+old+end(name), begin(name)+text+end(name), 1), nil
}

func begin(name string) string { return "<!-- " + name + ": made by make clients -->\n\n" }
func end(name string) string   { return "\n<!-- end of " + name + " -->\n" }
