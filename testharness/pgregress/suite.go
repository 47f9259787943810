package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// A result is how one test of a suite went on one leg.
type result struct {
	test   string
	passed bool
	output string // the file that tells more; "" if there is none
}

// A suite is a set of tests that run on a bench.
type suite struct {
	name     string
	database string
	run      func(ctx context.Context, b *bench) ([]result, error)
	// untagged: it makes no sense in a tagged session.
	untagged bool
	// exact: a test passes on a proxied leg only if its output is what it
	// was straight.
	exact bool
}

// suites are all that there are, in the order of the table.
func suites() []suite {
	return []suite{
		{name: "regress", database: "regression", run: runRegress},
		{name: "isolation", database: "isolation_regression", run: runIsolation},
		{name: "libpq_pipeline", database: "pipeline_regression", run: runPipeline},
		{name: "tools", database: "tools_regression", run: runTools, exact: true, untagged: true},
	}
}

func runRegress(ctx context.Context, b *bench) ([]result, error) {
	source := b.source("regress")
	return b.pgRegress(ctx, "regress/pg_regress", source, "sql", "regression",
		"--dlpath="+filepath.Join(b.files, "lib"), "--schedule="+filepath.Join(source, "parallel_schedule"))
}

// runIsolation includes the specs that want max_prepared_transactions, which
// the schedule leaves out.
func runIsolation(ctx context.Context, b *bench) ([]result, error) {
	source := b.source("isolation")
	return b.pgRegress(ctx, "isolation/pg_isolation_regress", source, "", "isolation_regression",
		"--schedule="+filepath.Join(source, "isolation_schedule"), "prepared-transactions", "prepared-transactions-cic")
}

// pgRegress runs pg_regress or its twin for isolation tests. Where scripts
// names a folder of source that must be made fenceable for the tagged leg, the
// fenced one only records what the tests say, for that to be held against.
func (b *bench) pgRegress(ctx context.Context, program, source, scripts, database string, args ...string) (_ []result, err error) {
	records := scripts != "" && b.leg == fenced
	if scripts != "" && b.leg.hasSchema() {
		recorded := ""
		if b.leg == tagged {
			recorded = filepath.Join(b.beside(fenced), "results")
		}
		if source, err = b.input(source, scripts, recorded); err != nil {
			return nil, err
		}
	}
	host, port, _ := net.SplitHostPort(b.addr)
	args = append([]string{
		"--bindir=" + b.bin(), "--inputdir=" + source, "--outputdir=" + b.out,
		"--host=" + host, "--port=" + port, "--user=postgres", "--dbname=" + database,
	}, args...)
	if b.leg.hasSchema() {
		args = append(args, "--use-existing")
	}
	out, err := b.command(ctx, b.pgxs(program), args...).CombinedOutput()
	log := filepath.Join(b.out, "log")
	if err := os.WriteFile(log, out, 0o644); err != nil {
		return nil, fmt.Errorf("keep the output of pg_regress: %w", err)
	}
	results := parseRegress(string(out))
	for i := range results {
		results[i].output = filepath.Join(b.results, results[i].test+".out")
		results[i].passed = results[i].passed || records
	}
	// It exits with 1 where tests fail.
	var exit *exec.ExitError
	if err != nil && (!errors.As(err, &exit) || ctx.Err() != nil || len(results) == 0) {
		return nil, fmt.Errorf("run %s: %w; it said: %s", filepath.Base(program), err, bytes.TrimSpace(out))
	}
	return results, nil
}

// parseRegress reads pg_regress's lines "test NAME ... ok" and, in a parallel
// group, "NAME ... FAILED (why)".
func parseRegress(text string) []result {
	var results []result
	for line := range strings.Lines(text) {
		before, after, found := strings.Cut(line, " ... ")
		name := strings.Fields(before)
		status := strings.Fields(after)
		if !found || len(name) == 0 || len(status) == 0 {
			continue
		}
		results = append(results, result{test: name[len(name)-1], passed: status[0] == "ok"})
	}
	return results
}

// pipelineRows is how many rows libpq_pipeline's tests insert, as in
// PostgreSQL's own run of them: the traces depend on it.
const pipelineRows = "700"

// runPipeline runs each test of libpq_pipeline and holds the trace of its
// messages against PostgreSQL's own, where there is one.
func runPipeline(ctx context.Context, b *bench) ([]result, error) {
	program := filepath.Join(b.files, "bin", "libpq_pipeline")
	list, err := b.command(ctx, program, "tests").Output()
	if err != nil {
		return nil, fmt.Errorf("list the tests of libpq_pipeline: %w", err)
	}
	database := "postgres"
	if b.leg.hasSchema() {
		database = "pipeline_regression"
	}
	var results []result
	for _, name := range strings.Fields(string(list)) {
		trace := filepath.Join(b.out, name+".trace")
		log := filepath.Join(b.out, name+".log")
		out, err := b.command(ctx, program, "-r", pipelineRows, "-t", trace, name, "dbname="+database).CombinedOutput()
		if err := os.WriteFile(log, out, 0o644); err != nil {
			return nil, fmt.Errorf("keep the output of libpq_pipeline: %w", err)
		}
		results = append(results, result{test: name, passed: err == nil, output: log})
		want, err := os.ReadFile(filepath.Join(b.source("libpq_pipeline"), "traces", name+".trace"))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read the expected trace: %w", err)
		}
		got, err := os.ReadFile(trace)
		results = append(results, result{test: name + " (trace)", passed: err == nil && bytes.Equal(got, want), output: trace})
	}
	return results, nil
}
