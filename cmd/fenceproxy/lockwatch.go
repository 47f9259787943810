package main

import (
	"log/slog"
	"math"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fenceproxy/fenceproxy/leases"
)

// A lockWatching is the watch that policies need which look at etcd between
// claims. It runs from the first of them on.
type lockWatching struct {
	watch    *leases.Watch
	registry prometheus.Registerer
	stop     func() // nil: it doesn't run
}

func newLockWatching(etcd *openedEtcd, prefix string, logger *slog.Logger, registry prometheus.Registerer) *lockWatching {
	w := leases.NewWatch(etcd.client)
	w.Prefix = prefix
	w.Broken = (&watchLog{logger: logger}).broken
	return &lockWatching{watch: w, registry: registry}
}

// begin starts the watch, unless it runs.
func (l *lockWatching) begin() {
	if l.stop != nil {
		return
	}
	l.registry.MustRegister(lockWatchSilence(l.watch.Age))
	l.stop = runUntil(l.watch.Run)
}

// lockWatchSilence tells how old the last word of a watch is.
func lockWatchSilence(age func() (time.Duration, bool)) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "fenceproxy_lock_watch_silent_seconds",
		Help: "How long ago etcd's watch on the locks said something; +Inf while there is no watch.",
	}, func() float64 {
		if age, ok := age(); ok {
			return age.Seconds()
		}
		return math.Inf(1)
	})
}

func (l *lockWatching) end() {
	if l.stop != nil {
		l.stop()
	}
}

// A watchLog tells why a watch broke off, but not at every try.
type watchLog struct {
	logger *slog.Logger

	mu   sync.Mutex
	last time.Time
}

func (l *watchLog) broken(err error) {
	const every = 10 * time.Second
	l.mu.Lock()
	defer l.mu.Unlock()
	if time.Since(l.last) < every {
		return
	}
	l.last = time.Now()
	l.logger.Warn("locks can't be watched, so a token goes stale by a higher claim only; trying again", "error", err)
}
