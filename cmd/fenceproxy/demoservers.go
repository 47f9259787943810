package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fenceproxy/fenceproxy/testharness/fault"
	"github.com/fenceproxy/fenceproxy/testharness/postgres"
	"github.com/fenceproxy/fenceproxy/testharness/stack"
)

// servers are a primary and an asynchronous standby, for the stories that have
// PostgreSQL fail over. Everybody reaches them at one address, as behind a
// virtual IP. They are the scenario.Servers of the run.
type servers struct {
	stack   *stack.Stack // with the primary
	standby *postgres.Server
	link    *fault.Link
}

// startServers starts them beside the etcd of another stack.
func startServers(ctx context.Context, beside *stack.Stack) (s *servers, err error) {
	s = &servers{}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	if s.stack, err = stack.Start(ctx, stack.Options{Endpoints: []string{beside.Etcd.Endpoint()}}); err != nil {
		return nil, err
	}
	if s.link, err = fault.NewLink(s.stack.Postgres.Addr()); err != nil {
		return nil, err
	}
	s.standby, err = postgres.Start(ctx, postgres.Options{
		Auth: postgres.AuthSCRAM, Password: s.stack.Postgres.Password(), StandbyOf: s.stack.Postgres})
	return s, err
}

func (s *servers) close() error {
	var errs []error
	if s.link != nil {
		s.link.Close()
	}
	if s.standby != nil {
		errs = append(errs, s.standby.Close())
	}
	if s.stack != nil {
		errs = append(errs, s.stack.Close())
	}
	return errors.Join(errs...)
}

// StopStandby stops the standby once it has received all that the primary has
// written, which it replays at the latest when it is promoted.
func (s *servers) StopStandby(ctx context.Context) error {
	conn, err := pgx.Connect(ctx, s.stack.DSN(postgres.Superuser, "postgres"))
	if err != nil {
		return fmt.Errorf("connect to look at the standby: %w", err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		var level bool
		if err := conn.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_stat_replication WHERE flush_lsn >= pg_current_wal_lsn())`).Scan(&level); err != nil {
			return fmt.Errorf("look at the standby: %w", err)
		}
		if level {
			return s.standby.Stop()
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("wait for the standby: %w", context.Cause(ctx))
		}
	}
}

// FailOver kills the primary and makes the standby the primary, as it was when
// it was stopped.
func (s *servers) FailOver(ctx context.Context) error {
	if err := s.stack.Postgres.Kill(); err != nil {
		return err
	}
	if err := s.standby.Restart(ctx); err != nil {
		return err
	}
	if err := s.standby.Promote(ctx); err != nil {
		return err
	}
	s.link.SetTarget(s.standby.Addr())
	return nil
}
