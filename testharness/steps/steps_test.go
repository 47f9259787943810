package steps_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fenceproxy/fenceproxy/testharness/environ"
)

// At how many steps, and pairs of steps, something is broken: at one of so many.
// make steps breaks something at each. The steps of pairs are those at which the
// turn to speak changes on a link, or where to, unless the variable says that they
// are all.
const (
	envSingles     = "FENCE_STEPS_SINGLES"
	envPairs       = "FENCE_STEPS_PAIRS"
	envAll         = "FENCE_STEPS_ALL_PAIRS"
	envKilled      = "FENCE_STEPS_KILLED"
	envLanes       = "FENCE_STEPS_LANES"
	defaultSingles = 1000 // each kind in each form once
	defaultKilled  = 41
	defaultPairs   = 397
	defaultLanes   = 2
)

// mostOver says of how many plays one may be over before its step: how many steps
// there are differs a little from play to play, most of all behind a first fault.
// In full runs it was one of 20 to 50.
const mostOver = 10

// measured is how many plays of a form its steps are counted in. The first one
// opens connections that later ones find open, and a busy machine has now and then
// one message more go by: the fewest count.
const measured = 3

// enough is after how many plays that fail no more are tried.
const enough = 10

// A tally counts what was tried.
type tally struct {
	plays, failed, unreached, seconds atomic.Int64
	firsts                            [kinds]atomic.Int64 // what was broken first, by kind
	slowest                           atomic.Int64        // claim of a next holder while a message was held up, in nanoseconds

	of    string // what the proxies are
	forms []form
	only  []kind                 // of single faults; nil: all there are
	steps map[string][2][]string // by form: of the first and the second try
	all   bool                   // pairs are of all steps
}

// Something is broken at each step of a claim and a write, and at each two
// steps: the tokens never fall, nothing of a lower one commits behind a claim's
// answer, a mark is never lost, what was acknowledged is there once and what was
// refused isn't, and the next holder gets in.
func TestSteps(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	// The links and servers are ended before leaks are looked for.
	t.Run("all", func(t *testing.T) {
		c := &tally{of: "proxies in this process", forms: forms(), all: environ.Int(t, envAll, 0) != 0}
		c.carry(t, func() program { return &inside{} }, func() []plan {
			return append(c.singles(environ.Int(t, envSingles, defaultSingles)), c.pairs(environ.Int(t, envPairs, defaultPairs))...)
		})
	})
}

// The proxies are processes, and one is killed by SIGKILL at each step of some
// forms.
func TestSteps_Killed(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	t.Run("all", func(t *testing.T) {
		c := &tally{of: "proxies that are processes", only: []kind{killProxy}}
		for _, f := range forms() {
			if slices.Contains([]string{"block", "pipeline in a block", "startup"}, f.name) {
				c.forms = append(c.forms, f)
			}
		}
		file := build(t)
		c.carry(t, func() program { return &separate{file: file} }, func() []plan { return c.singles(environ.Int(t, envKilled, defaultKilled)) })
	})
}

// carry counts the steps of the forms, and then has the plans carried out that
// are made of them.
func (c *tally) carry(t *testing.T, proxies func() program, plan func() []plan) {
	t.Helper()
	g := newGround(t)
	var all []*lane
	for i := range environ.Int(t, envLanes, defaultLanes) {
		all = append(all, g.newLane(t, fmt.Sprintf("lane%d", i), proxies))
	}
	c.measure(t, all[0])
	plans := plan()
	var next atomic.Int64
	var done sync.WaitGroup
	for _, l := range all {
		done.Go(func() {
			for i := int(next.Add(1)) - 1; i < len(plans) && c.failed.Load() < enough; i = int(next.Add(1)) - 1 {
				c.play(t, l, plans[i])
			}
		})
	}
	done.Wait()
	if over, plays := c.unreached.Load(), c.plays.Load(); plays == 0 || over*mostOver > plays {
		t.Errorf("in %d of %d plays nothing was broken, or not both times, want 1 of %d at most", over, plays, mostOver)
	}
	for _, f := range c.forms {
		steps := c.steps[f.name]
		t.Logf("%-20s %3d steps, and %3d of a second try; %2d and %2d turns", f.name,
			len(steps[0]), len(steps[1]), len(c.turns(steps[0])), len(c.turns(steps[1])))
	}
	c.sum(t)
}

// sum says what was tried and found.
func (c *tally) sum(t *testing.T) {
	t.Helper()
	for _, k := range c.kinds() {
		t.Logf("total: %s: first in %d plays of %s", k, c.firsts[k].Load(), c.of)
	}
	if slowest := time.Duration(c.slowest.Load()); slowest != 0 {
		t.Logf("total: the slowest claim past a message that was held up took %v", slowest.Round(time.Millisecond))
	}
	t.Logf("total: %d plays of %s, %d of them with a second fault; %d were over before their step; %d violations",
		c.plays.Load(), c.of, c.seconds.Load(), c.unreached.Load(), c.failed.Load())
}

// measure counts the steps of every form, with nothing broken.
func (c *tally) measure(t *testing.T, l *lane) {
	t.Helper()
	c.steps = map[string][2][]string{}
	for _, f := range c.forms {
		for range measured {
			p, err := l.carry(plan{form: f, first: -1, second: -1})
			if err != nil {
				t.Fatal(p.story(err))
			}
			if was, ok := c.steps[f.name]; !ok || len(p.names[0]) < len(was[0]) {
				c.steps[f.name] = p.names
			}
		}
		// The second try is of a token that is known: etcd isn't asked.
		for _, link := range []string{"client", "PostgreSQL", "etcd"} {
			if !slices.ContainsFunc(c.steps[f.name][0], func(name string) bool { return strings.HasPrefix(name, link+" ") }) {
				t.Errorf("%s: no step is counted on the link to %s", f.name, link)
			}
		}
	}
}

// kinds are those of single faults.
func (c *tally) kinds() []kind {
	if c.only != nil {
		return c.only
	}
	return []kind{cutClient, cutPostgres, cutEtcd, killProxy, endBackends, heldUp, heldUpHere}
}

// singles are the plans with one fault: each kind, at each step, with either that
// goes on. Of those of one form and kind, one of so many, and one at least; of
// messages that are held up more, for those find the most.
func (c *tally) singles(stride int) (plans []plan) {
	turn := 0
	for _, f := range c.forms {
		for _, k := range c.kinds() {
			var all []plan
			for at, name := range c.steps[f.name][0] {
				if !k.strikes(name) {
					continue
				}
				for _, succeeds := range []bool{false, true} {
					all = append(all, plan{form: f, first: at, firstK: k, second: -1, succeeds: succeeds})
				}
			}
			every := min(stride, len(all))
			if k.holds() {
				every = (every + 3) / 4
			}
			every = (every - 1) | 1 // odd: who goes on takes turns
			for i := turn * 7 % every; i < len(all); i += every {
				plans = append(plans, all[i])
			}
			turn++
		}
	}
	return plans
}

// turns are the steps that pairs are of: of messages that go one way in a row,
// the first.
func (c *tally) turns(names []string) (at []int) {
	way := func(name string) string { return name[:strings.LastIndex(name, " ")] }
	for i, name := range names {
		if c.all || i == 0 || way(name) != way(names[i-1]) {
			at = append(at, i)
		}
	}
	return at
}

// pairs are plans with two faults, one for each two steps. The kinds take turns,
// and so does who goes on.
func (c *tally) pairs(stride int) (plans []plan) {
	n := 0
	for _, f := range c.forms {
		for _, at := range c.turns(c.steps[f.name][0]) {
			for _, again := range c.turns(c.steps[f.name][1]) {
				if n++; n%stride == 0 {
					first := kind(n) % kinds
					plans = append(plans, plan{form: f, first: at, firstK: first, second: again, secondK: kind(n/int(kinds)) % kinds,
						// Who has lost the lock doesn't get to all of its steps.
						succeeds: first.holds() || n/int(kinds*kinds)%2 == 0})
				}
			}
		}
	}
	return plans
}

func (c *tally) play(t *testing.T, l *lane, plan plan) {
	p, err := l.carry(plan)
	if err != nil {
		c.failed.Add(1)
		t.Error(p.story(err))
	}
	c.plays.Add(1)
	if p.hit[0] {
		c.firsts[plan.firstK].Add(1)
	}
	for _, next := range p.next {
		for took, slowest := int64(next.took()), c.slowest.Load(); took > slowest && !c.slowest.CompareAndSwap(slowest, took); {
			slowest = c.slowest.Load()
		}
	}
	if p.hit[1] {
		c.seconds.Add(1)
	}
	if !p.hit[0] || plan.second >= 0 && !p.hit[1] {
		c.unreached.Add(1)
	}
}
