package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fenceproxy/fenceproxy/testharness/fault"
	"github.com/fenceproxy/fenceproxy/testharness/postgres"
	"github.com/fenceproxy/fenceproxy/testharness/scenario"
	"github.com/fenceproxy/fenceproxy/testharness/stack"
)

// servers are a primary and a standby, for the stories that have
// PostgreSQL fail over. Everybody reaches them at one address, as behind a
// virtual IP. They are the scenario.Servers of the run.
type servers struct {
	stack   *stack.Stack // with the primary
	standby *postgres.Server
	link    *fault.Link
}

// startServers starts them beside the etcd of another stack.
func startServers(ctx context.Context, beside *stack.Stack, kind scenario.Standby) (*servers, error) {
	s := &servers{}
	if err := s.start(ctx, beside, kind); err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

func (s *servers) start(ctx context.Context, beside *stack.Stack, kind scenario.Standby) (err error) {
	if s.stack, err = stack.Start(ctx, stack.Options{Endpoints: []string{beside.Etcd.Endpoint()}}); err != nil {
		return err
	}
	if s.link, err = fault.NewLink(s.stack.Postgres.Addr()); err != nil {
		return err
	}
	s.standby, err = postgres.Start(ctx, postgres.Options{
		Auth: postgres.AuthSCRAM, Password: s.stack.Postgres.Password(), StandbyOf: s.stack.Postgres,
		// A promotion may have to wait for it, and it is 5s.
		Config: []string{"wal_retrieve_retry_interval = 200ms"}})
	if err != nil || kind != scenario.StandbySynchronous {
		return err
	}
	return s.synchronise(ctx)
}

// synchronise has every commit wait for the standby, from when it returns.
func (s *servers) synchronise(ctx context.Context) error {
	conn, err := s.connect(ctx)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	for _, statement := range []string{"ALTER SYSTEM SET synchronous_standby_names = '" + postgres.StandbyName + "'", "SELECT pg_reload_conf()"} {
		if _, err := conn.Exec(ctx, statement); err != nil {
			return fmt.Errorf("have commits wait for the standby: %w", err)
		}
	}
	if err := await(ctx, conn, `SELECT EXISTS (SELECT FROM pg_stat_replication WHERE sync_state = 'sync')`); err != nil {
		return err
	}
	// Commits wait from when the checkpointer has read the setting (syncrep.c),
	// which it does before the next checkpoint.
	if _, err := conn.Exec(ctx, "CHECKPOINT"); err != nil {
		return fmt.Errorf("have commits wait for the standby: %w", err)
	}
	return nil
}

// connect opens a session of the superuser on the primary.
func (s *servers) connect(ctx context.Context) (*pgx.Conn, error) {
	conn, err := pgx.Connect(ctx, s.stack.DSN(postgres.Superuser, "postgres"))
	if err != nil {
		return nil, fmt.Errorf("connect to look at the standby: %w", err)
	}
	return conn, nil
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
	conn, err := s.connect(ctx)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if err := await(ctx, conn, `SELECT EXISTS (SELECT FROM pg_stat_replication WHERE flush_lsn >= pg_current_wal_lsn())`); err != nil {
		return err
	}
	return s.standby.Stop()
}

// await waits until a query of one value says true.
func await(ctx context.Context, conn *pgx.Conn, query string) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		var ok bool
		if err := conn.QueryRow(ctx, query).Scan(&ok); err != nil {
			return fmt.Errorf("look at the standby: %w", err)
		}
		if ok {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("wait for the standby: %w", context.Cause(ctx))
		}
	}
}

// PauseStandby stops the processes of the standby.
func (s *servers) PauseStandby() { s.standby.Pause() }

// ResumeStandby has them go on.
func (s *servers) ResumeStandby() { s.standby.Resume() }

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
