// Package samples reads metrics, for tests.
package samples

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// Gather returns what there is, by the name without fenceproxy_ in front and the
// values of the labels: "refusals_total LF001". Of a histogram it is how many
// there were.
func Gather(t testing.TB, from prometheus.Gatherer) map[string]float64 {
	t.Helper()
	families, err := from.Gather()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name := strings.TrimPrefix(f.GetName(), "fenceproxy_")
			for _, l := range m.GetLabel() {
				name += " " + l.GetValue()
			}
			all[name] = m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return all
}

// Of is Gather of one collector alone.
func Of(t testing.TB, c prometheus.Collector) map[string]float64 {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(c)
	return Gather(t, registry)
}
