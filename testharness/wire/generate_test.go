package wire_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/testharness/environ"
	"github.com/fenceproxy/fenceproxy/testharness/wire"
)

// How many pipelines are played, and what they are made from, unless the
// environment says otherwise: make wire-fuzz does.
const (
	envPipelines     = "FENCEPROXY_WIRE_PIPELINES"
	envSeed          = "FENCEPROXY_WIRE_SEED"
	defaultPipelines = 2000
	defaultSeed      = 1
)

// A stand is a database for each leg, all with the same in it.
type stand struct {
	t     *testing.T
	rig   *rig
	lanes map[wire.Leg]*lane
}

// TestGenerate plays random pipelines on all legs: what comes is the same.
func TestGenerate(t *testing.T) {
	count, seed := environ.Int(t, envPipelines, defaultPipelines), environ.Int(t, envSeed, defaultSeed)
	t.Logf("%d pipelines from seed %d; to do the same again: make wire-fuzz N=%d SEED=%d", count, seed, count, seed)
	const workers = 2
	var databases []string
	for i := range workers * len(legs) {
		databases = append(databases, fmt.Sprintf("stand%d", i))
	}
	r := newRig(t, databases...)
	var next atomic.Int64
	var done sync.WaitGroup
	defer done.Wait()
	for range workers {
		s := &stand{t: t, rig: r, lanes: map[wire.Leg]*lane{}}
		for _, leg := range legs {
			l := <-r.lanes
			p := r.player(leg, l)
			if err := l.reset(t.Context(), p, []string{wire.GeneratedSetup}); err != nil {
				t.Fatal(err)
			}
			s.lanes[leg] = l
		}
		done.Add(1)
		go func() {
			defer done.Done()
			for i := next.Add(1) - 1; int(i)*wire.Pipelines < count && !t.Failed(); i = next.Add(1) - 1 {
				s.try(uint64(seed), uint64(i))
			}
		}()
	}
}

// shrinkTime is how long a difference is made smaller for.
const shrinkTime = time.Minute

// try plays one script, and reports a difference as the smallest script that
// shows it.
func (s *stand) try(seed, number uint64) {
	script := wire.Generate(rand.New(rand.NewPCG(seed, number)), s.rig.version)
	found := s.difference(script)
	if found == "" {
		return
	}
	late := time.Now().Add(shrinkTime)
	small := wire.Shrink(script, func(c *wire.Script) bool {
		if time.Now().After(late) {
			return false
		}
		d := s.difference(c)
		return d != "" && kind(d) == kind(found)
	})
	s.t.Errorf("seed %d, script %d differs:\n%s\n%s", seed, number, found, small)
}

// kind is what makes one difference the same as another: the lines where the
// traces part.
func kind(difference string) string {
	var parting []string
	for _, line := range strings.Split(difference, "\n") {
		if rest, ok := strings.CutPrefix(line, "! "); ok && len(parting) < 4 {
			parting = append(parting, rest)
		}
	}
	if len(parting) > 3 {
		parting = []string{parting[0], parting[3]} // of up to three from either side
	}
	return strings.Join(parting, "\n")
}

// difference plays a script on all legs at once and says where they part.
func (s *stand) difference(script *wire.Script) string {
	var traces [3]wire.Trace
	var faults [3]error
	var playing sync.WaitGroup
	for _, leg := range legs {
		if leg == wire.Tagged && script.Untagged != "" {
			continue
		}
		playing.Add(1)
		go func() {
			defer playing.Done()
			traces[leg], faults[leg] = s.play(leg, script)
		}()
	}
	playing.Wait()
	for _, leg := range legs {
		if leg == wire.Tagged && script.Untagged != "" {
			continue
		}
		if d := wire.Difference("direct", traces[wire.Direct], leg.String(), traces[leg]); d != "" || faults[leg] != nil {
			return fmt.Sprintf("%v: %v\n%s", leg, faults[leg], d)
		}
	}
	return ""
}

// fuzzTimeout is how long a generated script may take.
const fuzzTimeout = 5 * time.Second

func (s *stand) play(leg wire.Leg, script *wire.Script) (wire.Trace, error) {
	l := s.lanes[leg]
	p := s.rig.player(leg, l)
	p.Timeout = fuzzTimeout
	ctx := context.WithoutCancel(s.t.Context())
	if err := l.Exec(ctx, "SET search_path = app, public; "+wire.GeneratedReset); err != nil {
		return nil, err
	}
	trace, err := p.Play(ctx, script)
	if err != nil {
		// A session that hangs holds locks.
		if err := l.Exec(ctx, "SELECT pg_terminate_backend(pid) FROM session"); err != nil {
			return nil, err
		}
	}
	return trace, err
}
