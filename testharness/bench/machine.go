package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"

	"github.com/prometheus/procfs"

	"github.com/fenceproxy/fenceproxy/testharness/postgres"
)

// A fact is something that figures depend on.
type fact struct{ name, value string }

// describe tells what the figures come from.
func describe(ctx context.Context, o options) ([]fact, error) {
	binaries, err := postgres.FindBinaries()
	if err != nil {
		return nil, err
	}
	machine, load, err := hardware()
	if err != nil {
		return nil, err
	}
	return []fact{
		{"machine", machine},
		{"system", system()},
		{"load before the run", load},
		{"fenceproxy", strings.TrimPrefix(says(ctx, o.program, "version"), "fenceproxy ")},
		{"PostgreSQL, pgbench", strings.TrimPrefix(says(ctx, filepath.Join(binaries, "pgbench"), "--version"), "pgbench ")},
		{"PgBouncer", strings.TrimPrefix(says(ctx, "pgbouncer", "--version"), "PgBouncer ")},
		{"HAProxy", strings.TrimPrefix(says(ctx, "haproxy", "-v"), "HAProxy version ")},
		{"rounds", fmt.Sprintf("%d, of %g s where they don't end by themselves", o.rounds, o.seconds)},
		{"data", fmt.Sprintf("pgbench scale %d, COPY of %d MB, %d takeovers a round, %d idle sessions", o.scale, o.megabytes, o.takeovers, o.sessions)},
	}, nil
}

// hardware tells of processors and memory, and how busy they are.
func hardware() (machine, load string, err error) {
	proc, err := procfs.NewDefaultFS()
	if err != nil {
		return "", "", fmt.Errorf("read what the machine is: %w", err)
	}
	cpus, err := proc.CPUInfo()
	if err != nil {
		return "", "", fmt.Errorf("read what the processor is: %w", err)
	}
	model := "unknown processor"
	if len(cpus) > 0 {
		model = cpus[0].ModelName
	}
	mem, err := proc.Meminfo()
	if err != nil || mem.MemTotal == nil {
		return "", "", fmt.Errorf("read how much memory there is: %w", err)
	}
	busy, err := proc.LoadAvg()
	if err != nil {
		return "", "", fmt.Errorf("read the load: %w", err)
	}
	return fmt.Sprintf("%d × %s, %d GB", runtime.NumCPU(), model, (*mem.MemTotal+1<<19)>>20), fmt.Sprintf("%.1f", busy.Load1), nil
}

var prettyName = regexp.MustCompile(`(?m)^PRETTY_NAME="?([^"\n]*)`)

// system tells the distribution and the kernel, as far as they tell themselves.
func system() string {
	name := runtime.GOOS
	text, _ := os.ReadFile("/etc/os-release") // not every system has it
	if match := prettyName.FindSubmatch(text); match != nil {
		name = string(match[1])
	}
	kernel, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	return name + ", kernel " + strings.TrimSpace(string(kernel))
}

// says is the first line that a program says.
func says(ctx context.Context, program string, args ...string) string {
	out, err := exec.CommandContext(ctx, program, args...).Output()
	if err != nil {
		return "not there"
	}
	line, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	line, _, _ = strings.Cut(line, " - https")
	return line
}
