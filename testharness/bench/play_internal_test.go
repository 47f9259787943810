package main

import (
	"io"
	"math"
	"slices"
	"testing"
)

// TestPlayOne plays a round of every kind of workload, straight and through
// fenceproxy: each measures what the table has of it.
func TestPlayOne(t *testing.T) {
	o := options{scale: 1, seconds: 1, megabytes: 2, rounds: 1}
	r := hosted(t, o)
	speed, times := []metric{rate, cpu}, []metric{rate, p50, p99, cpu}
	for _, c := range []struct {
		workload string
		clients  int
		measures []metric
		names    []string
	}{
		{selectPrepared, 8, times, []string{"direct", "fenceproxy"}},
		{"10 selects in a pipeline", 1, times, []string{"fenceproxy tagged"}},
		{updateDurable, 1, times, []string{"fenceproxy tagged", byHandBlock, byHandCTE, byHandPipelined}},
		{copyOutName, 1, speed, []string{"direct", "fenceproxy"}},
		{copyInName, 1, speed, []string{"fenceproxy tagged"}},
		{"connect", 8, times, []string{"fenceproxy tagged"}},
		{claimName, 1, []metric{p50, p99, cpu}, []string{claimers()[0].name, "fenceproxy"}},
		{takeoverName, 1, []metric{p50, p99}, []string{holders()[0].name}},
	} {
		t.Run(c.workload, func(t *testing.T) {
			all := plan(o)
			i := slices.IndexFunc(all, func(w *workload) bool { return w.name == c.workload && w.clients == c.clients })
			if i < 0 {
				t.Fatal("there is no such workload")
			}
			w := all[i]
			w.contenders = slices.DeleteFunc(w.contenders, func(x contender) bool { return !slices.Contains(c.names, x.name) })
			if len(w.contenders) != len(c.names) {
				t.Fatalf("got %d contenders, want %v", len(w.contenders), c.names)
			}
			if err := r.makeDurable(t.Context(), w.durable); err != nil {
				t.Fatal(err)
			}
			for _, row := range playOne(t.Context(), r, w, o, io.Discard) {
				if row.err != nil {
					t.Errorf("%s: %v", row.contender.name, row.err)
					continue
				}
				check(t, row, c.measures)
			}
		})
	}
}

// check looks that a row measured what it should, and nothing else. What takes
// no CPU of a proxy has no figure for it.
func check(t *testing.T, r row, want []metric) {
	t.Helper()
	for m := range metrics {
		wanted := slices.Contains(want, m) && (m != cpu || r.contender.route != direct)
		if got := r.rounds[0][m]; math.IsNaN(got) == wanted || got < 0 {
			t.Errorf("%s: metric %d is %v, wanted: %v", r.contender.name, m, got, wanted)
		}
	}
}
