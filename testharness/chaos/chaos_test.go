package chaos_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/fenceproxy/fenceproxy/testharness/chaos"
	"github.com/fenceproxy/fenceproxy/testharness/history"
	"github.com/fenceproxy/fenceproxy/testharness/history/check"
)

// build makes a program of this module; without the race detector, since a run
// is many processes.
func build(t *testing.T, dir, name string) string {
	t.Helper()
	program := filepath.Join(dir, filepath.Base(name))
	cmd := exec.Command("go", "build", "-o", program, "github.com/fenceproxy/fenceproxy/"+name)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v: %s", name, err, out)
	}
	return program
}

// options are those of a run that is short, and crowded for it.
func options(t *testing.T, program, self string) chaos.Options {
	t.Helper()
	o := chaos.NewOptions([]string{program}, []string{self, "serve"})
	o.Duration, o.After, o.Takeovers, o.Workers, o.Keys = 5*time.Second, time.Second, 40, 14, 4
	o.Dir = filepath.Join(t.TempDir(), "history")
	return o
}

// play carries out a run, and shows how it went if the test fails.
func play(t *testing.T, o chaos.Options) chaos.Result {
	t.Helper()
	var out bytes.Buffer
	o.Out = &out
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("seed %d:\n%s", o.Seed, out.String())
		}
	})
	result, err := chaos.Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	result.Print(&out)
	return result
}

// again has the command judge a history once more.
func again(t *testing.T, o chaos.Options) (out string, status int) {
	t.Helper()
	cmd := exec.Command(o.Self[0], "-check", o.Dir)
	text, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return string(text), cmd.ProcessState.ExitCode()
}

// With fencing the promise holds, and there was something to hold it against;
// without it the same workers break it, and the checkers notice.
func TestRun(t *testing.T) {
	dir := t.TempDir()
	program, self := build(t, dir, "cmd/fenceproxy"), build(t, dir, "testharness/chaos/cmd")
	for name, run := range map[string]func(*testing.T, chaos.Options){"fenced": fenced, "straight": straight, "idle": idle, "unbegun": unbegun} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // they wait more than they work
			run(t, options(t, program, self))
		})
	}
}

func fenced(t *testing.T, o chaos.Options) {
	result := play(t, o)
	if !result.Report.OK() {
		t.Error("the promise was broken")
	}
	for _, i := range result.Report.Unjudged() {
		// Nobody is held to a time in a run that is all faults.
		if i != check.Progress && i != check.Answers {
			t.Errorf("%s: nothing was judged", i)
		}
	}
	if len(result.Faults) < 5 || result.Tally.Takeovers == 0 {
		t.Errorf("got faults %v and %d takeovers, want some of each", result.Faults, result.Tally.Takeovers)
	}
	if out, status := again(t, o); status != 0 {
		t.Errorf("the same history again: got exit status %d, want 0:\n%s", status, out)
	}
}

func straight(t *testing.T, o chaos.Options) {
	o.Straight, o.Takeovers = true, 70 // for a transfer that goes wrong, too
	if missing := chaos.Missing(play(t, o).Report); len(missing) > 0 {
		t.Errorf("without fencing nothing broke %v", missing)
	}
	if out, status := again(t, o); status != 1 || !strings.Contains(out, "was committed after one of token") {
		t.Errorf("the same history again: got exit status %d, want 1 and what is wrong:\n%s", status, out)
	}
}

// unbegun is a run that can't be started: it leaves no folder behind that nobody
// was told of.
func unbegun(t *testing.T, o chaos.Options) {
	dir := t.TempDir()
	cmd := exec.Command(o.Self[0], "-program", o.Program[0], "-duration", "1s")
	cmd.Env = append(os.Environ(), "TMPDIR="+dir, "FENCEPROXY_PG_BIN="+filepath.Join(dir, "nowhere"))
	if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "FENCEPROXY_PG_BIN is ") {
		t.Errorf("got %v, %s, want an error that says what is missing", err, out)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("got %v, %v left behind, want nothing", left, err)
	}
}

// idle is a run whose workers do nothing: nothing is broken then, and nothing
// shown. Nor is there by a history without theirs.
func idle(t *testing.T, o chaos.Options) {
	o.Duration, o.After, o.Takeovers, o.Workers = time.Second, 0, 0, 1
	o.Workload = &chaos.Workload{
		Command: []string{"sh", "-c", "cat >/dev/null"},
		Collect: func(context.Context, *pgx.Conn) (history.Tables, error) { return history.Tables{}, nil },
	}
	if _, err := chaos.Run(t.Context(), o); err == nil || !strings.Contains(err.Error(), "nothing to judge") {
		t.Errorf("got %v, want an error that says that there is nothing to judge", err)
	}
	if out, status := again(t, o); status != 1 || !strings.Contains(out, "proves nothing") {
		t.Errorf("its history: got exit status %d, want 1 and that it proves nothing:\n%s", status, out)
	}
}

func TestPlan(t *testing.T) {
	o := chaos.NewOptions(nil, nil)
	o.Duration = 10 * time.Minute
	plan := chaos.Plan(o)
	if diff := cmp.Diff(plan, chaos.Plan(o)); diff != "" {
		t.Errorf("the same seed gave another plan:\n%s", diff)
	}
	kinds := map[string]bool{}
	for _, e := range plan {
		kinds[e.Kind] = true
	}
	for _, want := range []string{
		"pause worker", "kill worker", "pause proxy", "kill proxy", "pause etcd", "kill etcd", "pause primary", "restart primary",
		"kill primary", "kill standby", "kill backend", "failover", "failover, old primary awake", "failover, standby behind", "cut", "silent", "silent there", "silent back", "slow",
	} {
		if !kinds[want] {
			t.Errorf("ten minutes have no fault %q", want)
		}
	}
}

// A claim that is late can be told from one that a fault delays: the calm is long
// enough for what was broken to recover, and for a claim to be late then.
func TestNewOptions_Calm(t *testing.T) {
	o := chaos.NewOptions(nil, nil)
	if need := o.Limits.Recovery + o.Limits.Claim; o.Calm.Length <= need {
		t.Errorf("a calm lasts for %v, want more than %v", o.Calm.Length, need)
	}
}

func TestRun_Options(t *testing.T) {
	cases := []struct {
		name   string
		change func(*chaos.Options)
		want   string
	}{
		{"no workers", func(o *chaos.Options) { o.Workers = 0 }, "a worker and a proxy"},
		{"one key", func(o *chaos.Options) { o.Keys = 1 }, "two keys"},
		{"no folder", func(o *chaos.Options) { o.Dir = "" }, "a folder"},
		{"no time", func(o *chaos.Options) { o.Duration = 0 }, "a time"},
		{"no fenceproxy", func(o *chaos.Options) { o.Program = nil }, "the commands"},
		{"no command of a worker", func(o *chaos.Options) { o.Workload.Command = nil }, "command of a worker"},
		{"no way to collect", func(o *chaos.Options) { o.Workload.Collect = nil }, "how to collect"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			o := chaos.NewOptions([]string{"true"}, []string{"true"})
			o.Dir = filepath.Join(t.TempDir(), "history")
			o.Workload = chaos.NewWorkload(o.Self, []string{"a", "b"})
			c.change(&o)
			if _, err := chaos.Run(t.Context(), o); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want an error about %s", err, c.want)
			}
		})
	}
}
