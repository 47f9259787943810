package steps_test

import (
	"fmt"
	"maps"
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
	envSingles     = "FENCEPROXY_STEPS_SINGLES"
	envPairs       = "FENCEPROXY_STEPS_PAIRS"
	envAll         = "FENCEPROXY_STEPS_ALL_PAIRS"
	envLanes       = "FENCEPROXY_STEPS_LANES"
	defaultSingles = 21
	defaultPairs   = 97
	defaultLanes   = 2
)

// mostOver says of how many plays one may be over before its step: how many steps
// there are differs a little from play to play.
const mostOver = 5

// enough is after how many plays that fail no more are tried.
const enough = 10

// A tally counts what was tried.
type tally struct {
	plays, failed, unreached, seconds atomic.Int64
	firsts                            [kinds]atomic.Int64 // what was broken first, by kind
	slowest                           atomic.Int64        // claim of a next holder while a message was held up, in nanoseconds

	steps map[string][2][]string // by form: of the first and the second try
	all   bool                   // pairs are of all steps
}

// Something is broken at each step of a claim and a write, and at each two
// steps: the tokens never fall, nothing of a lower one commits behind a claim's
// answer, a mark is never lost, what was acknowledged is there once and what was
// refused isn't, and the next holder gets in.
func TestSteps(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	t.Run("all", func(t *testing.T) { testSteps(t) })
}

func testSteps(t *testing.T) {
	g := newGround(t)
	var all []*lane
	for i := range environ.Int(t, envLanes, defaultLanes) {
		all = append(all, g.newLane(t, fmt.Sprintf("lane%d", i)))
	}
	count := &tally{steps: map[string][2][]string{}, all: environ.Int(t, envAll, 0) != 0}
	count.measure(t, all[0])
	plans := append(count.singles(environ.Int(t, envSingles, defaultSingles)), count.pairs(environ.Int(t, envPairs, defaultPairs))...)
	var next atomic.Int64
	var done sync.WaitGroup
	for _, l := range all {
		done.Go(func() {
			for i := int(next.Add(1)) - 1; i < len(plans) && count.failed.Load() < enough; i = int(next.Add(1)) - 1 {
				count.play(t, l, plans[i])
			}
		})
	}
	done.Wait()
	if over, plays := count.unreached.Load(), count.plays.Load(); plays == 0 || over*mostOver > plays {
		t.Errorf("in %d of %d plays nothing was broken, or not both times, want 1 of %d at most", over, plays, mostOver)
	}
	for _, f := range slices.Sorted(maps.Keys(count.steps)) {
		steps := count.steps[f]
		t.Logf("%-20s %3d steps, and %3d of a second try; %2d and %2d turns", f,
			len(steps[0]), len(steps[1]), len(count.turns(steps[0])), len(count.turns(steps[1])))
	}
	count.sum(t)
}

// sum says what was tried and found.
func (c *tally) sum(t *testing.T) {
	t.Helper()
	for k := range kinds {
		t.Logf("%-28s first in %5d plays", k, c.firsts[k].Load())
	}
	t.Logf("%d plays, of which %d with a second fault; %d were over before their step; the slowest claim past a message that was held up took %v; %d violations",
		c.plays.Load(), c.seconds.Load(), c.unreached.Load(), time.Duration(c.slowest.Load()).Round(time.Millisecond), c.failed.Load())
}

// measure counts the steps of every form, with nothing broken.
func (c *tally) measure(t *testing.T, l *lane) {
	t.Helper()
	for _, f := range forms() {
		// The first play opens connections that later ones find open.
		for range 2 {
			p, err := l.carry(plan{form: f, first: -1, second: -1})
			if err != nil {
				t.Fatal(p.story(err))
			}
			c.steps[f.name] = p.names
		}
		// The second try is of a token that is known: etcd isn't asked.
		for _, link := range []string{"client", "PostgreSQL", "etcd"} {
			if !slices.ContainsFunc(c.steps[f.name][0], func(name string) bool { return strings.HasPrefix(name, link+" ") }) {
				t.Errorf("%s: no step is counted on the link to %s", f.name, link)
			}
		}
	}
}

// singles are all plans with one fault: each kind, at each step, with either
// that goes on. Of them, one of so many.
func (c *tally) singles(stride int) (plans []plan) {
	n := 0
	for _, f := range forms() {
		for k := range kinds {
			for at := range c.steps[f.name][0] {
				for _, succeeds := range []bool{false, true} {
					if n++; n%stride == 0 {
						plans = append(plans, plan{form: f, first: at, firstK: k, second: -1, succeeds: succeeds})
					}
				}
			}
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
	for _, f := range forms() {
		for _, at := range c.turns(c.steps[f.name][0]) {
			for _, again := range c.turns(c.steps[f.name][1]) {
				if n++; n%stride == 0 {
					first := kind(n) % kinds
					plans = append(plans, plan{form: f, first: at, firstK: first, second: again, secondK: kind(n/int(kinds)) % kinds,
						// Who has lost the lock doesn't get to all of its steps.
						succeeds: first == heldUp || n/int(kinds*kinds)%2 == 0})
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
