package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// mostMetrics bounds what is read from an admin port.
const mostMetrics = 4 << 20

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

// askAdmin asks the admin port of a running proxy.
func askAdmin(ctx context.Context, admin string) *proxyStatus {
	p := &proxyStatus{Admin: admin, Refused: map[string]int{}}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	metrics, err := p.families(ctx)
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
			p.Refused[label.GetValue()] = int(m.GetCounter().GetValue())
		}
	}
	if ok, why, err := p.get(ctx, "/readyz"); err != nil {
		p.Error = err.Error()
	} else if p.Ready = ok; !ok {
		p.Unready = strings.TrimSpace(string(why))
	}
	return p
}

func (p *proxyStatus) families(ctx context.Context) (map[string]*dto.MetricFamily, error) {
	ok, body, err := p.get(ctx, "/metrics")
	if err != nil {
		return nil, err
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(string(body)))
	if err != nil || !ok || families["fenceproxy_sessions"] == nil {
		return nil, fmt.Errorf("%s answers, but not as a fenceproxy's admin port", p.Admin)
	}
	return families, nil
}

func (p *proxyStatus) get(ctx context.Context, path string) (ok bool, body []byte, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.Admin+path, nil)
	if err != nil {
		return false, nil, fmt.Errorf("ask the admin port: %w", err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return false, nil, fmt.Errorf("ask the admin port at %s: %w", p.Admin, rootCause(err))
	}
	defer resp.Body.Close()
	body, err = io.ReadAll(io.LimitReader(resp.Body, mostMetrics))
	if err != nil {
		return false, nil, fmt.Errorf("ask the admin port at %s: %w", p.Admin, err)
	}
	return resp.StatusCode == http.StatusOK, body, nil
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
