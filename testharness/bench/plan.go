package main

import (
	"context"
	"fmt"
	"regexp"
	"slices"
)

// A player plays one round of one contender.
type player func(ctx context.Context, r *rig, o options, c contender) (sample, error)

// A workload is what contenders are measured by, in turn.
type workload struct {
	name       string
	clients    int
	unit       string // what its rate counts
	durable    bool   // PostgreSQL writes through to the disk
	crowded    bool   // it wants a PostgreSQL for very many sessions
	quick      bool   // it is part of the quick run
	tables     tables // that it needs
	contenders []contender
	play       player
	takes      estimate
}

// id is what ONLY is matched against.
func (w *workload) id(c contender) string {
	return fmt.Sprintf("%s/%d/%s", w.name, w.clients, c.name)
}

// Names of workloads that goals ask for.
const (
	selectPrepared = "select, prepared"
	updateDurable  = "update, fsync"
	updateFast     = "update, no fsync"
	copyOutName    = "COPY out"
	copyInName     = "COPY in"
	idleName       = "idle sessions"
	claimName      = "claim"
	takeoverName   = "takeover"
	classifyName   = "classification"
)

// Names of contenders that fence by hand.
const (
	byHandBlock     = "by hand: FOR SHARE in a block"
	byHandCTE       = "by hand: CTE"
	byHandPipelined = "by hand: checks in the pipeline"
	byHandEarly     = "by hand: early check in the pipeline"
)

// points are how many clients there are at a time.
var points = []int{1, 8, 32, 128}

// plan returns all workloads, in the order of the table.
func plan(o options) []*workload {
	var all []*workload
	everywhere := func(w workload, m mode, quick ...int) {
		for _, clients := range points {
			w := w
			w.clients, w.quick = clients, slices.Contains(quick, clients)
			l := load{mode: m, clients: clients}
			w.unit, w.tables, w.play, w.takes = "transactions", pgbenchTables, pgbench(l), l.takes
			all = append(all, &w)
		}
	}
	everywhere(workload{name: "select, simple", contenders: proxies("select-only", false)}, simple)
	everywhere(workload{name: "select, extended", contenders: proxies("select-only", false)}, extended)
	everywhere(workload{name: selectPrepared, contenders: proxies("select-only", false)}, prepared, 8, 32)
	everywhere(workload{name: "select, prepared, TLS", contenders: proxies("select-only", true)}, prepared)
	everywhere(workload{name: "10 selects in a pipeline", contenders: proxies("ten", false)}, extended)
	everywhere(workload{name: updateFast, contenders: fencers()}, prepared, 8)
	everywhere(workload{name: updateDurable, contenders: fencers(), durable: true}, prepared)
	everywhere(workload{name: "tpcb-like", contenders: proxies("tpcb-like", false)}, prepared)
	return append(all,
		&workload{name: copyOutName, clients: 1, unit: "MB", contenders: proxies("", false), tables: copiedTables, play: copyOut, takes: copyTakes(copyOutSpeed), quick: true},
		&workload{name: copyInName, clients: 1, unit: "MB", contenders: proxies("", false), tables: copiedTables, play: copyIn, takes: copyTakes(copyInSpeed), quick: true},
		&workload{name: "connect", clients: 8, unit: "sessions", contenders: proxies("", false), play: connecting(8), takes: lengthTakes},
		&workload{name: "connect, TLS", clients: 8, unit: "sessions", contenders: proxies("", true), play: connecting(8), takes: lengthTakes},
		&workload{name: claimName, clients: 1, unit: "claims", durable: true, contenders: claimers(), tables: claimTables, play: claiming, takes: lengthTakes, quick: true},
		&workload{name: takeoverName, clients: 1, unit: "takeovers", durable: true, contenders: holders(), tables: claimTables, play: takingOver, takes: takeoverTakes, quick: true},
		&workload{name: classifyName, clients: 1, unit: "statements", contenders: classified(), play: classifying, takes: lengthTakes, quick: true},
		&workload{name: idleName, clients: o.sessions, crowded: true, contenders: idlers(), play: idling, takes: idleTakes},
	)
}

// fencers are the ways of an UPDATE: unfenced, fenced, and fenced by hand.
func fencers() []contender {
	return append(proxies("update", false),
		contender{name: byHandBlock, route: direct, script: "for share"},
		contender{name: byHandBlock + ", PgBouncer", route: pgbouncer, script: "for share"},
		contender{name: byHandCTE, route: direct, script: "cte"},
		contender{name: byHandCTE + ", PgBouncer", route: pgbouncer, script: "cte"},
		contender{name: byHandPipelined, route: direct, tag: true, script: "pipelined"},
		contender{name: byHandEarly, route: direct, tag: true, script: "early"},
	)
}

// idlers are the servers that sessions are idle in.
func idlers() []contender {
	var all []contender
	for _, c := range []contender{
		{route: pgbouncer}, {route: haproxy}, {route: fenceproxy}, {route: fenceproxy, tag: true},
		{route: pgbouncer, tls: true}, {route: fenceproxy, tls: true},
	} {
		all = append(all, c.named())
	}
	return all
}

// selected returns the workloads that are wanted, each with the contenders that
// are: those that the expression matches, and in a quick run only a part.
func selected(all []*workload, o options) ([]*workload, error) {
	only, err := regexp.Compile(o.only)
	if err != nil {
		return nil, fmt.Errorf("read ONLY: %w", err)
	}
	var some []*workload
	for _, w := range all {
		if o.quick && o.only == "" && !w.quick {
			continue
		}
		wanted := *w
		wanted.contenders = slices.DeleteFunc(slices.Clone(w.contenders), func(c contender) bool { return !only.MatchString(w.id(c)) })
		if len(wanted.contenders) > 0 {
			some = append(some, &wanted)
		}
	}
	if len(some) == 0 {
		return nil, fmt.Errorf("ONLY=%s is no workload: they are named like %q", o.only, all[0].id(all[0].contenders[0]))
	}
	return some, nil
}
