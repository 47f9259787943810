package main

import (
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fenceproxy/fenceproxy/fencing"
)

// refusalCounts is how long one claim's LF006 keeps the alarm up by itself. It
// may tell of what no comparison shows: a former holder that is one again, in
// an etcd that was restored and has passed its old revision since.
const refusalCounts = 10 * time.Minute

// A lineageAlarm is up, for each database, while etcd isn't the one that its
// marks came from.
type lineageAlarm struct {
	logger *slog.Logger
	gauge  *prometheus.GaugeVec
	now    func() time.Time

	mu      sync.Mutex
	refused map[string]lineageRefusal // the last LF006, by database
	up      map[string]int32          // the lineage that the alarm is up in, by database
}

type lineageRefusal struct {
	epoch int32
	at    time.Time
}

func newLineageAlarm(logger *slog.Logger, registry prometheus.Registerer) *lineageAlarm {
	a := &lineageAlarm{
		logger: logger,
		gauge: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "fenceproxy_lineage_mismatch", Help: "1 while etcd isn't the one that the database's marks came from, or its history went backwards.",
		}, []string{"database"}),
		now:     time.Now,
		refused: map[string]lineageRefusal{}, up: map[string]int32{},
	}
	registry.MustRegister(a.gauge)
	return a
}

// claimRefused takes a claim that was refused with LF006.
func (a *lineageAlarm) claimRefused(database string, epoch int32, why string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.refused[database] = lineageRefusal{epoch, a.now()}
	a.setLocked(database, epoch, true, why)
}

// claimAccepted takes a claim that was accepted, perhaps in a lineage that was
// adopted since the alarm went up.
func (a *lineageAlarm) claimAccepted(database string, epoch int32) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if up, ok := a.up[database]; ok && up < epoch {
		delete(a.refused, database)
		a.setLocked(database, epoch, false, "")
	}
}

// compared takes what etcd and the database say of themselves.
func (a *lineageAlarm) compared(database string, l fencing.Lineage, cluster string, revision int64) {
	fits, why := l.Fits(cluster, revision)
	a.mu.Lock()
	defer a.mu.Unlock()
	if r, ok := a.refused[database]; ok && (r.epoch < l.Epoch || a.now().Sub(r.at) > refusalCounts) {
		delete(a.refused, database)
	}
	if _, refused := a.refused[database]; refused && fits {
		return // as it is
	}
	a.setLocked(database, l.Epoch, !fits, why)
}

func (a *lineageAlarm) setLocked(database string, epoch int32, up bool, why string) {
	_, was := a.up[database]
	if up {
		a.up[database] = epoch
		a.gauge.WithLabelValues(database).Set(1)
	} else {
		delete(a.up, database)
		a.gauge.WithLabelValues(database).Set(0)
	}
	switch {
	case up && !was:
		a.logger.Error("etcd is not the one that the marks came from: new claims are refused until fenceproxy adopt-lineage", "database", database, "why", why)
	case was && !up:
		a.logger.Info("etcd is the one that the marks come from", "database", database)
	}
}
