package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/procfs"

	"github.com/fenceproxy/fenceproxy/testharness/stack"
)

// scripts are what pgbench runs, beside what it has built in. The table of
// marks of those who fence by hand is as simple as theirs would be.
var scripts = map[string]string{
	"update": update + ";\n",
	"for share": `BEGIN;
SELECT token FROM hand_mark WHERE key = 'bench' AND token = 42 FOR SHARE;
` + update + `;
COMMIT;
`,
	"cte": "WITH fence AS MATERIALIZED (SELECT FROM hand_mark WHERE key = 'bench' AND token = 42 FOR SHARE) " +
		update + " AND EXISTS (SELECT FROM fence);\n",
	"pipelined": `\startpipeline
SELECT fence.check();
` + update + `;
SELECT fence.check() WHERE pg_current_xact_id_if_assigned() IS NOT NULL;
\endpipeline
`,
	"early": "\\startpipeline\nSELECT fence.check();\n" + update + ";\n\\endpipeline\n",
	"ten":   "\\startpipeline\n" + strings.Repeat("SELECT abalance FROM pgbench_accounts WHERE aid = :aid;\n", 10) + "\\endpipeline\n",
}

const (
	aid    = "\\set aid random(1, :accounts)\n"
	update = "UPDATE pgbench_accounts SET abalance = abalance + 1 WHERE aid = :aid"
	// perScale is pgbench's: the accounts of one unit of scale.
	perScale = 100_000
)

// A mode is how pgbench sends its queries.
type mode string

const (
	simple   mode = "simple"
	extended mode = "extended"
	prepared mode = "prepared"
)

// fillPgbench makes pgbench's tables, and those of the scripts.
func (r *rig) fillPgbench(ctx context.Context, scale int) error {
	p, err := r.peer(ctx, direct)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, r.stack.Postgres.Program("pgbench"), "-i", "-q", "-I", "dtGvp", "-s", strconv.Itoa(scale))
	cmd.Env = r.environment(p, contender{route: direct})
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("fill pgbench's tables: %w: %s", err, out)
	}
	return r.admin(ctx, stack.RoleApp, "CREATE TABLE hand_mark (key text PRIMARY KEY, token bigint)", "INSERT INTO hand_mark VALUES ('bench', 42)")
}

// A load is how pgbench plays a workload.
type load struct {
	mode    mode
	clients int
	logged  float64 // the share of transactions whose time is kept
}

// pgbench returns what plays a load.
func pgbench(l load) player {
	return func(ctx context.Context, r *rig, o options, c contender) (sample, error) {
		p, err := r.peer(ctx, c.route)
		if err != nil {
			return nothing(), err
		}
		if c.tag && c.route == direct {
			if err := r.claim(ctx); err != nil {
				return nothing(), err
			}
		}
		if c.route == pgbouncer {
			if err := r.warm(ctx, c, l.clients); err != nil {
				return nothing(), err
			}
		}
		s, err := l.play(ctx, r, o, c, p)
		if err == nil && c.route == pgbouncer {
			err = r.reconnect(ctx, p)
		}
		return s, err
	}
}

// connectTries is how often pgbench is given more time.
const connectTries = 4

// play runs pgbench until a run was long enough: pgbench's time begins before
// it connects, which takes many clients long.
func (l load) play(ctx context.Context, r *rig, o options, c contender, p *peer) (s sample, err error) {
	seconds := o.seconds + (l.clients+16)/64
	for range connectTries {
		var lasted float64
		if s, lasted, err = l.playFor(ctx, r, o, c, p, seconds); err != nil || lasted >= 0.8*float64(o.seconds) {
			return s, err
		}
		seconds += 1 + o.seconds
	}
	return s, fmt.Errorf("connect %d clients: in %d s there was no time left for their work", l.clients, seconds)
}

// playFor runs pgbench for some time, and tells for how long its clients worked.
func (l load) playFor(ctx context.Context, r *rig, o options, c contender, p *peer, seconds int) (s sample, lasted float64, err error) {
	dir, err := os.MkdirTemp(r.dir, "pgbench-")
	if err != nil {
		return nothing(), 0, fmt.Errorf("make a folder: %w", err)
	}
	defer os.RemoveAll(dir)
	args, err := l.args(dir, o, c, seconds)
	if err != nil {
		return nothing(), 0, err
	}
	s, lasted, err = l.measure(ctx, exec.CommandContext(ctx, r.stack.Postgres.Program("pgbench"), args...), r.environment(p, c), p)
	if err != nil {
		return s, lasted, err
	}
	times, err := readTimes(filepath.Join(dir, "log.*"))
	s.took(times)
	return s, lasted, err
}

// args writes the contender's script if it has to, and returns pgbench's
// arguments.
func (l load) args(dir string, o options, c contender, seconds int) ([]string, error) {
	args := []string{
		"-n", "-M", string(l.mode), "-c", strconv.Itoa(l.clients), "-j", strconv.Itoa(min(2, l.clients)),
		"-T", strconv.Itoa(seconds), "-D", "accounts=" + strconv.Itoa(o.scale*perScale),
		"--log", "--log-prefix", filepath.Join(dir, "log"),
	}
	if l.logged < 1 {
		args = append(args, "--sampling-rate", fmt.Sprint(l.logged))
	}
	text, ok := scripts[c.script]
	if !ok {
		return append(args, "-b", c.script), nil
	}
	file := filepath.Join(dir, "script.sql")
	if err := os.WriteFile(file, []byte(aid+text), 0o644); err != nil {
		return nil, fmt.Errorf("write a script: %w", err)
	}
	return append(args, "-f", file), nil
}

// measure runs pgbench, and tells for how long its clients worked. The proxy's
// CPU is taken from where all sessions are there, so that logging in is no part
// of it.
func (l load) measure(ctx context.Context, cmd *exec.Cmd, env []string, p *peer) (s sample, lasted float64, err error) {
	s = nothing()
	var out, log bytes.Buffer
	cmd.Env, cmd.Stdout, cmd.Stderr = env, &out, &log
	if err := cmd.Start(); err != nil {
		return s, 0, fmt.Errorf("start pgbench: %w", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	awaitSockets(ctx, cmd.Process.Pid, l.clients)
	m, err := p.meter()
	if err := errors.Join(<-ended, err); err != nil {
		return s, 0, fmt.Errorf("run pgbench: %w: %s", err, strings.TrimSpace(log.String()))
	}
	done, perSecond, err := readReport(out.String())
	if err != nil || done == 0 {
		return s, 0, err
	}
	s[rate] = perSecond
	return s, done / perSecond, m.read(&s, done)
}

// awaitSockets waits until a process has n sockets, or is gone.
func awaitSockets(ctx context.Context, pid, n int) {
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for ctx.Err() == nil {
		process, err := procfs.NewProc(pid)
		if err != nil {
			return
		}
		targets, err := process.FileDescriptorTargets()
		if err != nil {
			return
		}
		sockets := 0
		for _, target := range targets {
			if strings.HasPrefix(target, "socket:") {
				sockets++
			}
		}
		if sockets >= n {
			return
		}
		<-tick.C
	}
}

// What pgbench reports.
var (
	reportDone   = regexp.MustCompile(`(?m)^number of transactions actually processed: (\d+)`)
	reportFailed = regexp.MustCompile(`(?m)^number of failed transactions: (\d+)`)
	reportRate   = regexp.MustCompile(`(?m)^tps = ([\d.]+) \(without initial connection time\)`)
)

// readReport reads how many transactions there were, and how many a second. One
// that failed is an error: a refusal is fast.
func readReport(text string) (done, perSecond float64, err error) {
	number := func(r *regexp.Regexp) float64 {
		match := r.FindStringSubmatch(text)
		if match == nil {
			return -1
		}
		n, _ := strconv.ParseFloat(match[1], 64) // digits
		return n
	}
	done, perSecond = number(reportDone), number(reportRate)
	if done < 0 || done > 0 && perSecond <= 0 || number(reportFailed) > 0 {
		return 0, 0, fmt.Errorf("pgbench reports no rate, or failures: %s", strings.ReplaceAll(strings.TrimSpace(text), "\n", "; "))
	}
	return done, perSecond, nil
}

// readTimes reads how long transactions took from pgbench's logs: the third
// field of each line, in µs.
func readTimes(pattern string) ([]time.Duration, error) {
	files, err := filepath.Glob(pattern)
	if err != nil {
		return nil, fmt.Errorf("find pgbench's logs: %w", err)
	}
	var times []time.Duration
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("read pgbench's log: %w", err)
		}
		for line := range bytes.Lines(text) {
			fields := bytes.Fields(line)
			if len(fields) < 3 {
				return nil, fmt.Errorf("read pgbench's log: %q has no time", line)
			}
			took, err := strconv.ParseInt(string(fields[2]), 10, 64)
			if err != nil {
				return nil, fmt.Errorf("read pgbench's log: %w", err)
			}
			times = append(times, time.Duration(took)*time.Microsecond)
		}
	}
	return times, nil
}
