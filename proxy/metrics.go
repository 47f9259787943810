package proxy

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/fenceproxy/fenceproxy/fencing"
)

// Metrics counts what a Server does. No label is drawn from a key, a user or
// anything else that a client chooses.
type Metrics struct {
	Sessions       prometheus.Gauge
	Opened         prometheus.Counter
	CrowdedOut     prometheus.Counter
	Tagged         prometheus.Counter
	Checks         *prometheus.CounterVec // when: early, late
	Refusals       *prometheus.CounterVec // code: SQLSTATE
	UntaggedWrites *prometheus.CounterVec // action: observed, unsure, rejected
	Evictions      *prometheus.CounterVec // victim: idle, active, terminated
	LostReplies    prometheus.Counter
	Sections       prometheus.Histogram
	Duplicates     prometheus.Counter
	ProtocolErrors *prometheus.CounterVec // code: SQLSTATE of class 08
}

// NewMetrics makes the metrics and registers them, unless reg is nil.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: "fenceproxy_" + name, Help: help})
	}
	vec := func(name, help, label string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "fenceproxy_" + name, Help: help}, []string{label})
	}
	m := &Metrics{
		Sessions:       prometheus.NewGauge(prometheus.GaugeOpts{Name: "fenceproxy_sessions", Help: "Client sessions that are open."}),
		Opened:         counter("sessions_opened_total", "Client sessions that were authenticated."),
		CrowdedOut:     counter("newcomers_crowded_out_total", "Clients hung up on before they had said who they are, because too many others were waiting."),
		Tagged:         counter("sessions_tagged_total", "Sessions that presented a tag at least once."),
		Checks:         vec("checks_total", "Hidden checks sent to PostgreSQL, by where they stand in the transaction.", "when"),
		Refusals:       vec("refusals_total", "Statements refused, by SQLSTATE.", "code"),
		UntaggedWrites: vec("untagged_writes_total", "Writes without a tag in sessions whose policy is to observe or reject them, by what became of them: observed (would be refused), unsure (would be if they wrote), rejected.", "action"),
		Evictions:      vec("evictions_total", "Sessions ended by a higher claim, by what they were doing (idle, active), or terminated: by the claim of another proxy.", "victim"),
		LostReplies:    counter("lost_replies_total", "Sessions whose replies could no longer be told apart."),
		Sections: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "fenceproxy_critical_section_seconds",
			Help:    "How long sessions had a tag, from its claim to its release, to another tag or to the end of the session.",
			Buckets: []float64{.005, .025, .1, .5, 1, 5, 15, 60, 300, 1800, 7200},
		}),
		Duplicates:     counter("duplicate_inserts_total", "Statements of tagged sessions that PostgreSQL refused because the row is there already (23505)."),
		ProtocolErrors: vec("protocol_errors_total", "Errors of the protocol between client, proxy and PostgreSQL, by SQLSTATE.", "code"),
	}
	m.begin()
	if reg != nil {
		reg.MustRegister(m.Sessions, m.Opened, m.CrowdedOut, m.Tagged, m.Checks, m.Refusals, m.UntaggedWrites, m.Evictions, m.LostReplies,
			m.Sections, m.Duplicates, m.ProtocolErrors)
	}
	return m
}

// The labels of counters.
const (
	countedEarly, countedLate                  = "early", "late"
	victimIdle, victimActive, victimTerminated = "idle", "active", "terminated"
)

// protocolCodes are PostgreSQL's own of the class, as errcodes.txt has them.
func protocolCodes() []string {
	return []string{"08000", "08001", "08003", "08004", "08006", "08007", "08P01"}
}

// begin has each counter be there before it counts: Prometheus sees no increase in a
// series whose first value is 1, and an alert on it would miss the first time.
func (m *Metrics) begin() {
	for _, code := range append(fencing.Codes(), fencing.LoanCodes()...) {
		m.Refusals.WithLabelValues(string(code))
	}
	for vec, values := range map[*prometheus.CounterVec][]string{
		m.Checks:         {countedEarly, countedLate},
		m.UntaggedWrites: {string(actionObserved), string(actionUnsure), string(actionRejected)},
		m.Evictions:      {victimIdle, victimActive, victimTerminated},
		m.ProtocolErrors: protocolCodes(),
	} {
		for _, value := range values {
			vec.WithLabelValues(value)
		}
	}
}
