package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// probe is one thing that must answer for the proxy to be ready.
type probe struct {
	name  string
	check func(context.Context) error
}

// readyTimeout bounds all probes of one question together, below the second
// that Kubernetes gives a probe.
const readyTimeout = 900 * time.Millisecond

// admin answers on the admin port: /metrics, /healthz (the process lives),
// /readyz (everything that a new claim needs can be reached, and the proxy is
// not being drained).
type admin struct {
	probes   []probe
	draining atomic.Bool
	server   *http.Server
}

func newAdmin(registry *prometheus.Registry, probes ...probe) *admin {
	a := &admin{probes: probes}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", a.ready)
	a.server = &http.Server{
		Handler:           mux,
		ReadHeaderTimeout: 5 * time.Second,
		WriteTimeout:      30 * time.Second,
		IdleTimeout:       time.Minute,
	}
	return a
}

// serve returns nil after close.
func (a *admin) serve(ln net.Listener) error {
	if err := a.server.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve admin port: %w", err)
	}
	return nil
}

func (a *admin) close() { _ = a.server.Close() }

func (a *admin) ready(w http.ResponseWriter, r *http.Request) {
	if a.draining.Load() {
		http.Error(w, "draining", http.StatusServiceUnavailable)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), readyTimeout)
	defer cancel()
	for _, p := range a.probes {
		if err := p.check(ctx); err != nil {
			// Some errors begin with the name themselves.
			http.Error(w, p.name+": "+strings.TrimPrefix(err.Error(), p.name+" "), http.StatusServiceUnavailable)
			return
		}
	}
	fmt.Fprintln(w, "ok")
}
