package main

import (
	"fmt"
	"math"
	"strconv"
)

// A goal is a figure that fenceproxy is to reach, at one or more points.
type goal struct {
	what   string
	bound  float64
	above  bool   // the figure is to be the bound or more, not less
	unit   string // of the bound; "" for a ratio
	points []point
	// elsewhere is what measures it, where this command doesn't.
	elsewhere string
	// why is where the docs tell what the figure consists of: what stands in
	// the way of one that isn't reached.
	why string
}

// Pages and headings that tell why.
const (
	whyRelayed  = "fast-path.md#what-a-relayed-message-costs"
	whyCopied   = "fast-path.md#copy-and-large-results"
	whyFenced   = "fast-path.md#what-a-fenced-write-costs"
	whyIdle     = "fast-path.md#where-the-memory-of-an-idle-session-goes"
	whyClaimed  = "fast-path.md#what-a-claim-costs"
	whyTakeover = "fast-path.md#what-a-takeover-waits-for"
)

// A point is where a goal is measured: a row, and for a ratio the row that it
// is measured against.
type point struct {
	workload string
	clients  int
	name     string // of the contender
	against  string // "" for a figure of its own
	metric   metric
}

// goals are in the order of the page.
func goals(o options) []goal {
	us, theirs := fenceproxy.String(), pgbouncer.String()
	fenced := contender{route: fenceproxy, tag: true}.named().name
	single := func(workload, name, against string, m metric) []point {
		return []point{{workload: workload, clients: 1, name: name, against: against, metric: m}}
	}
	idle := func(names ...string) (all []point) {
		for _, name := range names {
			all = append(all, point{workload: idleName, clients: o.sessions, name: name, metric: memory})
		}
		return all
	}
	updates := func(against string) []point {
		return append(everyPoint(updateFast, fenced, against, rate), everyPoint(updateDurable, fenced, against, rate)...)
	}
	return []goal{
		{what: "CPU of a relayed query, against PgBouncer", bound: 1, points: everyPoint(selectPrepared, us, theirs, cpu), why: whyRelayed},
		{what: "throughput, against PgBouncer", bound: 1, above: true, points: everyPoint(selectPrepared, us, theirs, rate), why: whyRelayed},
		{what: "p99, against PgBouncer", bound: 1, points: everyPoint(selectPrepared, us, theirs, p99), why: whyRelayed},
		{what: "untagged COPY, against direct", bound: 0.9, above: true,
			points: append(single(copyOutName, us, direct.String(), rate), single(copyInName, us, direct.String(), rate)...), why: whyCopied},
		{what: "fenced UPDATE, against the same checks pipelined by hand", bound: 0.9, above: true, points: updates(byHandPipelined), why: whyFenced},
		{what: "fenced UPDATE, against the early check pipelined by hand", bound: 0.9, above: true, points: updates(byHandEarly), why: whyFenced},
		{what: "fenced UPDATE, against FOR SHARE in a block by hand", bound: 1.5, above: true, points: updates(byHandBlock), why: whyFenced},
		{what: "added round trips of a fenced write", bound: 0, elsewhere: "`go test ./proxy`"},
		{what: "memory of an idle session", bound: 12, unit: "kB", points: idle(us, fenced), why: whyIdle},
		{what: "memory of an idle session, TLS", bound: 48, unit: "kB", points: idle(us + " TLS"), why: whyIdle},
		{what: "claim, p50, against etcd read and UPDATE by hand", bound: 1.15, points: single(claimName, us, claimers()[0].name, p50), why: whyClaimed},
		{what: "takeover, p99", bound: 300, unit: "ms", points: append(single(takeoverName, holders()[0].name, "", p99), single(takeoverName, holders()[1].name, "", p99)...), why: whyTakeover},
		{what: "check beside 10 million marks, against 100", bound: 1.1, elsewhere: "`make bench-checks`"},
		{what: "classification of a typical statement", bound: 1, unit: "µs", points: classifications(), why: whyFenced},
	}
}

// classifications are the figures of all statements that are classified.
func classifications() (all []point) {
	for _, c := range classified() {
		all = append(all, point{workload: classifyName, clients: 1, name: c.name, metric: cpu})
	}
	return all
}

// everyPoint is a figure for each number of clients.
func everyPoint(workload, name, against string, m metric) []point {
	var all []point
	for _, clients := range points {
		all = append(all, point{workload, clients, name, against, m})
	}
	return all
}

// measured is a point's figure; false if it wasn't measured.
func (p point) measured(rows []row) (spread, bool) {
	r, ok := find(rows, p.workload, p.clients, p.name)
	s := r.of(p.metric)
	if p.against != "" {
		other, found := find(rows, p.workload, p.clients, p.against)
		s, ok = r.against(other, p.metric), ok && found
	}
	return s, ok && !math.IsNaN(s.median)
}

// met says whether a figure reaches the goal.
func (g goal) met(v float64) bool {
	if g.above {
		return v >= g.bound
	}
	return v <= g.bound
}

// verdict says whether it does, and if not, where to read why.
func (g goal) verdict(v float64) string {
	if g.met(v) {
		return "met"
	}
	return "**not met** ([why](" + g.why + "))"
}

// target is the bound as a person writes it.
func (g goal) target() string {
	sign := "≤ "
	if g.above {
		sign = "≥ "
	}
	text := sign + strconv.FormatFloat(g.bound, 'f', -1, 64)
	if g.unit != "" {
		text += " " + g.unit
	}
	return text
}

// reached is the table of goals, met or not.
func reached(rows []row, o options) grid {
	g := grid{{"goal", "target", "where", "measured", ""}}
	for _, goal := range goals(o) {
		if goal.elsewhere != "" && !o.partial() {
			g = append(g, []string{goal.what, goal.target(), goal.elsewhere, "–", "not measured by this run"})
		}
		for _, p := range goal.points {
			text, verdict := "–", "not measured by this run"
			s, ok := p.measured(rows)
			if ok {
				text, verdict = spreadText(s), goal.verdict(s.median)
			}
			if ok || !o.partial() {
				g = append(g, []string{goal.what, goal.target(), p.where(), text, verdict})
			}
		}
	}
	return g
}

// where names the point.
func (p point) where() string {
	return fmt.Sprintf("%s, %d: %s", p.workload, p.clients, p.name)
}
