package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fenceproxy/fenceproxy/proxy"
	"github.com/fenceproxy/fenceproxy/testharness/idle"
	"github.com/fenceproxy/fenceproxy/testharness/postgres"
	"github.com/fenceproxy/fenceproxy/testharness/stack"
)

// idleSettings let PostgreSQL have n sessions at once.
func idleSettings(n int) []string {
	return []string{fmt.Sprintf("max_connections = %d", n+100), "shared_buffers = 16MB"}
}

// settle is for how long idle sessions are watched: fenceproxy's rest by then, and
// what they have given up is the system's again.
const settle = proxy.DefaultRestAfter + 6*time.Second

// idling tells what a session costs a proxy that has nothing else to do. The
// proxy is a new one: memory that an earlier workload left would be reused.
func idling(ctx context.Context, r *rig, o options, c contender) (sample, error) {
	s := nothing()
	r.end(c.route)
	p, err := r.peer(ctx, c.route)
	if err != nil {
		return s, err
	}
	config, err := r.config(p, c)
	if err != nil {
		return s, err
	}
	g, err := idle.Measure(ctx, p.pid, config, o.sessions, settle)
	s[memory] = g.Settled / 1024
	r.end(c.route)
	return s, errors.Join(err, r.awaitNobody(ctx))
}

// awaitNobody waits until PostgreSQL has ended all sessions of the application,
// so that there is room for the next.
func (r *rig) awaitNobody(ctx context.Context) error {
	conn, err := pgx.Connect(ctx, r.stack.DSN(postgres.Superuser, database))
	if err != nil {
		return fmt.Errorf("look for sessions: %w", err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		var n int
		err := conn.QueryRow(ctx, "SELECT count(*) FROM pg_stat_activity WHERE usename = $1", stack.RoleApp).Scan(&n)
		if err != nil {
			return fmt.Errorf("wait for sessions to end: %w", err)
		}
		if n == 0 {
			return nil
		}
	}
}
