package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/pflag"

	"github.com/fenceproxy/fenceproxy/proxy"
)

// upstreamFlags say which PostgreSQL is protected.
type upstreamFlags struct {
	dsn      dsn
	password passwordFlags
}

func (u *upstreamFlags) add(flags *pflag.FlagSet) {
	flags.Var(&u.dsn, "upstream", "`DSN` of the protected PostgreSQL, with the role that owns schema fence")
	u.password.name = "upstream-password"
	u.password.add(flags, "the password of the DSN's role")
}

func (u *upstreamFlags) check() error {
	var found faults
	if len(u.dsn.hosts) == 0 {
		found.add(usagef("--upstream is missing: the DSN of the protected PostgreSQL, such as postgres://fence@127.0.0.1:5432/app"))
	}
	found.add(u.password.check())
	if len(found) > 0 || !u.password.set() {
		return found.err()
	}
	for _, h := range u.dsn.hosts {
		// Asked for each connection, so that the file can be replaced.
		h.config.BeforeConnect = func(_ context.Context, c *pgx.ConnConfig) error {
			password, err := u.password.read()
			c.Password = password.reveal()
			return err
		}
	}
	return nil
}

// passwordOf names where the password for a server came from.
func (u *upstreamFlags) passwordOf(h dsnHost) string {
	if u.password.set() {
		return u.password.given()
	}
	if libpq := os.Getenv("PGPASSWORD"); libpq != "" && h.config.ConnConfig.Password == libpq {
		return "PGPASSWORD"
	}
	return "the DSN of --upstream"
}

// where names the upstream in messages: without user and password.
func (u *upstreamFlags) where() string {
	names := make([]string, len(u.dsn.hosts))
	for i, h := range u.dsn.hosts {
		names[i] = h.name
	}
	return fmt.Sprintf("%s (database %s)", strings.Join(names, ", "), u.dsn.hosts[0].config.ConnConfig.Database)
}

// connect opens a connection to the upstream, of several servers to the one
// that fits best. The error names each of them and what it said, never the
// password.
func (u *upstreamFlags) connect(ctx context.Context) (*pgx.Conn, error) {
	var best *pgx.Conn
	var standing proxy.Standing
	var why, mends []string
	for _, h := range u.dsn.hosts {
		asker := newAsker(h, u.dsn.target)
		found, err := asker.timed(ctx)
		switch {
		case err != nil:
			why = append(why, fmt.Sprintf("connect to PostgreSQL at %s (database %s): %v", h.name, h.config.ConnConfig.Database, err))
			mends = append(mends, mend(err, u.passwordOf(h)))
		case found.Fit == proxy.FitNo:
			why = append(why, fmt.Sprintf("PostgreSQL at %s: %s", h.name, found.Why))
			mends = append(mends, "let the DSN of --upstream name the right one (target_session_attrs)")
		case best == nil || found.Better(standing):
			best, standing, asker.conn = asker.conn, found, best
		}
		asker.close()
	}
	if best == nil {
		slices.Sort(mends)
		for _, m := range slices.Compact(mends) {
			if m != "" {
				why = append(why, m)
			}
		}
		return nil, errors.New(strings.Join(why, "; "))
	}
	return best, nil
}

// with does something with a connection to the upstream.
func (u *upstreamFlags) with(ctx context.Context, do func(context.Context, *pgx.Conn) error) error {
	conn, err := u.connect(ctx)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	return do(ctx, conn)
}
