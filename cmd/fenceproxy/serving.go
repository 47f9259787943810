package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"

	"github.com/fenceproxy/fenceproxy/proxy/live"
)

// A serving is what serve tells of itself: console.Program.
type serving struct {
	gatherer prometheus.Gatherer
	reloads  chan reloadRequest

	mu       sync.Mutex
	settings map[string]live.Setting // by name, as they count now
}

// A reloadRequest is where the answer to one goes.
type reloadRequest chan<- reloadAnswer

type reloadAnswer struct {
	became live.Reloaded
	err    error
}

func newServing(flags *pflag.FlagSet) *serving {
	p := &serving{reloads: make(chan reloadRequest), settings: map[string]live.Setting{}}
	flags.VisitAll(func(f *pflag.Flag) { p.set(flags, f.Name) })
	return p
}

// set takes the value that a flag has as the one that counts.
func (p *serving) set(flags *pflag.FlagSet, name string) {
	f := flags.Lookup(name)
	if !isSetting(f) {
		return
	}
	s := live.Setting{
		Name: fileKey(name), Value: f.Value.String(), Default: f.DefValue, Source: setBy(flags, f), Changeable: reloadable(name),
	}
	if isSecret(f) {
		s.Value = hidden
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.settings[name] = s
}

// Settings returns them by name.
func (p *serving) Settings() []live.Setting {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []live.Setting
	for _, name := range slices.Sorted(maps.Keys(p.settings)) {
		all = append(all, p.settings[name])
	}
	return all
}

// Stats returns the samples of /metrics that are fenceproxy's own.
func (p *serving) Stats() ([]live.Stat, error) {
	families, err := p.gatherer.Gather()
	if err != nil {
		return nil, fmt.Errorf("gather metrics: %w", err)
	}
	var all []live.Stat
	for _, family := range families {
		name := family.GetName()
		if !strings.HasPrefix(name, "fenceproxy_") {
			continue
		}
		for _, m := range family.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
			}
			sample := live.Stat{Name: name, Labels: strings.Join(labels, ",")}
			if h := m.GetHistogram(); h != nil {
				count, sum := sample, sample
				count.Name, count.Value = name+"_count", float64(h.GetSampleCount())
				sum.Name, sum.Value = name+"_sum", h.GetSampleSum()
				all = append(all, count, sum)
				continue
			}
			sample.Value = m.GetCounter().GetValue() + m.GetGauge().GetValue() // it is one of them
			all = append(all, sample)
		}
	}
	return all, nil
}

// errNotReloading: the proxy is about to end.
var errNotReloading = errors.New("the proxy is shutting down")

// Reload has the settings read anew, as SIGHUP does.
func (p *serving) Reload(ctx context.Context) (live.Reloaded, error) {
	answer := make(chan reloadAnswer, 1)
	select {
	case p.reloads <- answer:
	case <-ctx.Done():
		return live.Reloaded{}, errNotReloading
	}
	select {
	case a := <-answer:
		return a.became, a.err
	case <-ctx.Done():
		return live.Reloaded{}, errNotReloading
	}
}
