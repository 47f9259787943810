package chaos

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fenceproxy/fenceproxy/testharness/history"
	"github.com/fenceproxy/fenceproxy/testharness/postgres"
	"github.com/fenceproxy/fenceproxy/testharness/stack"
)

// linkStandby is how the standby reaches its primary, whichever they are.
const linkStandby = "standby→primary"

// slots are the two places that the proxies know a PostgreSQL in.
func slots() []string { return []string{"pg-a", "pg-b"} }

// lookEvery is how often something is asked that can't be waited for.
const lookEvery = 10 * time.Millisecond

// A pair is a primary and its synchronous standby, each in one of two slots. A
// commit waits for the standby, always: without one there are no commits, and so
// nothing that was acknowledged is lost when the standby is promoted.
type pair struct {
	*stack.Stack
	cluster *cluster
	servers [2]*postgres.Server
	primary int // which slot's
}

func (p *pair) start(ctx context.Context, etcd []string) (err error) {
	p.Stack, err = stack.Start(ctx, stack.Options{Postgres: postgres.Options{Config: config()}, Endpoints: etcd})
	if err != nil {
		return err
	}
	p.servers[0] = p.Postgres
	p.cluster.lead(slots()[0], p.servers[0].Addr())
	if err := p.CreateDatabase(ctx, database); err != nil {
		return err
	}
	if err := p.Install(ctx, database); err != nil {
		return err
	}
	if err := p.setup(ctx); err != nil {
		return err
	}
	if err := p.rebuild(ctx); err != nil {
		return err
	}
	for _, sql := range []string{
		"ALTER SYSTEM SET " + synchronous, "SELECT pg_reload_conf()",
		// Whatever their role's settings say, claims wait for the standby.
		"ALTER ROLE " + stack.RoleFence + " SET synchronous_commit = off",
	} {
		if err := p.admin(ctx, sql); err != nil {
			return err
		}
	}
	return p.replicated(ctx)
}

// synchronous has every commit wait for the standby. The first primary gets it
// when it has one; a standby has it from the start, for when it is promoted.
const synchronous = "synchronous_standby_names = '" + postgres.StandbyName + "'"

// config is what both servers have in common.
func config() []string {
	return []string{"max_connections = 400", "wal_keep_size = 512MB", "max_wal_senders = 10", "wal_sender_timeout = 5s",
		"wal_receiver_timeout = 5s", "wal_retrieve_retry_interval = 200ms", "shared_buffers = 128MB", "max_wal_size = 4GB",
		"deadlock_timeout = 200ms", "checkpoint_timeout = 30s", "log_min_messages = warning"}
}

// setup makes the workload's tables.
func (p *pair) setup(ctx context.Context) error {
	conn, err := pgx.Connect(ctx, p.DSN(stack.RoleApp, database))
	if err != nil {
		return fmt.Errorf("connect to make the tables: %w", err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	for _, sql := range p.cluster.options.Workload.Setup {
		if _, err := conn.Exec(ctx, sql); err != nil {
			return fmt.Errorf("make the tables: %w", err)
		}
	}
	return nil
}

func (p *pair) close() error {
	var errs []error
	for _, s := range p.servers {
		if s != nil {
			errs = append(errs, s.Close())
		}
	}
	if p.Stack != nil {
		errs = append(errs, p.Stack.Close())
	}
	return errors.Join(errs...)
}

// standby is the slot that the primary is not in.
func (p *pair) standby() int { return 1 - p.primary }

// connect opens a session of the superuser on the primary, which waits for no
// standby.
func (p *pair) connect(ctx context.Context) (*pgx.Conn, error) {
	config, err := pgx.ParseConfig(p.ProxyDSN(p.servers[p.primary].Addr(), postgres.Superuser, database))
	if err != nil {
		return nil, err
	}
	config.RuntimeParams["synchronous_commit"] = "local"
	config.ConnectTimeout = 5 * time.Second
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("connect to the primary: %w", err)
	}
	return conn, nil
}

// admin runs a statement on the primary.
func (p *pair) admin(ctx context.Context, sql string) error {
	conn, err := p.connect(ctx)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if _, err := conn.Exec(ctx, sql); err != nil {
		return fmt.Errorf("%s: %w", sql, err)
	}
	return nil
}

// rebuild makes a new standby of the primary, in the place of what is in the
// other slot.
func (p *pair) rebuild(ctx context.Context) error {
	slot := p.standby()
	if old := p.servers[slot]; old != nil {
		if err := errors.Join(old.Kill(), old.Close()); err != nil {
			return err
		}
		p.servers[slot] = nil
	}
	primary := p.servers[p.primary]
	link := p.cluster.links[linkStandby]
	link.SetTarget(primary.Addr())
	server, err := postgres.Start(ctx, postgres.Options{
		Auth: postgres.AuthSCRAM, Password: primary.Password(), StandbyOf: primary, StreamFrom: link.Addr(),
		Config: append(config(), synchronous),
	})
	if err != nil {
		return fmt.Errorf("make a standby: %w", err)
	}
	p.servers[slot] = server
	p.cluster.lead(slots()[slot], server.Addr())
	return nil
}

// noteMarks takes down what the marks are, behind a fault that must have lost
// none.
func (p *pair) noteMarks(ctx context.Context) error {
	return persist(ctx, func(ctx context.Context) error {
		seen := history.MarksSeen{Asked: history.Now()}
		conn, err := p.connect(ctx)
		if err != nil {
			return err
		}
		defer conn.Close(context.WithoutCancel(ctx))
		if seen.Marks, err = Marks(ctx, conn); err != nil {
			return err
		}
		p.cluster.record.Add(history.Record{Marks: &seen})
		return nil
	})
}

// replicated waits until the standby has all that the primary has, and every
// commit waits for it: from then on it may be promoted.
func (p *pair) replicated(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		conn, err := p.connect(ctx)
		if err == nil {
			var n int
			err = conn.QueryRow(ctx, "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync' AND state = 'streaming'").Scan(&n)
			conn.Close(ctx)
			if err == nil && n == 1 {
				return nil
			}
		}
		if !pause(ctx) {
			return fmt.Errorf("wait for the standby: %w", errors.Join(context.Cause(ctx), err))
		}
	}
}

// pause lets some time pass before something is asked again.
func pause(ctx context.Context) bool {
	timer := time.NewTimer(lookEvery)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
