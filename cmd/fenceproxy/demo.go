package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	harness "github.com/fenceproxy/fenceproxy/testharness/command"
	"github.com/fenceproxy/fenceproxy/testharness/scenario"
	"github.com/fenceproxy/fenceproxy/testharness/scenario/report"
)

// demoCommand plays stories: each without fencing, to see the damage, and
// then through proxies.
type demoCommand struct {
	list, all, json bool
	report          string

	timeline *scenario.Timeline
	stdout   io.Writer
	page     io.Writer // of report, if there is one
}

func newDemo(env environment) *cobra.Command {
	c := &demoCommand{}
	cmd := &cobra.Command{
		Use:        "demo [SCENARIO…]",
		SuggestFor: []string{"scenario", "scenarios"},
		Short:      "See a stale lock holder corrupt data, and be refused through the proxy",
		Long: `Play SCENARIO (paused-holder if none is named; --list tells which there are) on a throw-away
PostgreSQL and etcd: first without fencing, to see the damage, then through two proxies.
Workers and proxies are processes that are really paused and killed, and leases are real.

The exit status is 0 only if each run without fencing shows damage, and each through
fenceproxy shows none, and refusals with the right code.`,
		ValidArgsFunction: proposeScenarios,
		RunE: func(cmd *cobra.Command, args []string) error {
			stories, err := c.choose(args)
			if err != nil {
				return err
			}
			c.stdout = cmd.OutOrStdout()
			if c.list {
				return c.printList(stories)
			}
			colour := wantsColour(c.stdout, env)
			ctx, stdout, stop := harness.Audience(cmd.Context(), c.stdout)
			defer stop()
			c.stdout = stdout
			out := c.stdout
			if c.json {
				out = io.Discard
			}
			c.timeline = scenario.NewTimeline(out, colour && !c.json)
			if err := c.run(ctx, stories); err != nil || len(args) > 0 || c.all {
				return err
			}
			c.timeline.Heading("%d more scenarios: fenceproxy demo --list", len(scenario.Stories())-len(stories))
			return nil
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&c.list, "list", false, "list the scenarios")
	flags.BoolVar(&c.all, "all", false, "play all of them")
	flags.BoolVar(&c.json, "json", false, "print one JSON object a scenario instead of text")
	flags.StringVar(&c.report, "report", "", "write what was seen as one HTML `FILE`, with a diagram of each run")
	return cmd
}

// choose returns the stories that were named.
func (c *demoCommand) choose(names []string) ([]scenario.Story, error) {
	stories := scenario.Stories()
	switch {
	case c.all && len(names) > 0:
		return nil, usagef("demo: --all and the name of a scenario exclude each other")
	case c.all, c.list && len(names) == 0:
		return stories, nil
	case len(names) == 0:
		return stories[:1], nil
	}
	byName := map[string]scenario.Story{}
	known := make([]string, len(stories))
	for i, s := range stories {
		byName[s.Name], known[i] = s, s.Name
	}
	var chosen []scenario.Story
	for i, name := range names {
		s, ok := byName[name]
		switch {
		case !ok:
			return nil, usagef("demo: no scenario %q%s", name, withList(didYouMean(name, known, asItIs), "fenceproxy demo --list lists them"))
		case slices.Contains(names[:i], name):
			return nil, usagef("demo: %s is named twice", name)
		}
		chosen = append(chosen, s)
	}
	return chosen, nil
}

func (c *demoCommand) printList(stories []scenario.Story) error {
	for _, s := range stories {
		if c.json {
			if err := json.NewEncoder(c.stdout).Encode(listed{s.Name, s.Title, s.Case, s.Text}); err != nil {
				return err
			}
			continue
		}
		if _, err := fmt.Fprintf(c.stdout, "%-24s%s\n", s.Name, s.Title); err != nil {
			return err
		}
	}
	return nil
}

// listed is what --list --json says of a scenario.
type listed struct {
	Scenario string `json:"scenario"`
	Title    string `json:"title"`
	Case     int    `json:"case,omitempty"`
	Text     string `json:"text"`
}

// run plays the stories and tells them in order. It goes on after a story that
// doesn't show what it should, and fails at the end.
func (c *demoCommand) run(ctx context.Context, stories []scenario.Story) (err error) {
	if c.report != "" {
		// It is known before the play whether it can be written.
		f, err := os.Create(c.report)
		if err != nil {
			return usagef("--report: %v", err)
		}
		defer f.Close()
		c.page = f
	}
	t, err := openTheatre(ctx)
	if err != nil {
		return errors.Join(err, c.writeReport(report.Contents{Missing: []string{err.Error()}}))
	}
	contents, err := c.tellAll(t.ctx, t.perform(stories))
	return errors.Join(err, t.close(), c.writeReport(contents))
}

// tellAll tells the stories. A story that can't be played, or doesn't show
// what it should, is an error in the end and doesn't keep the others back.
func (c *demoCommand) tellAll(ctx context.Context, performances []performance) (told report.Contents, err error) {
	var faults []string
	for _, p := range performances {
		result, err := c.tell(p)
		if ctx.Err() != nil {
			told.Missing = append(told.Missing, fmt.Sprintf("%s and what was to come after it: %v", p.story.Name, context.Cause(ctx)))
			return told, context.Cause(ctx)
		}
		if err != nil {
			c.timeline.Bad("  NOT PLAYED: %v", err)
			told.Missing, faults = append(told.Missing, err.Error()), append(faults, err.Error())
			continue
		}
		told.Results = append(told.Results, result)
		if c.json {
			if err := json.NewEncoder(c.stdout).Encode(result); err != nil {
				return told, err
			}
		}
		if err := result.Check(); err != nil {
			c.timeline.Bad("  NOT AS PROMISED: %v", err)
			faults = append(faults, err.Error())
		}
	}
	if len(faults) > 0 {
		return told, fmt.Errorf("demo: %s", strings.Join(faults, "; "))
	}
	return told, nil
}

// writeReport writes the report, if one was asked for.
func (c *demoCommand) writeReport(contents report.Contents) error {
	if c.page == nil {
		return nil
	}
	contents.By = fmt.Sprintf("Made by fenceproxy demo, version %s, on %s", buildVersion(), time.Now().Format("2 January 2006, 15:04 MST"))
	return report.Write(c.page, contents)
}

// tell prints the runs of a story as they go on.
func (c *demoCommand) tell(p performance) (scenario.Result, error) {
	c.timeline.Heading("%s: %s", p.story.Name, p.story.Title)
	c.timeline.Say(p.story.Text)
	var verdicts []scenario.Verdict
	for i, r := range p.runs {
		c.timeline.Heading("%d. %s", i+1, r.arm.Title())
		c.follow(r)
		if r.err != nil {
			return scenario.Result{}, r.err
		}
		c.conclude(r.verdict, p.story)
		verdicts = append(verdicts, r.verdict)
	}
	return scenario.NewResult(p.story, verdicts), nil
}

// follow prints the events of a run until it is over.
func (c *demoCommand) follow(r *showing) {
	c.timeline.Begin()
	told := 0
	for over := false; ; {
		for _, e := range r.history.Events(told) {
			c.timeline.Print(e)
			told++
		}
		if over {
			return
		}
		select {
		case <-r.history.Changed():
		case <-r.done:
			over = true
		}
	}
}

func (c *demoCommand) conclude(v scenario.Verdict, story scenario.Story) {
	if !v.Damaged() {
		c.timeline.Good("  Right. Stale writes committed: 0, refused: %d. The outcome is %s.", len(v.Rejections), story.Right)
		return
	}
	count := fmt.Sprintf("Stale writes committed: %d.", v.StaleCommits)
	if v.ForgedCommits > 0 {
		count += fmt.Sprintf(" Under forged numbers: %d.", v.ForgedCommits)
	}
	c.timeline.Bad("  CORRUPTED. %s Right would be: %s.", count, story.Right)
}

// wantsColour says whether out is a terminal whose user hasn't asked for
// plain text (no-color.org).
func wantsColour(out io.Writer, env environment) bool {
	f, ok := out.(*os.File)
	if !ok {
		return false
	}
	if _, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ); err != nil {
		return false
	}
	no, _ := env.lookup("NO_COLOR")
	terminal, _ := env.lookup("TERM")
	return no == "" && terminal != "dumb"
}
