package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/fenceproxy/fenceproxy/testharness/postgres"
	"github.com/fenceproxy/fenceproxy/testharness/scenario"
	"github.com/fenceproxy/fenceproxy/testharness/stack"
)

const (
	// demoTTL is the time to live of the workers' leases: as short as can be
	// watched, and long enough for a busy machine to renew them.
	demoTTL = 3 * time.Second
	// runTimeout bounds one run of one story.
	runTimeout = 2 * time.Minute
	// runsAtOnce is how many runs are played at a time: most of one is
	// waiting for a lease to run out.
	runsAtOnce = 3
)

// A theatre is where stories are played: one PostgreSQL and one etcd, with a
// database and a prefix of locks for each run.
type theatre struct {
	stack  *stack.Stack
	self   string // this program
	seats  chan struct{}
	ctx    context.Context // of all runs
	cancel context.CancelFunc
	runs   sync.WaitGroup

	mu sync.Mutex // the stack is not for concurrent use
}

// A performance is a story and its runs, the protected one last.
type performance struct {
	story scenario.Story
	runs  []*showing
}

// A showing is a run of a story. What came of it may be read once done is
// closed; the history grows until then.
type showing struct {
	story   scenario.Story
	arm     scenario.Arm
	history *scenario.History
	done    chan struct{}

	verdict scenario.Verdict
	err     error
}

func openTheatre(ctx context.Context) (*theatre, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	s, err := stack.Start(ctx, stack.Options{Postgres: postgres.Options{Config: []string{"max_prepared_transactions = 10"}}})
	if err != nil {
		return nil, err
	}
	t := &theatre{stack: s, self: self, seats: make(chan struct{}, runsAtOnce)}
	t.ctx, t.cancel = context.WithCancel(ctx)
	return t, nil
}

// perform begins to play stories, some runs at a time, the first ones first.
func (t *theatre) perform(stories []scenario.Story) []performance {
	performances := make([]performance, len(stories))
	var all []*showing
	for i, story := range stories {
		performances[i].story = story
		for _, arm := range story.Arms() {
			r := &showing{story: story, arm: arm, history: scenario.NewHistory(), done: make(chan struct{})}
			performances[i].runs = append(performances[i].runs, r)
			all = append(all, r)
		}
	}
	t.runs.Add(1)
	go t.playAll(all)
	return performances
}

// playAll returns when the last run has been given a seat, or the theatre is
// closed.
func (t *theatre) playAll(all []*showing) {
	defer t.runs.Done()
	for _, r := range all {
		select {
		case t.seats <- struct{}{}:
			t.runs.Add(1)
			go t.play(r)
		case <-t.ctx.Done():
			r.err = context.Cause(t.ctx)
			close(r.done)
		}
	}
}

// close ends what is still being played, and all that was started.
func (t *theatre) close() error {
	t.cancel()
	t.runs.Wait()
	return t.stack.Close()
}

func (t *theatre) play(r *showing) {
	defer t.runs.Done()
	defer close(r.done)
	defer func() { <-t.seats }()
	ctx, cancel := context.WithTimeout(t.ctx, runTimeout)
	defer cancel()
	r.verdict, r.err = t.playIn(ctx, r, strings.ReplaceAll(r.story.Name, "-", "_")+"_"+r.arm.String())
}

// playIn plays a run in a database of its own.
func (t *theatre) playIn(ctx context.Context, r *showing, database string) (v scenario.Verdict, err error) {
	h := &house{theatre: t, flags: r.story.Serve, database: database, prefix: "/demo/" + database + "/"}
	defer func() { err = errors.Join(err, h.close()) }()
	if err := h.open(ctx, r.arm, r.story.Standby); err != nil {
		return v, err
	}
	stage := &scenario.Stage{
		Arm:       r.arm,
		History:   r.history,
		Etcd:      t.stack.Client,
		Prefix:    h.prefix,
		TTL:       demoTTL,
		Command:   []string{t.self, actorName},
		Admin:     h.dsn(stack.RoleApp),
		Gates:     h.gates,
		Backstage: h,
	}
	if h.servers != nil {
		stage.Servers = h.servers
	}
	return stage.Run(ctx, r.story)
}
