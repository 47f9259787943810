package main

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	dto "github.com/prometheus/client_model/go"

	"github.com/fenceproxy/fenceproxy/testharness/stack"
)

// TestPlayOne plays a round of every kind of workload, straight and through
// fenceproxy: each measures what the table has of it.
func TestPlayOne(t *testing.T) {
	o := options{seconds: 0.3, rounds: 1, extent: extent{scale: 1, megabytes: 2, takeovers: 1}}
	r, _ := hosted(t, o)
	speed, times := []metric{rate, cpu, user}, []metric{rate, p50, p99, cpu, user}
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
		{claimName, 1, []metric{p50, p99, cpu, user}, []string{claimers()[0].name, "fenceproxy"}},
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
			for _, row := range playOne(t.Context(), r, w, o, silent()) {
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
		wanted := slices.Contains(want, m) && (m != cpu && m != user || r.contender.route != direct)
		if got := r.rounds[0][m]; math.IsNaN(got) == wanted || got < 0 {
			t.Errorf("%s: metric %d is %v, wanted: %v", r.contender.name, m, got, wanted)
		}
	}
}

// TestPlayOne_Turns: contenders take turns, and one that fails is left out from
// there, with what it said.
func TestPlayOne_Turns(t *testing.T) {
	var order []string
	broken := errors.New("broken")
	w := &workload{contenders: []contender{{name: "a"}, {name: "b"}, {name: "c"}}, takes: lengthTakes}
	w.play = func(_ context.Context, _ *rig, _ options, c contender) (sample, error) {
		order = append(order, c.name)
		if c.name == "b" && len(order) > 3 {
			return nothing(), broken
		}
		return round(1, 1), nil
	}
	rows := playOne(t.Context(), nil, w, options{rounds: 3}, silent())
	if got, want := strings.Join(order, ""), "abcabcac"; got != want {
		t.Errorf("got the order %s, want %s", got, want)
	}
	for i, want := range []int{3, 1, 3} {
		if got := len(rows[i].rounds); got != want || (rows[i].err != nil) != (i == 1) {
			t.Errorf("%s: got %d rounds and the error %v, want %d", rows[i].contender.name, got, rows[i].err, want)
		}
	}
	if g := figures(rows); g[2][4] != "failed" {
		t.Errorf("got %v, want a row that failed", g[2])
	}
}

// TestFencers: whoever fences an UPDATE updates rows, and asks for the lock's
// token as often as that; a fence that lets nothing through would be fast.
func TestFencers(t *testing.T) {
	o := options{seconds: 0.5, rounds: 1, extent: extent{scale: 1, megabytes: 1}}
	r, proxy := hosted(t, o)
	conn, err := pgx.Connect(t.Context(), r.stack.DSN(stack.RoleApp, database))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	for _, c := range fencers() {
		if c.route != direct && c.route != fenceproxy {
			continue // the same scripts, through a peer that need not be there
		}
		if _, err := conn.Exec(t.Context(), "UPDATE pgbench_accounts SET abalance = 0 WHERE abalance <> 0"); err != nil {
			t.Fatal(err)
		}
		checks := earlyChecks(t, proxy)
		s, err := pgbench(load{mode: prepared, clients: 1})(t.Context(), r, o, c)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		var updated float64
		if err := conn.QueryRow(t.Context(), "SELECT sum(abalance) FROM pgbench_accounts").Scan(&updated); err != nil {
			t.Fatal(err)
		}
		if updated < s[rate]/2 {
			t.Errorf("%s: %v updates a second, and %v rows are updated", c.name, s[rate], updated)
		}
		checks = earlyChecks(t, proxy) - checks
		if fenced := c.tag && c.route == fenceproxy; fenced != (checks >= updated) {
			t.Errorf("%s: %v checks of %v updates", c.name, checks, updated)
		}
	}
	presenting := []string{"fenceproxy tagged", byHandPipelined, byHandEarly}
	options := func(c contender) string { return strings.Join(r.environment(r.peers[direct], c), " ") }
	for _, c := range fencers() {
		if got := strings.Contains(options(c), "fence.token="+r.lease.Token().String()); got != slices.Contains(presenting, c.name) {
			t.Errorf("%s: its sessions present the token: %v", c.name, got)
		}
	}
}

// earlyChecks is how many checks a proxy sent before writes.
func earlyChecks(t *testing.T, p *stack.Proxy) float64 {
	t.Helper()
	var m dto.Metric
	if err := p.Server.Metrics.Checks.WithLabelValues("early").Write(&m); err != nil {
		t.Fatal(err)
	}
	return m.GetCounter().GetValue()
}
