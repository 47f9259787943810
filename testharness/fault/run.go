package fault

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fenceproxy/fenceproxy/testharness/history"
)

// An Injury begins a fault of one kind at a target and returns what ends it.
// Either of them may take its time; the fault lasts until the end has returned.
type Injury func(ctx context.Context, target string) (heal func(context.Context) error, err error)

// A Run carries out a plan. All its fields are set before Carry.
type Run struct {
	Plan     []Event
	Injuries map[string]Injury
	// Name returns what a target is called at the moment, for the record: a
	// worker that was started again has another name. nil is what it says.
	Name   func(target string) string
	Record *history.Recorder

	mu     sync.Mutex
	active map[string]int
}

// Carry carries the plan out, each track in its own order: an event is late if
// the one before it took longer than it should. When the last fault has ended,
// or ctx has, everything is healed, under a context that lives on. It returns
// the first thing that couldn't be done or undone.
func (r *Run) Carry(ctx context.Context) error {
	r.active = map[string]int{}
	tracks := map[string][]Event{}
	for _, e := range r.Plan {
		if r.Injuries[e.Kind] == nil {
			return fmt.Errorf("carry out the plan: nobody knows the fault %q", e.Kind)
		}
		tracks[e.Track] = append(tracks[e.Track], e)
	}
	began := time.Now()
	errs := make(chan error, len(tracks))
	for _, events := range tracks {
		go r.track(ctx, began, events, errs)
	}
	var first error
	for range tracks {
		if err := <-errs; first == nil {
			first = err
		}
	}
	return first
}

// track ends when its events have, when ctx has, or at the first error.
func (r *Run) track(ctx context.Context, began time.Time, events []Event, done chan<- error) {
	for _, e := range events {
		if !wait(ctx, time.Until(began.Add(e.At))) {
			break
		}
		if err := r.event(ctx, e); err != nil {
			done <- fmt.Errorf("%s %s: %w", e.Kind, e.Target, err)
			return
		}
	}
	done <- nil
}

func (r *Run) event(ctx context.Context, e Event) error {
	f := history.Fault{Kind: e.Kind, Target: e.Target, Worker: e.Worker, Begin: history.Now()}
	if r.Name != nil {
		f.Target = r.Name(e.Target)
	}
	name := strings.TrimSpace(e.Kind + " " + e.Target)
	r.count(name, 1)
	defer r.count(name, -1)
	living := context.WithoutCancel(ctx)
	heal, err := r.Injuries[e.Kind](living, e.Target)
	if err == nil {
		wait(ctx, e.For)
		err = heal(living)
	}
	f.End = history.Now()
	if err != nil {
		f.Text = err.Error()
	}
	r.Record.Add(history.Record{Fault: &f})
	return err
}

func (r *Run) count(name string, by int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.active[name] += by; r.active[name] == 0 {
		delete(r.active, name)
	}
}

// Active returns which faults are at work.
func (r *Run) Active() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Sorted(maps.Keys(r.active))
}

// wait lets a time of the plan pass. It returns false if ctx ended first.
func wait(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
