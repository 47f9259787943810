package report

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"slices"
	"strings"

	"github.com/fenceproxy/fenceproxy/fencing"
	"github.com/fenceproxy/fenceproxy/testharness/scenario"
)

//go:embed page.gohtml
var pageText string

// A page is what the template shows.
type page struct {
	By        string // what made it, and when
	Promised  bool
	Missing   []string
	Codes     []fencing.Code // that refused something through fenceproxy
	Scenarios []section
}

// A section is one scenario.
type section struct {
	Name, Title, Text string
	Case              int
	Right             string
	Fault             string // why it isn't as promised
	Runs              []figure
}

// A figure is one run.
type figure struct {
	Title   string
	Short   string // the title, in a word or two
	Summary string // what came of it, in a few words
	Damaged bool
	Fenced  bool
	Diagram diagram
}

// Contents are what a page is made of.
type Contents struct {
	By      string // what made it and when
	Results []scenario.Result
	Missing []string // why stories that were to be played weren't
}

// Write writes the page.
func Write(w io.Writer, c Contents) error {
	t, err := template.New("page").Parse(pageText)
	if err != nil {
		return fmt.Errorf("parse the report's template: %w", err)
	}
	p := page{By: c.By, Missing: c.Missing, Promised: len(c.Missing) == 0}
	for _, r := range c.Results {
		s := newSection(r)
		p.Promised = p.Promised && s.Fault == ""
		p.Scenarios = append(p.Scenarios, s)
		for _, rejection := range r.Protected.Rejections {
			p.Codes = append(p.Codes, rejection.Code)
		}
	}
	slices.Sort(p.Codes)
	p.Codes = slices.Compact(p.Codes)
	if err := t.Execute(w, p); err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	return nil
}

func newSection(r scenario.Result) section {
	s := section{Name: r.Scenario, Title: r.Title, Case: r.Case, Right: r.Story.Right,
		Text: strings.ReplaceAll(r.Story.Text, "\n", " ")}
	if err := r.Check(); err != nil {
		s.Fault = err.Error()
	}
	for _, v := range append(r.Controls(), r.Protected) {
		s.Runs = append(s.Runs, figure{
			Title:   v.Arm.Title(),
			Short:   v.Arm.Short(),
			Summary: summary(v),
			Damaged: v.Damaged(),
			Fenced:  v.Arm == scenario.ArmFenced,
			Diagram: draw(v.Events),
		})
	}
	return s
}

// summary says in a few words what came of a run.
func summary(v scenario.Verdict) string {
	var parts []string
	if v.StaleCommits > 0 {
		parts = append(parts, counted(v.StaleCommits, "stale write"))
	}
	if v.ForgedCommits > 0 {
		parts = append(parts, counted(v.ForgedCommits, "forged write"))
	}
	if len(v.Wrong) > 0 {
		parts = append(parts, counted(len(v.Wrong), "wrong row"))
	}
	if len(parts) == 0 {
		parts = append(parts, "no damage")
	}
	if n := len(v.Rejections); n > 0 {
		parts = append(parts, fmt.Sprintf("%d refused (%s)", n, codes(v.Rejections)))
	}
	return strings.Join(parts, ", ")
}

func counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// codes lists the codes of refusals, each once.
func codes(rejections []scenario.Rejection) string {
	var list []string
	seen := map[string]bool{}
	for _, r := range rejections {
		if c := string(r.Code); !seen[c] {
			seen[c] = true
			list = append(list, c)
		}
	}
	return strings.Join(list, ", ")
}
