package main

import (
	"math"
	"slices"
	"time"
)

// A metric is something that a round measures.
type metric int

const (
	rate    metric = iota // units a second
	p50                   // milliseconds
	p99                   // milliseconds
	cpu                   // µs of the proxy's CPU a unit,
	user                  // and those of them that weren't the kernel's
	memory                // kB a session
	metrics               // how many there are
)

// A sample is what one round measured; NaN is what it didn't.
type sample [metrics]float64

// nothing is a sample without measurements.
func nothing() (s sample) {
	for m := range s {
		s[m] = math.NaN()
	}
	return s
}

// took adds how long each of many operations took.
func (s *sample) took(all []time.Duration) {
	if len(all) == 0 {
		return
	}
	slices.Sort(all)
	s[p50], s[p99] = quantile(all, 0.50), quantile(all, 0.99)
}

// quantile is the smallest of sorted durations that a share q of them doesn't
// exceed, in milliseconds.
func quantile(sorted []time.Duration, q float64) float64 {
	i := int(math.Ceil(q*float64(len(sorted)))) - 1
	return float64(sorted[max(i, 0)]) / float64(time.Millisecond)
}

// A spread is the median of some rounds, and the least and the most of them.
type spread struct{ median, least, most float64 }

// spreadOf leaves out what wasn't measured; NaN if nothing was.
func spreadOf(values []float64) spread {
	values = slices.DeleteFunc(slices.Clone(values), math.IsNaN)
	if len(values) == 0 {
		return spread{math.NaN(), math.NaN(), math.NaN()}
	}
	slices.Sort(values)
	middle := len(values) / 2
	median := values[middle]
	if len(values)%2 == 0 {
		median = (values[middle-1] + values[middle]) / 2
	}
	return spread{median, values[0], values[len(values)-1]}
}

// A row is what a contender did in a workload.
type row struct {
	workload  *workload
	contender contender
	rounds    []sample
	err       error // what ended its rounds early
}

// of is the spread of a metric over the rounds.
func (r row) of(m metric) spread {
	var values []float64
	for _, s := range r.rounds {
		values = append(values, s[m])
	}
	return spreadOf(values)
}

// against is the spread of the rounds' own ratios of a metric to another row's,
// which was played in the same rounds.
func (r row) against(other row, m metric) spread {
	var values []float64
	for i := range min(len(r.rounds), len(other.rounds)) {
		values = append(values, r.rounds[i][m]/other.rounds[i][m])
	}
	return spreadOf(values)
}
