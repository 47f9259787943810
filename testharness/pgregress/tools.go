package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// A tool is a command line of a program of PostgreSQL's, which finds the leg
// in its environment.
type tool struct{ name, line string }

// tools run one after the other, in a database that the first ones make. What
// they fail at is part of what they say.
var tools = []tool{
	{"pg_isready", "pg_isready"},
	{"createdb", "createdb --echo tools"},
	{"createdb again", "createdb tools"},
	{"createuser", "createuser --echo --createdb tools_user"},
	{"psql", "psql -X -a -d tools -f psql.sql"},
	{"pgbench -i", "pgbench -i -s 1 --foreign-keys tools"},
	{"pgbench simple", "pgbench -n --random-seed 1 -t 20 -M simple tools"},
	{"pgbench extended", "pgbench -n --random-seed 2 -t 20 -M extended tools"},
	{"pgbench prepared", "pgbench -n --random-seed 3 -t 20 -M prepared tools"},
	{"pgbench many", "pgbench -n -S -c 8 -C -t 5 tools"},
	{"pgbench pipeline", "pgbench -n -t 5 -M extended -f pipeline.sql tools"},
	{"vacuumdb", "vacuumdb --echo --analyze tools"},
	{"vacuumdb parallel", "vacuumdb --jobs 3 --freeze tools"},
	{"vacuumdb in stages", "vacuumdb --all --analyze-in-stages"},
	{"vacuumdb of nobody", "vacuumdb --table nobody tools"},
	{"clusterdb", "clusterdb --echo tools"},
	{"reindexdb", "reindexdb --echo tools"},
	{"reindexdb concurrently", "reindexdb --concurrently --jobs 2 tools"},
	{"reindexdb system", "reindexdb --system tools"},
	{"pg_amcheck", "pg_amcheck --install-missing --heapallindexed --jobs 2 tools"},
	{"pg_dump", "pg_dump --exclude-table-data pgbench_history tools"},
	{"pg_dump parallel", "pg_dump --exclude-table-data pgbench_history -Fd -j 2 -f dump tools"},
	{"createdb restored", "createdb restored"},
	{"pg_restore parallel", "pg_restore -j 2 -d restored dump"},
	{"pg_dump restored", "pg_dump restored"},
	{"pg_dumpall", "pg_dumpall --no-role-passwords --schema-only"},
	{"oid2name", "oid2name -d tools -q"}, // before vacuumlo, whose temporary table may linger
	{"vacuumlo", "vacuumlo --verbose tools"},
	{"dropuser", "dropuser --echo tools_user"},
	{"dropdb", "dropdb --echo restored"},
	{"dropdb with force", "dropdb --force tools"},
	{"dropdb again", "dropdb tools"},
}

//go:embed testdata/psql.sql
var psqlScript string

// pipelineScript is for pgbench.
const pipelineScript = `\startpipeline
SELECT 1;
UPDATE pgbench_branches SET bbalance = bbalance + 1;
SELECT 2;
\endpipeline
`

// runTools keeps what each tool says.
func runTools(ctx context.Context, b *bench) ([]result, error) {
	for name, text := range map[string]string{"psql.sql": psqlScript, "pipeline.sql": pipelineScript} {
		if err := os.WriteFile(filepath.Join(b.out, name), []byte(text), 0o644); err != nil {
			return nil, fmt.Errorf("write a script: %w", err)
		}
	}
	var results []result
	for _, t := range tools {
		argv := strings.Fields(t.line)
		out, err := b.command(ctx, filepath.Join(b.bin(), argv[0]), argv[1:]...).CombinedOutput()
		var exit *exec.ExitError
		if err != nil && !errors.As(err, &exit) {
			return nil, fmt.Errorf("run %s: %w", t.line, err)
		}
		text := fmt.Sprintf("%s\nexit: %v\n", volatile.ReplaceAllString(string(out), "…"), err)
		output := filepath.Join(b.results, strings.ReplaceAll(t.name, " ", "-")+".out")
		if err := os.WriteFile(output, []byte(text), 0o644); err != nil {
			return nil, fmt.Errorf("keep the output of %s: %w", t.name, err)
		}
		results = append(results, result{test: t.name, passed: true, output: output})
	}
	return results, ctx.Err()
}

// volatile is what the tools say that differs from run to run: times, process
// ids, dates, ports, and the keys that a dump and its script share.
var volatile = regexp.MustCompile(`\d+(\.\d+)? (ms|s)\b|(tps = |PID |restrict |port |127\.0\.0\.1:)\S+|.* \(every .*`)
