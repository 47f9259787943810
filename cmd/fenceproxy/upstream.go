package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/spf13/pflag"
)

// upstreamFlags say which PostgreSQL is protected.
type upstreamFlags struct{ dsn dsn }

func (u *upstreamFlags) add(flags *pflag.FlagSet) {
	flags.Var(&u.dsn, "upstream", "`DSN` of the protected PostgreSQL, with the role that owns schema fence")
}

func (u *upstreamFlags) check() error {
	if u.dsn.config == nil {
		return usagef("--upstream is missing: the DSN of the protected PostgreSQL, such as postgres://fence@127.0.0.1:5432/app")
	}
	return nil
}

// where names the upstream in messages: without user and password.
func (u *upstreamFlags) where() string {
	_, addr := u.dsn.dial()
	return fmt.Sprintf("%s (database %s)", addr, u.dsn.config.Database)
}

// connect opens a connection to the upstream. The error names the address and
// what the server said, never the password.
func (u *upstreamFlags) connect(ctx context.Context) (*pgx.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	conn, err := pgx.ConnectConfig(ctx, u.dsn.config.Copy())
	if err == nil {
		return conn, nil
	}
	var said *pgconn.PgError
	if errors.As(err, &said) {
		return nil, fmt.Errorf("connect to PostgreSQL at %s: %s (%s); mend the DSN of --upstream or the server's pg_hba.conf",
			u.where(), said.Message, said.Code)
	}
	return nil, fmt.Errorf("connect to PostgreSQL at %s: %w; start it or mend the DSN of --upstream", u.where(), rootCause(err))
}

// rootCause is the innermost error: the system's own words. Of several tries
// it is the last one's.
func rootCause(err error) error {
	for {
		inner := errors.Unwrap(err)
		if tries, ok := err.(interface{ Unwrap() []error }); ok && len(tries.Unwrap()) > 0 {
			inner = tries.Unwrap()[len(tries.Unwrap())-1]
		}
		if inner == nil {
			return err
		}
		err = inner
	}
}

// ping says whether the upstream takes a session.
func (u *upstreamFlags) ping(ctx context.Context) error {
	conn, err := u.connect(ctx)
	if err != nil {
		return err
	}
	return conn.Close(ctx)
}
