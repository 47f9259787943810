package main

import (
	"fmt"
	"io"
	"os"
	"testing"

	"github.com/fenceproxy/fenceproxy/testharness/stack"
)

// hosted returns a rig whose fenceproxy is this process, with the tables of all
// workloads.
func hosted(tb testing.TB, o options) (*rig, *stack.Proxy) {
	tb.Helper()
	ctx := tb.Context()
	r, err := newRig(ctx, "", sharedBuffers)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := r.close(); err != nil {
			tb.Error(err)
		}
	})
	p, err := r.stack.StartProxy(database, "", nil)
	if err != nil {
		tb.Fatal(err)
	}
	r.peers[fenceproxy] = &peer{addr: p.Addr(), pid: os.Getpid(), stop: func() {}}
	for _, t := range []tables{pgbenchTables, copiedTables, claimTables} {
		if err := r.fill(ctx, t, o, silent()); err != nil {
			tb.Fatal(err)
		}
	}
	return r, p
}

// silent is the progress of a run that nobody watches.
func silent() *progress { return newProgress(io.Discard, nil, options{}) }

// BenchmarkServer has pgbench work through a proxy that is this process, for a
// profile of it: `make bench-profile`.
func BenchmarkServer(b *testing.B) {
	for _, clients := range points {
		b.Run(fmt.Sprintf("clients=%d", clients), func(b *testing.B) {
			o := options{seconds: 10, extent: extent{scale: 10, megabytes: 1}}
			r, _ := hosted(b, o)
			play := pgbench(load{mode: prepared, clients: clients})
			for b.Loop() {
				s, err := play(b.Context(), r, o, contender{route: fenceproxy, script: "select-only"})
				if err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(s[rate], "queries/s")
				b.ReportMetric(s[cpu], "µs-CPU/query")
				b.ReportMetric(s[p99], "ms-p99")
			}
		})
	}
}
