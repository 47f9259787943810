package main

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"
)

// warm has PgBouncer open a server connection for each of n sessions. It logs
// clients in without them, and opens one after the other at a first query,
// which would be a part of what is measured.
func (r *rig) warm(ctx context.Context, c contender, n int) error {
	conns := make([]*pgx.Conn, n)
	defer func() {
		for _, conn := range conns {
			if conn != nil {
				conn.Close(context.WithoutCancel(ctx))
			}
		}
	}()
	group, ctx := errgroup.WithContext(ctx)
	for i := range conns {
		group.Go(func() (err error) {
			if conns[i], err = r.connect(ctx, c); err != nil {
				return err
			}
			_, err = conns[i].Exec(ctx, "SELECT 1")
			return err
		})
	}
	return group.Wait()
}

// reconnect has PgBouncer close the server connections that it kept, which
// would have the next contender share the server with them.
func (r *rig) reconnect(ctx context.Context, p *peer) error {
	config, err := r.config(p, contender{name: "PgBouncer's administrator"})
	if err != nil {
		return err
	}
	config.Database, config.DefaultQueryExecMode = "pgbouncer", pgx.QueryExecModeSimpleProtocol
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return fmt.Errorf("connect to PgBouncer's console: %w", err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if _, err := conn.Exec(ctx, "RECONNECT"); err != nil {
		return fmt.Errorf("have PgBouncer reconnect: %w", err)
	}
	return nil
}
