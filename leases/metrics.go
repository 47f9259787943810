package leases

import (
	"context"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics counts what the locks of a holder's process go through. It is a
// prometheus.Collector for the caller to register; one may serve any number of
// Lockers. No label is drawn from a key.
type Metrics struct {
	acquisitions *prometheus.CounterVec // result
	contended    prometheus.Counter
	took         *prometheus.HistogramVec // result
	expirations  prometheus.Counter
	renewals     *prometheus.CounterVec // result
}

// Of the label result of an acquisition.
const (
	resultAcquired    = "acquired"
	resultTaken       = "taken"       // ErrTaken
	resultLost        = "lost"        // ErrLost
	resultUnavailable = "unavailable" // ErrUnavailable
	resultGivenUp     = "given_up"    // the caller's context ended
	resultInvalid     = "invalid"     // ErrInvalid, and whatever else is no answer of etcd's
)

// Of the label result of a renewal.
const (
	resultRenewed = "renewed"
	resultFailed  = "failed"
)

// NewMetrics returns Metrics that nobody has registered yet.
func NewMetrics() *Metrics {
	counter := func(name, help string) prometheus.CounterOpts {
		return prometheus.CounterOpts{Name: "fenceproxy_lock_" + name, Help: help}
	}
	m := &Metrics{
		acquisitions: prometheus.NewCounterVec(counter("acquisitions_total", "Attempts to take a lock, by result."), []string{"result"}),
		contended:    prometheus.NewCounter(counter("contended_total", "Attempts to take a lock that somebody else held at that time.")),
		took: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "fenceproxy_lock_acquisition_seconds", Help: "How long attempts to take a lock took, waiting in line included, by result.",
			Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300},
		}, []string{"result"}),
		expirations: prometheus.NewCounter(counter("expirations_total", "Locks that were lost while they were held: not renewed in time, revoked or deleted.")),
		renewals:    prometheus.NewCounterVec(counter("renewals_total", "Renewals of leases, by result."), []string{"result"}),
	}
	// All are there before they count, so that the first of a kind is an increase.
	for _, result := range []string{resultRenewed, resultFailed} {
		m.renewals.WithLabelValues(result)
	}
	for _, result := range []string{resultAcquired, resultTaken, resultLost, resultUnavailable, resultGivenUp, resultInvalid} {
		m.acquisitions.WithLabelValues(result)
		m.took.WithLabelValues(result)
	}
	return m
}

// Describe is prometheus.Collector's.
func (m *Metrics) Describe(to chan<- *prometheus.Desc) {
	for _, c := range m.all() {
		c.Describe(to)
	}
}

// Collect is prometheus.Collector's.
func (m *Metrics) Collect(to chan<- prometheus.Metric) {
	for _, c := range m.all() {
		c.Collect(to)
	}
}

func (m *Metrics) all() []prometheus.Collector {
	return []prometheus.Collector{m.acquisitions, m.contended, m.took, m.expirations, m.renewals}
}

// tried takes an attempt to take a lock. waited says that somebody else held it.
func (m *Metrics) tried(took time.Duration, waited bool, err error) {
	if m == nil {
		return
	}
	result := resultOf(err)
	m.acquisitions.WithLabelValues(result).Inc()
	m.took.WithLabelValues(result).Observe(took.Seconds())
	if waited || errors.Is(err, ErrTaken) {
		m.contended.Inc()
	}
}

func resultOf(err error) string {
	switch {
	case err == nil:
		return resultAcquired
	case errors.Is(err, ErrTaken):
		return resultTaken
	case errors.Is(err, ErrLost):
		return resultLost
	case errors.Is(err, ErrUnavailable):
		return resultUnavailable
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return resultGivenUp
	}
	return resultInvalid
}

// renewed takes the end of a try to renew.
func (m *Metrics) renewed(ok bool) {
	switch {
	case m == nil:
	case ok:
		m.renewals.WithLabelValues(resultRenewed).Inc()
	default:
		m.renewals.WithLabelValues(resultFailed).Inc()
	}
}

// ended takes why a lock that was held is no more.
func (m *Metrics) ended(cause error) {
	if m != nil && errors.Is(cause, ErrLost) {
		m.expirations.Inc()
	}
}
