package main

import (
	"fmt"
	"strings"
)

// head is what stands above the figures.
const head = `# Benchmarks

` + "`make bench`" + ` writes this page, in three quarters of an hour: everything that it compares runs on one machine, in one run, in turn (A B C, A B C, …). Figures of
a busy or a virtual machine say little by themselves; the ratios are of the same rounds, and say more. ` + "`make bench-quick`" + ` prints a part of it
in less than three minutes; ` + "`make bench ONLY='update.*/8/' ROUNDS=5 ROUND_TIME=2`" + ` prints the rows that match. [The fast path](fast-path.md) tells why
the figures are what they are.

`

// legend tells what the columns mean.
const legend = `- A round of pgbench begins when all its clients are logged in and have worked for a moment, which fills PostgreSQL's caches for each of them. Rate,
  times and CPU are of the same part of a second behind that, and of all transactions that end in it.
- **a second**: transactions, scripts of pgbench or (connect, claim) operations, or MB, the median of the rounds, ± half of what lies between the
  slowest and the fastest round. **of direct**: the median of each round's ratio to the direct way, with the least and the most.
- **p50, p99**: the medians of the rounds' own. **CPU µs**: CPU time of the proxy's process for each transaction or other unit; **user**: what of it
  wasn't the kernel's, which is known by its ticks only. **kB**: resident memory that the proxy grew by for each session, at its least while all were idle.
- PgBouncer: session mode. HAProxy: tcp mode, which passes TLS on to PostgreSQL. TLS is between client and proxy, and all is on loopback.
- *tagged*: sessions hold a lock in a real etcd, that all of them share. *By hand*: a table of tokens of the application's own, and the statements that
  it would send with each UPDATE; *checks in the pipeline* sends an early and a late check with it, straight to PostgreSQL, *early check* what
  the proxy sends for an UPDATE: it knows that no late one is needed.
- *classification* is what the proxy does to see whether a statement may write; its time is that of one call, in the benchmark's own process.
- *COPY in*: PostgreSQL parses every row and keeps none (` + "`WHERE`" + `), so that the disk has no part in it. *fsync*: PostgreSQL writes
  through to the disk, with full-page writes; without, neither.

`

// tail names the benchmarks that are targets of their own.
const tail = `
## Others

` + "`make bench-micro BASE=main~5`" + ` compares the parts (frames, queue, classifier, injection) with an older commit, ` + "`make bench-profile`" + ` shows where the
relay's CPU goes, and ` + "`make bench-idle`, `bench-guard`, `bench-claims`, `bench-marks` and `bench-checks`" + ` measure one thing each.
`

// page is all that is told.
func page(m []fact, o options, rows []row) string {
	var out strings.Builder
	out.WriteString(head)
	facts := grid{{"", ""}}
	for _, f := range m {
		facts = append(facts, []string{f.name, f.value})
	}
	fmt.Fprintf(&out, "%s\n", facts)
	if g := reached(rows, o); len(g) > 1 {
		fmt.Fprintf(&out, "## Goals\n\n%s\n", g)
	}
	fmt.Fprintf(&out, "## Figures\n\n%s%s", legend, figures(rows))
	for _, r := range rows {
		if r.err != nil {
			fmt.Fprintf(&out, "\n%s failed: %v\n", r.workload.id(r.contender), r.err)
		}
	}
	out.WriteString(tail)
	return out.String()
}
