package main

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"golang.org/x/sync/errgroup"
)

// connecting returns what opens and closes sessions with some clients at once.
func connecting(clients int) player {
	return func(ctx context.Context, r *rig, o options, c contender) (sample, error) {
		s := nothing()
		p, err := r.peer(ctx, c.route)
		if err != nil {
			return s, err
		}
		config, err := r.config(p, c)
		if err != nil {
			return s, err
		}
		m, err := p.meter()
		if err != nil {
			return s, err
		}
		times := make([][]time.Duration, clients)
		group, groupCtx := errgroup.WithContext(ctx)
		began := time.Now()
		for i := range times {
			group.Go(func() (err error) {
				times[i], err = openAndClose(groupCtx, &config.Config, began.Add(o.length()))
				return err
			})
		}
		if err := group.Wait(); err != nil {
			return s, err
		}
		took := time.Since(began).Seconds()
		var all []time.Duration
		for _, some := range times {
			all = append(all, some...)
		}
		s.took(all)
		s[rate] = float64(len(all)) / took
		return s, m.read(&s, float64(len(all)))
	}
}

// openAndClose tells how long it took each time until a session was there.
func openAndClose(ctx context.Context, config *pgconn.Config, end time.Time) (times []time.Duration, err error) {
	for time.Now().Before(end) {
		began := time.Now()
		conn, err := pgconn.ConnectConfig(ctx, config)
		if err != nil {
			return nil, fmt.Errorf("connect: %w", err)
		}
		times = append(times, time.Since(began))
		conn.Close(ctx)
	}
	return times, nil
}
