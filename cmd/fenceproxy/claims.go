package main

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fenceproxy/fenceproxy/fencing"
	"github.com/fenceproxy/fenceproxy/proxy/live"
)

// claimObserver counts and logs what claims do, and adds it to the journal. Keys stand in the log only:
// as metric labels they would be without number.
type claimObserver struct {
	logger  *slog.Logger
	journal *live.Journal
	claims  *prometheus.CounterVec   // outcome, code ("" unless refused)
	took    *prometheus.HistogramVec // outcome
	phases  *prometheus.HistogramVec // phase
	ended   prometheus.Counter
	moves   prometheus.Counter
	alarm   *lineageAlarm

	mu   sync.Mutex
	seen map[string]map[string]struct{} // histories of PostgreSQL, by database
}

func newClaimObserver(logger *slog.Logger, registry prometheus.Registerer, journal *live.Journal) *claimObserver {
	o := &claimObserver{
		logger: logger, journal: journal,
		claims: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fenceproxy_claims_total", Help: "Claims carried out, by outcome and, if refused, SQLSTATE.",
		}, []string{"outcome", "code"}),
		took: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "fenceproxy_claim_seconds", Help: "How long claims took, by outcome.",
			Buckets: claimBuckets(),
		}, []string{"outcome"}),
		phases: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "fenceproxy_claim_phase_seconds", Help: "How long the parts of claims took: verify (etcd), raise (PostgreSQL), and evict, the part of raise in which stale work was ended.",
			Buckets: claimBuckets(),
		}, []string{"phase"}),
		moves: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "fenceproxy_timeline_changes_total", Help: "Times that claims found PostgreSQL on another timeline than any before, as after a failover.",
		}),
		seen: map[string]map[string]struct{}{},
		ended: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "fenceproxy_claim_ended_backends_total", Help: "PostgreSQL backends that claims ended because stale work blocked them.",
		}),
	}
	o.begin()
	o.alarm = newLineageAlarm(logger, registry)
	registry.MustRegister(o.claims, o.took, o.phases, o.ended, o.moves)
	return o
}

// begin has each series be there before it counts, so that the first of a kind is an
// increase.
func (o *claimObserver) begin() {
	for _, outcome := range []fencing.Outcome{fencing.OutcomeRefused, fencing.OutcomeRaised, fencing.OutcomeHeld, fencing.OutcomeKnown} {
		o.took.WithLabelValues(outcome.String())
		if outcome != fencing.OutcomeRefused {
			o.claims.WithLabelValues(outcome.String(), "")
		}
	}
	for _, code := range fencing.Codes() {
		o.claims.WithLabelValues(fencing.OutcomeRefused.String(), string(code))
	}
	for _, phase := range []string{phaseVerify, phaseRaise, phaseEvict} {
		o.phases.WithLabelValues(phase)
	}
}

// The parts of a claim, as labels.
const (
	phaseVerify = "verify"
	phaseRaise  = "raise"
	phaseEvict  = "evict"
)

// claimBuckets reach beyond the default of --claim-timeout.
func claimBuckets() []float64 {
	return []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}
}

// observePhases leaves out what a claim didn't do.
func (o *claimObserver) observePhases(p fencing.Phases) {
	for phase, took := range map[string]time.Duration{phaseVerify: p.Verify, phaseRaise: p.Raise, phaseEvict: p.Evict} {
		if took > 0 {
			o.phases.WithLabelValues(phase).Observe(took.Seconds())
		}
	}
}

// sawTimeline counts the timelines of a database after the first. Claims on an old
// primary and on the new one may end in any order, so each counts once.
func (o *claimObserver) sawTimeline(database, timeline string) {
	if timeline == "" {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.seen[database] == nil {
		o.seen[database] = map[string]struct{}{}
	}
	if _, ok := o.seen[database][timeline]; ok {
		return
	}
	if len(o.seen[database]) > 0 {
		o.moves.Inc()
	}
	o.seen[database][timeline] = struct{}{}
}

// ClaimDone is fencing.Observer's.
func (o *claimObserver) ClaimDone(r fencing.ClaimReport) {
	code := ""
	if r.Err != nil {
		code = string(r.Err.Code)
	}
	o.claims.WithLabelValues(r.Outcome.String(), code).Inc()
	o.took.WithLabelValues(r.Outcome.String()).Observe(r.Took.Seconds())
	o.observePhases(r.Phases)
	o.sawTimeline(r.Database, r.Timeline)
	o.journalise(r)
	if r.Err != nil {
		if r.Err.Code == fencing.CodeLineage {
			o.alarm.claimRefused(r.Database, r.Epoch, r.Err.Message)
		}
		o.logger.Warn(logClaimRefused, "session", r.Session, "database", r.Database, "key", r.Pair.Key, "token", r.Pair.Token,
			"code", code, "error", r.Err, "took", r.Took)
		return
	}
	o.alarm.claimAccepted(r.Database, r.Epoch)
	level := slog.LevelInfo
	if r.Outcome == fencing.OutcomeKnown {
		level = slog.LevelDebug // one for each transaction, where a pool tags each
	}
	o.logger.Log(context.Background(), level, logClaim, "session", r.Session, "database", r.Database, "key", r.Pair.Key, "token", r.Pair.Token,
		"outcome", r.Outcome.String(), "evicted", r.Evicted, "ended", r.Ended, "took", r.Took)
}

// journalise leaves out the claims that were known: there may be one for each
// transaction.
func (o *claimObserver) journalise(r fencing.ClaimReport) {
	e := live.Event{
		Kind: live.Claimed, Session: r.Session, Database: r.Database, Key: r.Pair.Key, Token: r.Pair.Token,
		What: r.Outcome.String(), Evicted: r.Evicted, Ended: r.Ended, Took: r.Took,
	}
	switch {
	case r.Err != nil:
		e.Kind, e.Code, e.Message, e.Detail, e.Hint = live.ClaimRefused, string(r.Err.Code), r.Err.Message, r.Err.Detail, r.Err.Hint
		if _, _, by, ok := fencing.ReadSuperseded(r.Err.Message); ok {
			e.Higher = by
		}
	case r.Outcome == fencing.OutcomeKnown:
		return
	}
	o.journal.Add(e)
}

// BackendEnded is fencing.Observer's.
func (o *claimObserver) BackendEnded(database, key string, b fencing.Blocker) {
	o.ended.Inc()
	o.journal.Add(live.Event{Kind: live.BackendEnded, Database: database, Key: key, What: b.String()})
	o.logger.Warn("ended a backend that blocked a claim", "database", database, "key", key, "backend", b.String())
}
