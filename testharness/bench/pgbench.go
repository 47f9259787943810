package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/procfs"

	"github.com/fenceproxy/fenceproxy/testharness/child"
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

// settling is how long clients work before they are measured: a new session's
// first queries fill caches of PostgreSQL's, prepare, and are planned anew.
func (l load) settling() time.Duration {
	return 50*time.Millisecond + time.Duration(l.clients)*2*time.Millisecond
}

// tries is how often pgbench is given more time.
const tries = 4

// play runs pgbench, and measures it for as long as a round takes; for longer if
// the disk was so slow that nothing was done.
func (l load) play(ctx context.Context, r *rig, o options, c contender, p *peer) (s sample, err error) {
	for try := range tries {
		s, err = l.playFor(ctx, r, o, c, p, o.length()<<try)
		if !errors.Is(err, errNothingDone) {
			break
		}
	}
	return s, err
}

// playFor runs pgbench, and measures it for some time.
func (l load) playFor(ctx context.Context, r *rig, o options, c contender, p *peer, length time.Duration) (sample, error) {
	dir, err := os.MkdirTemp(r.dir, "pgbench-")
	if err != nil {
		return nothing(), fmt.Errorf("make a folder: %w", err)
	}
	defer os.RemoveAll(dir)
	args, err := l.args(dir, o, c)
	if err != nil {
		return nothing(), err
	}
	cmd := exec.CommandContext(ctx, r.stack.Postgres.Program("pgbench"), args...)
	cmd.Env, cmd.SysProcAttr = r.environment(p, c), child.Attributes()
	return l.measure(cmd, filepath.Join(dir, logPrefix), length, p)
}

// errNothingDone says that no transaction ended in the time that was measured.
var errNothingDone = errors.New("no transaction ended")

const (
	// logPrefix is how the names of pgbench's logs begin.
	logPrefix = "log"
	// longest bounds a pgbench that nobody ends.
	longest = 5 * time.Minute
)

// args writes the contender's script if it has to, and returns pgbench's
// arguments. All transactions are logged, since those of a part of its time are
// counted.
func (l load) args(dir string, o options, c contender) ([]string, error) {
	args := []string{
		"-n", "-M", string(l.mode), "-c", strconv.Itoa(l.clients), "-j", strconv.Itoa(l.threads()),
		"-T", strconv.Itoa(int(longest.Seconds())), "-D", "accounts=" + strconv.Itoa(o.scale*perScale),
		"--log", "--log-prefix", filepath.Join(dir, logPrefix),
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

// threads is how many of pgbench's there are.
func (l load) threads() int { return min(2, l.clients) }

// measure runs pgbench until its clients have worked for some time. What it says
// itself is of all its time; here, rate, times and CPU are of the same part of
// it, which is without logging in and first queries. It ends as if that time had
// been its -T, which is whole seconds from before it connects.
func (l load) measure(cmd *exec.Cmd, logs string, length time.Duration, p *peer) (sample, error) {
	s := nothing()
	var said bytes.Buffer
	cmd.Stderr = &said
	if err := cmd.Start(); err != nil {
		return s, fmt.Errorf("start pgbench: %w", err)
	}
	ended := make(chan struct{})
	var failed error
	go func() {
		failed = cmd.Wait()
		close(ended)
	}()
	l.awaitClients(cmd.Process.Pid, logs, ended)
	pause(ended, l.settling())
	m, err := p.meter()
	from := time.Now()
	pause(ended, length)
	used, usedErr := m.since()
	to := time.Now()
	_ = cmd.Process.Signal(syscall.SIGALRM) // it may have ended, and says why
	<-ended
	if err := errors.Join(failed, err, usedErr); err != nil {
		return s, fmt.Errorf("run pgbench: %w: %s", err, strings.TrimSpace(said.String()))
	}
	times, err := readTimes(logs+".*", from, to)
	if err != nil {
		return s, err
	}
	if len(times) == 0 {
		return s, fmt.Errorf("measure pgbench for %v: %w", to.Sub(from), errNothingDone)
	}
	s.took(times)
	s[rate] = float64(len(times)) / to.Sub(from).Seconds()
	m.share(&s, used, float64(len(times)))
	return s, nil
}

// pause waits for some time, or until pgbench has ended.
func pause(ended <-chan struct{}, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ended:
	case <-timer.C:
	}
}

// awaitClients waits until each thread has begun a log, and each client has a
// connection; or until pgbench has ended. Before there are threads, pgbench has
// a connection that is no client's.
func (l load) awaitClients(pid int, logs string, ended <-chan struct{}) {
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ended:
			return
		case <-tick.C:
		}
		begun, err := filepath.Glob(logs + ".*")
		if err == nil && len(begun) >= l.threads() && sockets(pid) >= l.clients {
			return
		}
	}
}

// sockets is how many a process has; none if it has ended.
func sockets(pid int) (n int) {
	process, err := procfs.NewProc(pid)
	if err != nil {
		return 0
	}
	targets, err := process.FileDescriptorTargets()
	if err != nil {
		return 0
	}
	for _, target := range targets {
		if strings.HasPrefix(target, "socket:") {
			n++
		}
	}
	return n
}

// readTimes reads from pgbench's logs how long the transactions took that ended
// in a part of its time. One that failed is an error: a refusal is fast.
func readTimes(pattern string, from, to time.Time) ([]time.Duration, error) {
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
			took, end, err := readTime(string(line))
			if err != nil {
				return nil, fmt.Errorf("read pgbench's log: %w", err)
			}
			if !end.Before(from) && end.Before(to) {
				times = append(times, took)
			}
		}
	}
	return times, nil
}

// readTime reads a line of pgbench's log: the transaction's client, its number
// there, its time in µs, its script, and the second and the µs when it ended.
func readTime(line string) (took time.Duration, end time.Time, err error) {
	fields := strings.Fields(line)
	if len(fields) < 6 {
		return 0, end, fmt.Errorf("%q has no time", line)
	}
	var numbers [3]int64
	for i, field := range []string{fields[2], fields[4], fields[5]} {
		if numbers[i], err = strconv.ParseInt(field, 10, 64); err != nil {
			return 0, end, fmt.Errorf("%q: %w", line, err)
		}
	}
	return time.Duration(numbers[0]) * time.Microsecond, time.Unix(numbers[1], numbers[2]*1000), nil
}
