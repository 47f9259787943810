package main

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"
)

// A full run is one that somebody starts before lunch, a quick one is one that
// they wait for.
func TestTakes(t *testing.T) {
	for _, c := range []struct {
		name string
		args []string
		want time.Duration
	}{
		{"full", nil, 45 * time.Minute},
		{"quick", []string{"-quick"}, 2*time.Minute + 30*time.Second},
	} {
		o := parsed(t, c.args...)
		some, err := selected(plan(o), o)
		if err != nil {
			t.Fatal(err)
		}
		if got, rounds := takes(some, o); got > c.want || rounds < 100 {
			t.Errorf("%s: got %v for %d rounds, want %v or less", c.name, got, rounds, c.want)
		}
	}
}

// What a run does is what was estimated: at its end nothing is left.
func TestProgress(t *testing.T) {
	var out bytes.Buffer
	w := &workload{name: "w", clients: 8, contenders: []contender{{}, {}}, takes: lengthTakes}
	o := options{rounds: 3, seconds: 10}
	p := newProgress(&out, []*workload{w}, o)
	now := p.began
	p.now = func() time.Time { return now }
	w.play = func(context.Context, *rig, options, contender) (sample, error) {
		now = now.Add(20 * time.Second)
		return nothing(), nil
	}
	p.did(rigTakes)
	now = now.Add(2 * rigTakes)
	playOne(t.Context(), nil, w, o, p)
	p.tell("the end")
	want := `6 rounds of contenders: about 1:06 on a machine of two cores that does nothing else
0:12, 2:00 left: w, 8 clients: round 1 of 3
0:52, 1:20 left: w, 8 clients: round 2 of 3
1:32, 0:40 left: w, 8 clients: round 3 of 3
2:12, 0:00 left: the end
`
	if got := out.String(); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

// A run that is interrupted keeps what it has measured, and no row of it has
// failed.
func TestPlayOne_Interrupted(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	played := 0
	w := &workload{name: "w", contenders: []contender{{name: "a"}, {name: "b"}, {name: "c"}}, takes: lengthTakes}
	w.play = func(ctx context.Context, _ *rig, _ options, _ contender) (sample, error) {
		if played++; played == 2 {
			interrupt()
			return nothing(), ctx.Err()
		}
		return round(10, 1), nil
	}
	rows := playOne(ctx, nil, w, options{rounds: 3}, silent())
	if played != 2 {
		t.Errorf("played %d rounds, want 2", played)
	}
	for i, want := range []int{1, 0, 0} {
		if got := len(rows[i].rounds); got != want || rows[i].err != nil {
			t.Errorf("%s: got %d rounds and %v, want %d", rows[i].contender.name, got, rows[i].err, want)
		}
	}
	if got := figures(rows); len(got) != 2 || got[1][2] != "a" {
		t.Errorf("got %v, want the row of a", got)
	}
}

// The report of an interrupted run says so, and the program that it failed.
func TestRun_Interrupted(t *testing.T) {
	ctx, interrupt := context.WithCancelCause(t.Context())
	interrupt(errors.New("a signal"))
	var out, progress bytes.Buffer
	err := run(ctx, []string{"-page", t.TempDir() + "/page.md"}, &out, &progress)
	if err == nil || !strings.Contains(err.Error(), "a signal") {
		t.Errorf("got %v, want the signal", err)
	}
	if got := out.String(); !strings.Contains(got, "| interrupted ") || !strings.Contains(got, "0% of the run") {
		t.Errorf("got %s\nwant that it was interrupted", got)
	}
}
