package main

import (
	"context"
	"errors"
	"strconv"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fenceproxy/fenceproxy/fencing"
	"github.com/fenceproxy/fenceproxy/proxy"
)

// asker asks one server how it stands, over a connection that it keeps. It is
// for one caller at a time.
type asker struct {
	config *pgx.ConnConfig
	before func(context.Context, *pgx.ConnConfig) error // puts the password in; nil: it is there
	target pgconn.ValidateConnectFunc
	conn   *pgx.Conn // nil while there is none
}

func newAsker(h dsnHost, target pgconn.ValidateConnectFunc) *asker {
	config := h.config.ConnConfig.Copy()
	if _, ok := config.RuntimeParams["application_name"]; !ok {
		config.RuntimeParams["application_name"] = fencing.WatchApplication
	}
	return &asker{config: config, before: h.config.BeforeConnect, target: target}
}

// ask is proxy.Host's. A connection that was kept may have been cut since, so
// that a failure over it says nothing of the server.
func (a *asker) ask(ctx context.Context) (proxy.Standing, error) {
	kept := a.conn != nil
	standing, err := a.once(ctx)
	if err != nil && kept && ctx.Err() == nil {
		standing, err = a.once(ctx)
	}
	return standing, err
}

// timed is ask within the time that a command waits for a server.
func (a *asker) timed(ctx context.Context) (proxy.Standing, error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	return a.ask(ctx)
}

func (a *asker) once(ctx context.Context) (standing proxy.Standing, err error) {
	if a.conn == nil {
		config := a.config.Copy()
		if a.before != nil {
			if err := a.before(ctx, config); err != nil {
				return standing, err
			}
		}
		if a.conn, err = pgx.ConnectConfig(ctx, config); err != nil {
			return standing, said(err)
		}
	}
	if standing, err = a.standing(ctx); err != nil {
		a.close()
		return standing, said(err)
	}
	return standing, nil
}

// standing asks what libpq asks for target_session_attrs, and which timeline
// the server writes.
func (a *asker) standing(ctx context.Context) (standing proxy.Standing, err error) {
	if err := a.conn.QueryRow(ctx, "SELECT pg_catalog.pg_is_in_recovery()", pgx.QueryExecModeSimpleProtocol).Scan(&standing.Standby); err != nil {
		return standing, err
	}
	if err := a.fit(ctx, &standing); err != nil || standing.Standby {
		return standing, err
	}
	const timeline = "SELECT pg_catalog.left(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_lsn()), 8)"
	var hex string
	err = a.conn.QueryRow(ctx, timeline, pgx.QueryExecModeSimpleProtocol).Scan(&hex)
	var refused *pgconn.PgError
	if errors.As(err, &refused) {
		return standing, nil // a service that doesn't tell
	}
	if n, err := strconv.ParseUint(hex, 16, 32); err == nil {
		standing.Timeline = uint32(n)
	}
	return standing, err
}

func (a *asker) fit(ctx context.Context, standing *proxy.Standing) error {
	standing.Fit = proxy.FitYes
	if a.target == nil {
		return nil
	}
	err := a.target(ctx, a.conn.PgConn())
	var second *pgconn.NotPreferredError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &second):
		standing.Fit, standing.Why = proxy.FitSecond, "it is the primary"
		return nil
	case errors.Is(err, pgconn.ErrStandbyConnection), errors.Is(err, pgconn.ErrReadOnlyConnection) && standing.Standby:
		standing.Why = "it is a standby"
	case errors.Is(err, pgconn.ErrReadOnlyConnection):
		standing.Why = "it is read-only"
	case errors.Is(err, pgconn.ErrReadWriteConnection):
		standing.Why = "it is not read-only"
	case errors.Is(err, pgconn.ErrPrimaryConnection):
		standing.Why = "it is the primary"
	default:
		return err
	}
	standing.Fit = proxy.FitNo
	return nil
}

// close gives the connection up at once.
func (a *asker) close() {
	if a.conn == nil {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = a.conn.Close(ctx)
	a.conn = nil
}
