package main

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// proxyStatus is what a running proxy's admin port says.
type proxyStatus struct {
	Admin    string         `json:"admin"`
	Error    string         `json:"error,omitempty"`
	Ready    bool           `json:"ready"`
	Unready  string         `json:"not_ready,omitempty"` // why
	Sessions int            `json:"sessions"`            // open now
	Opened   int            `json:"sessions_opened"`     // since it started, as what follows
	Tagged   int            `json:"sessions_tagged"`
	Evicted  int            `json:"evictions"`
	Refused  map[string]int `json:"refusals,omitempty"` // by SQLSTATE
}

// status asks for all of it.
func (c *adminClient) status(ctx context.Context) *proxyStatus {
	p := &proxyStatus{Admin: c.at, Refused: map[string]int{}}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	metrics, err := c.families(ctx)
	if err != nil {
		p.Error = err.Error()
		return p
	}
	p.Sessions = total(metrics["fenceproxy_sessions"])
	p.Opened = total(metrics["fenceproxy_sessions_opened_total"])
	p.Tagged = total(metrics["fenceproxy_sessions_tagged_total"])
	p.Evicted = total(metrics["fenceproxy_evictions_total"])
	for _, m := range metrics["fenceproxy_refusals_total"].GetMetric() {
		for _, label := range m.GetLabel() {
			if n := int(m.GetCounter().GetValue()); n > 0 {
				p.Refused[label.GetValue()] = n
			}
		}
	}
	if status, why, err := c.get(ctx, "/readyz"); err != nil {
		p.Error = err.Error()
	} else if p.Ready = status == http.StatusOK; !p.Ready {
		p.Unready = strings.TrimSpace(string(why))
	}
	return p
}

func (c *adminClient) families(ctx context.Context) (map[string]*dto.MetricFamily, error) {
	status, body, err := c.get(ctx, "/metrics")
	switch {
	case err != nil:
		return nil, err
	case status == http.StatusUnauthorized:
		return nil, fmt.Errorf("the admin port at %s asks for its token: --admin-token-file FILE or %s", c.at, variable("admin-token"))
	case status == http.StatusTooManyRequests:
		return nil, fmt.Errorf("the admin port at %s has had too many wrong tokens from this address: ask again in a moment", c.at)
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(string(body)))
	if err != nil || status != http.StatusOK || families["fenceproxy_sessions"] == nil {
		return nil, fmt.Errorf("%s answers, but not as a fenceproxy's admin port", c.at)
	}
	return families, nil
}

// total adds up a metric's values, whatever their labels.
func total(family *dto.MetricFamily) (sum int) {
	for _, m := range family.GetMetric() {
		sum += int(m.GetCounter().GetValue() + m.GetGauge().GetValue())
	}
	return sum
}

func (p *proxyStatus) String() string {
	if p.Error != "" {
		return p.Error
	}
	ready := "ready"
	if !p.Ready {
		ready = "not ready (" + p.Unready + ")"
	}
	text := fmt.Sprintf("%s: %s, sessions: %d; since its start: %d opened, %d tagged, %d evicted",
		p.Admin, ready, p.Sessions, p.Opened, p.Tagged, p.Evicted)
	var refused []string
	for code, n := range p.Refused {
		refused = append(refused, fmt.Sprintf("%s %d", code, n))
	}
	if len(refused) > 0 {
		slices.Sort(refused)
		text += ", refused: " + strings.Join(refused, ", ")
	}
	return text
}
