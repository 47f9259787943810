// Command bench measures fenceproxy beside what it competes with, all in one
// run on this machine: straight to PostgreSQL, through PgBouncer, through
// HAProxy, through fenceproxy untagged and tagged, and fencing written by hand.
// `make bench` runs all of it and writes docs/benchmarks.md; `make bench-quick`
// runs some of it and prints.
//
// A workload is played on each way in turn, A B C A B C, so that what the
// machine does meanwhile meets all of them. What is told is the median of the
// rounds; a ratio is the median of each round's own ratio. pgbench makes the
// load wherever it can, and a client of our own the rest: COPY, connecting,
// idle sessions, claims and takeovers.
//
// It refuses to write the page unless everything was played often enough.
package main
