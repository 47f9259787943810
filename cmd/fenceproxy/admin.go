package main

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/sync/singleflight"

	"github.com/fenceproxy/fenceproxy/proxy/dashboard"
)

// maxAdminHeader bounds what is read of a request that nobody has vouched for.
const maxAdminHeader = 16 << 10

// admin answers on the admin port: the dashboard, /metrics, and for everybody
// /healthz (the process lives) and /readyz (everything that a new claim needs can be
// reached, and the proxy is not being drained), of which ?exclude=etcd leaves one out,
// as Kubernetes' own servers have it.
type admin struct {
	probes   []*probe
	page     *dashboard.Dashboard
	draining atomic.Bool
	server   *http.Server
}

func newAdmin(registry *prometheus.Registry, page *dashboard.Dashboard, encrypted *tls.Config, probes ...*probe) *admin {
	a := &admin{probes: probes, page: page}
	gate := page.Gate
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", gate.Protect(promhttp.HandlerFor(registry, promhttp.HandlerOpts{})))
	mux.Handle("GET /healthz", gate.ProtectProbe(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })))
	mux.Handle("GET /readyz", gate.ProtectProbe(http.HandlerFunc(a.ready)))
	mux.Handle("/", page.Handler())
	a.server = &http.Server{
		Handler:           mux,
		TLSConfig:         encrypted,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       30 * time.Second,
		WriteTimeout:      30 * time.Second, // a stream of the dashboard sets its own
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    maxAdminHeader,
		ErrorLog:          slog.NewLogLogger(gate.Logger.Handler(), slog.LevelDebug), // what strangers cause
	}
	newAdminConns(mostAdminConns, answerWithin).watch(a.server)
	return a
}

// serve returns nil after close.
func (a *admin) serve(ln net.Listener) error {
	serve := a.server.Serve
	if a.server.TLSConfig != nil {
		serve = func(ln net.Listener) error { return a.server.ServeTLS(ln, "", "") }
	}
	if err := serve(ln); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve admin port: %w", err)
	}
	return nil
}

func (a *admin) close() {
	a.page.Close()
	_ = a.server.Close()
	for _, p := range a.probes {
		p.close()
	}
}

func (a *admin) ready(w http.ResponseWriter, r *http.Request) {
	var names []string
	for _, p := range a.probes {
		names = append(names, p.name)
	}
	excluded := r.URL.Query()["exclude"]
	for _, name := range excluded {
		if !slices.Contains(names, name) {
			http.Error(w, "exclude must be one of "+strings.Join(names, ", "), http.StatusBadRequest)
			return
		}
	}
	if a.draining.Load() {
		http.Error(w, "draining", http.StatusServiceUnavailable)
		return
	}
	answers := make([]<-chan singleflight.Result, len(a.probes))
	for i, p := range a.probes {
		if !slices.Contains(excluded, p.name) {
			answers[i] = p.ask()
		}
	}
	for i, p := range a.probes {
		if answers[i] == nil {
			continue
		}
		if answer := <-answers[i]; answer.Err != nil {
			why := p.name + " doesn't answer"
			if a.page.Gate.Admits(r) { // it may name addresses
				// Some errors begin with the name themselves.
				why = p.name + ": " + strings.TrimPrefix(answer.Err.Error(), p.name+" ")
			}
			http.Error(w, why, http.StatusServiceUnavailable)
			return
		}
	}
	fmt.Fprintln(w, "ok")
}
