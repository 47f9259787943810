package fault_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fenceproxy/fenceproxy/testharness/fault"
	"github.com/fenceproxy/fenceproxy/testharness/history"
)

func tracks() []fault.Track {
	return []fault.Track{
		{Name: "proxies", Least: 10 * time.Millisecond, Most: 2 * time.Second, Cards: []fault.Card{
			{Kind: "kill", Targets: []string{"p1", "p2"}, Most: time.Second},
			{Kind: "pause", Targets: []string{"p1", "p2"}, Least: time.Second, Most: 3 * time.Second, Copies: 2},
		}},
		{Name: "workers", Most: time.Second, Worker: true, Cards: []fault.Card{{Kind: "pause", Targets: []string{"w1"}, Most: time.Second}}},
	}
}

var calm = fault.Calm{Every: 20 * time.Second, Length: 5 * time.Second}

func TestDraw(t *testing.T) {
	const length = 3 * time.Minute
	plan := fault.Draw(7, length, calm, tracks()...)
	if diff := cmp.Diff(plan, fault.Draw(7, length, calm, tracks()...)); diff != "" {
		t.Errorf("the same seed gave another plan:\n%s", diff)
	}
	if cmp.Equal(plan, fault.Draw(8, length, calm, tracks()...)) {
		t.Error("another seed gave the same plan")
	}
	end := map[string]time.Duration{}
	kinds := map[string]int{}
	inCalm := 0
	for _, e := range plan {
		if e.At < end[e.Track] || e.At+e.For > length {
			t.Errorf("%s: it overlaps the one before it, or the end", e)
		}
		end[e.Track] = e.At + e.For
		kinds[e.Track+" "+e.Kind]++
		calmly := e.At%calm.Every+e.For > calm.Every-calm.Length
		if calmly && !e.Worker {
			t.Errorf("%s: it reaches into a calm", e)
		}
		if calmly {
			inCalm++
		}
	}
	if inCalm == 0 {
		t.Error("no worker was harmed in a calm")
	}
	// Two of three cards are pauses, whatever the seed.
	if kill, pause := kinds["proxies kill"], kinds["proxies pause"]; kill == 0 || pause < 2*kill-2 || pause > 2*kill+2 {
		t.Errorf("got %d kills and %d pauses, want half as many", kill, pause)
	}
}

// What is longer than the time between two calms begins right behind one.
func TestDraw_LongFault(t *testing.T) {
	plan := fault.Draw(1, time.Hour, calm, fault.Track{Name: "t", Most: time.Minute, Cards: []fault.Card{{Kind: "k", Targets: []string{"x"}, Least: time.Minute}}})
	for _, e := range plan {
		if e.At%calm.Every != 0 {
			t.Errorf("%s: it doesn't begin with a period", e)
		}
	}
}

// Every fault that begins is ended, whether its time is over or the run's.
func TestRun_Carry(t *testing.T) {
	for _, c := range []struct {
		name string
		last time.Duration
		stop bool
	}{
		{"to the end", time.Millisecond, false}, {"broken off", time.Hour, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var mu sync.Mutex
			open := map[string]bool{}
			injury := func(_ context.Context, target string) (func(context.Context) error, error) {
				mu.Lock()
				open[target] = true
				both := len(open) == 2
				mu.Unlock()
				if both && c.stop {
					cancel()
				}
				return func(ctx context.Context) error {
					mu.Lock()
					defer mu.Unlock()
					delete(open, target)
					return ctx.Err()
				}, nil
			}
			var file bytes.Buffer
			run := &fault.Run{
				Plan:     []fault.Event{{Track: "a", Kind: "cut", Target: "x", For: c.last}, {Track: "b", Kind: "cut", Target: "y", For: c.last, Worker: true}},
				Injuries: map[string]fault.Injury{"cut": injury},
				Name:     strings.ToUpper,
				Record:   history.NewRecorder("", &file),
			}
			if err := run.Carry(ctx); err != nil {
				t.Fatal(err)
			}
			if len(open) > 0 || len(run.Active()) > 0 {
				t.Errorf("got %v and %v, want everything healed", open, run.Active())
			}
			h, err := history.Read(&file)
			if err != nil || len(h.Faults) != 2 {
				t.Fatalf("got %v, %v, want two faults", h, err)
			}
			for _, f := range h.Faults {
				if f.End < f.Begin || f.Worker != (f.Target == "Y") || f.Target != "X" && f.Target != "Y" {
					t.Errorf("got %+v, want one with both times and its name", f)
				}
			}
		})
	}
}

func TestRun_CarryFails(t *testing.T) {
	var file bytes.Buffer
	stuck := errors.New("it won't")
	injury := func(context.Context, string) (func(context.Context) error, error) { return nil, stuck }
	run := &fault.Run{Plan: []fault.Event{{Kind: "cut"}}, Injuries: map[string]fault.Injury{"cut": injury}, Record: history.NewRecorder("", &file)}
	if err := run.Carry(t.Context()); !errors.Is(err, stuck) {
		t.Errorf("got %v, want %v", err, stuck)
	}
	run.Injuries = nil
	if err := run.Carry(t.Context()); err == nil || !strings.Contains(err.Error(), `"cut"`) {
		t.Errorf("got %v, want an error that names the kind", err)
	}
}
