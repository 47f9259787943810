package main

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fenceproxy/fenceproxy/fencing"
	"github.com/fenceproxy/fenceproxy/leases"
)

// How often a keeper works.
const (
	// lineageEvery is how often it compares etcd with the marks.
	lineageEvery = 5 * time.Second
	// sweepEvery is how often it looks for marks to remove, or, with a shorter
	// retention, as often as that.
	sweepEvery = time.Hour
)

// A keeper does what no client asks for: it compares etcd with the lineage of
// the marks, and removes the marks of locks that are gone. It looks after the
// databases that clients claim in, and the DSN's.
type keeper struct {
	upstream  *upstream
	authority *leases.Authority
	alarm     *lineageAlarm
	logger    *slog.Logger
	retention time.Duration // 0: marks are kept for ever
	removed   prometheus.Counter

	// What compare has found to be away, so that the log tells of changes.
	etcdAway, databaseAway bool
}

func newKeeper(u *upstream, authority *leases.Authority, alarm *lineageAlarm, logger *slog.Logger, registry prometheus.Registerer) *keeper {
	k := &keeper{
		upstream: u, authority: authority, alarm: alarm, logger: logger,
		removed: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "fenceproxy_marks_removed_total", Help: "Marks removed because nobody holds or awaits their lock any more.",
		}),
	}
	registry.MustRegister(k.removed)
	return k
}

// run returns when ctx ends.
func (k *keeper) run(ctx context.Context) {
	var both sync.WaitGroup
	both.Go(func() { every(ctx, lineageEvery, k.compare) })
	if k.retention > 0 {
		both.Go(func() { every(ctx, min(sweepEvery, k.retention), k.sweep) })
	}
	both.Wait()
}

// every works at once, and then at intervals, until ctx ends.
func every(ctx context.Context, interval time.Duration, work func(context.Context)) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		work(ctx)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// compare asks the databases first: by then, etcd has come at least that far.
func (k *keeper) compare(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	lineages := map[string]fencing.Lineage{}
	err := k.upstream.first(ctx, func(s *fencing.Store) error {
		for _, database := range s.Databases() {
			l, err := s.Lineage(ctx, database)
			switch {
			case err == nil:
				lineages[database] = l
			case !fencing.NotInstalled(err):
				return err
			}
		}
		return nil
	})
	k.databaseAway = k.tell(k.databaseAway, err, "PostgreSQL can't be asked", "PostgreSQL can be asked again")
	if len(lineages) == 0 {
		return
	}
	cluster, revision, err := k.authority.Position(ctx)
	if k.etcdAway = k.tell(k.etcdAway, err, "etcd can't be asked: new claims are refused, sessions that were claimed go on", "etcd can be asked again"); err != nil {
		return
	}
	for database, l := range lineages {
		k.alarm.compared(database, l, cluster, revision)
	}
}

// tell logs that something was found to be away, or is back, and returns whether
// it is away.
func (k *keeper) tell(was bool, err error, away, back string) bool {
	switch {
	case errors.Is(err, context.Canceled): // the keeper ends
		return was
	case err != nil && !was:
		k.logger.Warn(away, "error", err)
	case err == nil && was:
		k.logger.Info(back)
	}
	return err != nil
}

// sweep removes marks, in one database after the other.
func (k *keeper) sweep(ctx context.Context) {
	err := k.upstream.first(ctx, func(s *fencing.Store) error {
		r := fencing.NewRetention(s, k.authority)
		r.Age = k.retention
		for _, database := range s.Databases() {
			n, err := r.Sweep(ctx, database)
			k.removed.Add(float64(n))
			if n > 0 {
				k.logger.Info("removed marks of locks that are gone", "database", database, "marks", n)
			}
			if err != nil && !fencing.NotInstalled(err) {
				return err
			}
		}
		return nil
	})
	if err != nil && ctx.Err() == nil {
		k.logger.Warn("marks could not be removed", "error", err)
	}
}
