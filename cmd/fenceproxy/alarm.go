package main

import (
	"log/slog"
	"strconv"
	"sync"
	"time"
	"unicode/utf8"

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
	behind *prometheus.GaugeVec
	moves  prometheus.Counter
	now    func() time.Time

	mu      sync.Mutex
	refused map[string]lineageRefusal // the last LF006, by database
	up      map[string]int32          // the lineage that the alarm is up in, by database
	epochs  map[string]int32          // the lineage that was seen last, by database
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
		behind: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "fenceproxy_etcd_behind_marks_revisions", Help: "How many revisions etcd is behind what the database's marks have seen of it; 0 unless its history went backwards.",
		}, []string{"database"}),
		moves: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "fenceproxy_lineage_changes_total", Help: "Times that a database's marks were found to be of another lineage: one was adopted.",
		}),
		now:     time.Now,
		refused: map[string]lineageRefusal{}, up: map[string]int32{}, epochs: map[string]int32{},
	}
	registry.MustRegister(a.gauge, a.behind, a.moves)
	return a
}

// asLabel is a name as the value of a label or an attribute, which must be UTF-8:
// PostgreSQL's names needn't be, where an encoding is SQL_ASCII.
func asLabel(name string) string {
	if utf8.ValidString(name) {
		return name
	}
	quoted := strconv.Quote(name)
	return quoted[1 : len(quoted)-1]
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
	a.sawLocked(database, epoch)
	if up, ok := a.up[database]; ok && up < epoch {
		delete(a.refused, database)
		a.setLocked(database, epoch, false, "")
	}
}

// compared takes what etcd and the database say of themselves.
func (a *lineageAlarm) compared(database string, l fencing.Lineage, cluster string, revision int64) {
	fits, why := l.Fits(cluster, revision)
	a.behind.WithLabelValues(asLabel(database)).Set(float64(max(0, l.Highest-revision)))
	a.mu.Lock()
	defer a.mu.Unlock()
	a.sawLocked(database, l.Epoch)
	if r, ok := a.refused[database]; ok && (r.epoch < l.Epoch || a.now().Sub(r.at) > refusalCounts) {
		delete(a.refused, database)
	}
	if _, refused := a.refused[database]; refused && fits {
		return // as it is
	}
	a.setLocked(database, l.Epoch, !fits, why)
}

// sawLocked counts lineages that follow another one. 0 is none yet.
func (a *lineageAlarm) sawLocked(database string, epoch int32) {
	last := a.epochs[database]
	if epoch <= last {
		return
	}
	a.epochs[database] = epoch
	if last > 0 {
		a.moves.Inc()
	}
}

func (a *lineageAlarm) setLocked(database string, epoch int32, up bool, why string) {
	_, was := a.up[database]
	if up {
		a.up[database] = epoch
		a.gauge.WithLabelValues(asLabel(database)).Set(1)
	} else {
		delete(a.up, database)
		a.gauge.WithLabelValues(asLabel(database)).Set(0)
	}
	switch {
	case up && !was:
		a.logger.Error("etcd is not the one that the marks came from: new claims are refused until fenceproxy adopt-lineage", "database", database, "why", why)
	case was && !up:
		a.logger.Info("etcd is the one that the marks come from", "database", database)
	}
}
