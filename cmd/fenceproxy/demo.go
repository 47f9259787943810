package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/fenceproxy/fenceproxy/leases"
	"github.com/fenceproxy/fenceproxy/testharness/scenario"
	"github.com/fenceproxy/fenceproxy/testharness/stack"
)

// demoTTL is the time to live of the workers' leases: the least that etcd
// grants.
const demoTTL = 2 * time.Second

// demoTimeout bounds one run of one story.
const demoTimeout = time.Minute

// demoCommand plays stories, each straight to PostgreSQL and then through
// proxies.
type demoCommand struct {
	list, all, json bool

	timeline *scenario.Timeline
	stdout   io.Writer
}

func newDemo(env environment) *cobra.Command {
	c := &demoCommand{}
	cmd := &cobra.Command{
		Use:   "demo [SCENARIO…]",
		Short: "See a stale lock holder corrupt data, and be refused through the proxy",
		Long: `Play SCENARIO (paused-holder if none is named) on a throw-away PostgreSQL and etcd: first
straight to PostgreSQL, then through two proxies. Workers are processes that are
really paused with SIGSTOP and hold real leases.

The exit status is 0 only if the first run shows the corruption and the second none.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			stories, err := c.choose(args)
			if err != nil {
				return err
			}
			c.stdout = cmd.OutOrStdout()
			if c.list {
				return c.printList(stories)
			}
			out := c.stdout
			if c.json {
				out = io.Discard
			}
			c.timeline = scenario.NewTimeline(out, wantsColour(out, env))
			return c.run(cmd.Context(), stories)
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&c.list, "list", false, "list the scenarios")
	flags.BoolVar(&c.all, "all", false, "play all of them")
	flags.BoolVar(&c.json, "json", false, "print one JSON object a scenario instead of text")
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
	chosen := make([]scenario.Story, len(names))
	for i, name := range names {
		s, ok := byName[name]
		if !ok {
			return nil, usagef("demo: no scenario %q; there are %s", name, strings.Join(known, ", "))
		}
		chosen[i] = s
	}
	return chosen, nil
}

func (c *demoCommand) printList(stories []scenario.Story) error {
	for _, s := range stories {
		if c.json {
			if err := json.NewEncoder(c.stdout).Encode(listed{s.Name, s.Title, s.Case}); err != nil {
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
	Case     string `json:"case"`
}

// run plays the stories one after the other on one stack. It goes on after a
// story that doesn't show what it should, and fails at the end.
func (c *demoCommand) run(ctx context.Context, stories []scenario.Story) (err error) {
	started, err := stack.Start(ctx, stack.Options{})
	if err != nil {
		return err
	}
	defer func() {
		if closed := started.Close(); err == nil {
			err = closed
		}
	}()
	var failed []string
	for _, story := range stories {
		result, err := c.play(ctx, started, story)
		if err != nil {
			return err
		}
		if c.json {
			if err := json.NewEncoder(c.stdout).Encode(result); err != nil {
				return err
			}
		}
		if err := result.Check(); err != nil {
			failed = append(failed, err.Error())
		}
	}
	if len(failed) > 0 {
		return fmt.Errorf("demo: %s", strings.Join(failed, "; "))
	}
	return nil
}

// play plays a story twice, each time in a database of its own.
func (c *demoCommand) play(ctx context.Context, s *stack.Stack, story scenario.Story) (scenario.Result, error) {
	result := scenario.Result{Scenario: story.Name}
	c.timeline.Heading("%s: %s", story.Name, story.Title)
	c.timeline.Say(story.Case)
	database := strings.ReplaceAll(story.Name, "-", "_")
	var err error
	c.timeline.Heading("1. Straight to PostgreSQL")
	if result.Unprotected, err = c.playStraight(ctx, s, story, database+"_straight"); err != nil {
		return result, err
	}
	c.conclude(result.Unprotected, story)
	c.timeline.Heading("2. Through fenceproxy, each worker through a proxy of its own")
	if result.Protected, err = c.playFenced(ctx, s, story, database+"_fenced"); err != nil {
		return result, err
	}
	c.conclude(result.Protected, story)
	return result, nil
}

func (c *demoCommand) playStraight(ctx context.Context, s *stack.Stack, story scenario.Story, database string) (scenario.Verdict, error) {
	if err := s.CreateDatabase(ctx, database); err != nil {
		return scenario.Verdict{}, err
	}
	straight := s.DSN(stack.RoleApp, database)
	return c.stage(ctx, s, story, straight, straight)
}

func (c *demoCommand) playFenced(ctx context.Context, s *stack.Stack, story scenario.Story, database string) (v scenario.Verdict, err error) {
	if err = s.CreateDatabase(ctx, database); err != nil {
		return v, err
	}
	if err = s.Install(ctx, database); err != nil {
		return v, err
	}
	var gates []string
	for range 2 {
		var p *stack.Proxy
		if p, err = s.StartProxy(database, "", nil); err != nil {
			return v, err
		}
		defer func() { err = errors.Join(err, p.Close()) }()
		gates = append(gates, s.ProxyDSN(p.Addr(), stack.RoleApp, database))
	}
	return c.stage(ctx, s, story, s.DSN(stack.RoleApp, database), gates...)
}

// stage plays a story once, the workers connecting at the gates.
func (c *demoCommand) stage(ctx context.Context, s *stack.Stack, story scenario.Story, admin string, gates ...string) (scenario.Verdict, error) {
	ctx, cancel := context.WithTimeout(ctx, demoTimeout)
	defer cancel()
	self, err := os.Executable()
	if err != nil {
		return scenario.Verdict{}, fmt.Errorf("find this program: %w", err)
	}
	history := scenario.NewHistory()
	history.Observe = c.timeline.Print
	stage := scenario.Stage{
		History: history,
		Etcd:    s.Client,
		Prefix:  leases.DefaultPrefix,
		TTL:     demoTTL,
		Command: []string{self, actorName},
		Admin:   admin,
		Gates:   gates,
	}
	return stage.Run(ctx, story)
}

func (c *demoCommand) conclude(v scenario.Verdict, story scenario.Story) {
	if v.StaleCommits > 0 {
		c.timeline.Bad("  CORRUPTED. Stale writes committed: %d. Right would be: %s.", v.StaleCommits, story.Right)
		return
	}
	c.timeline.Good("  Right. Stale writes committed: 0, refused: %d. The outcome is %s.", len(v.Rejections), story.Right)
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
