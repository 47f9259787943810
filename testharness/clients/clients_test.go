package clients_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/fenceproxy/fenceproxy/testharness/clients"
)

// TestClients plays the clients that FENCE_CLIENTS names, each straight to
// PostgreSQL and through the proxy.
func TestClients(t *testing.T) {
	names := os.Getenv("FENCE_CLIENTS")
	picked, err := clients.Select(names)
	if err != nil {
		t.Fatal(err)
	}
	r := newRig(t)
	var results []clients.Result
	failed := 0
	for _, c := range picked {
		if c.GoModule {
			r.build(t, "programs/golang", "./"+c.Command[0])
		}
		t.Run(c.Name, func(t *testing.T) {
			result := r.client(t, c)
			results = append(results, result)
			line := result.Line()
			if t.Failed() {
				line = fmt.Sprintf("%-22s FAILED", c.Name)
				failed++
			}
			say(names, "%s", line)
		})
	}
	say(names, "%d of %d clients saw through the proxy what they see straight, and their refusals", len(picked)-failed, len(picked))
	if got := r.metric(t, "fenceproxy_lost_replies_total"); got != 0 {
		t.Errorf("lost replies: got %v, want 0", got)
	}
	if log := r.proxy.Log(); strings.Contains(log, "DATA RACE") || strings.Contains(log, "panic") {
		t.Errorf("the proxy's log:\n%s", log)
	}
	if names != "" && !t.Failed() {
		write(t, results)
	}
}

// say tells people who wait for the clients that they named how it goes.
func say(names, format string, args ...any) {
	if names != "" {
		fmt.Printf(format+"\n", args...)
	}
}

// client plays one client on every leg.
func (r *rig) client(t *testing.T, c clients.Client) clients.Result {
	result := clients.Result{Client: c, Legs: map[clients.Leg]clients.Transcript{}}
	for _, leg := range []clients.Leg{clients.Straight, clients.Untagged, clients.Tagged, clients.Encrypted} {
		r.reset(t)
		result.Legs[leg] = r.play(t, c, leg)
		for _, d := range result.Legs[clients.Straight].Differences(result.Legs[leg]) {
			t.Errorf("%v: %s", leg, d)
		}
		for _, l := range result.Legs[leg].Lacks(c.Wants) {
			t.Errorf("%v: %s", leg, l)
		}
		if t.Failed() {
			t.Logf("%v: %v\n%s", leg, result.Legs[leg], r.stderr)
			return result // the others would say the same
		}
	}
	r.reset(t)
	result.Legs[clients.Stale] = r.stale(t, c)
	for _, l := range result.Legs[clients.Stale].Lacks(c.Refused) {
		t.Errorf("stale: %s", l)
	}
	if t.Failed() {
		t.Logf("%v\n%s", result.Legs[clients.Stale], r.stderr)
	}
	return result
}

// play plays a client's program, and sees whether it presented a tag.
func (r *rig) play(t *testing.T, c clients.Client, leg clients.Leg) clients.Transcript {
	t.Helper()
	const counter = "fenceproxy_claims_total"
	before := r.metric(t, counter)
	var lock *holder
	if leg == clients.Tagged || leg == clients.Encrypted {
		lock = r.hold(t, "order of "+c.Name)
		defer lock.release(t)
	}
	got := r.run(t, c, leg, lock, nil)
	if tagged := r.metric(t, counter) != before; tagged != (lock != nil) {
		t.Errorf("%v: tagged: got %v, want %v", leg, tagged, lock != nil)
	}
	return got
}

// stale has a client lose its lock while it works.
func (r *rig) stale(t *testing.T, c clients.Client) clients.Transcript {
	t.Helper()
	lock := r.hold(t, "order of "+c.Name)
	defer lock.release(t)
	held := 0
	got := r.run(t, c, clients.Stale, lock, func() {
		lock.lose(t)
		held = r.scalar(t, "SELECT count(*) FROM item WHERE name = 'holder'")
	})
	if held == 0 {
		t.Error("stale: no row of the holder's is there")
	}
	if n := r.scalar(t, "SELECT count(*) FROM item WHERE name <> 'holder'"); n != 0 {
		t.Errorf("stale: %d rows are there that had to be refused", n)
	}
	return got
}
