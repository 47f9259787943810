package stack

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/url"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/fenceproxy/fenceproxy/fencing"
	"github.com/fenceproxy/fenceproxy/testharness/postgres"
)

// The roles of a stack, with no more rights than README asks for.
const (
	RoleFence = "fence" // owns schema fence; the proxies' own sessions
	RoleApp   = "app"   // owns the databases; the applications' sessions
)

func (s *Stack) createRoles(ctx context.Context) error {
	// Random base32 text needs no quoting.
	return s.admin(ctx, "postgres", fmt.Sprintf(`
		CREATE ROLE %[1]s LOGIN PASSWORD '%[2]s';
		CREATE ROLE %[3]s LOGIN PASSWORD '%[4]s';
		GRANT pg_signal_backend, pg_read_all_stats TO %[1]s`,
		RoleFence, s.passwords[RoleFence], RoleApp, s.passwords[RoleApp]))
}

// CreateMember makes a role with the rights of RoleApp.
func (s *Stack) CreateMember(ctx context.Context, name string) error {
	s.passwords[name] = rand.Text()
	return s.admin(ctx, "postgres", fmt.Sprintf("CREATE ROLE %s LOGIN PASSWORD '%s' IN ROLE %s", pgx.Identifier{name}.Sanitize(), s.passwords[name], RoleApp))
}

// CreateDatabase makes a database of RoleApp, without schema fence.
func (s *Stack) CreateDatabase(ctx context.Context, name string) error {
	quoted := pgx.Identifier{name}.Sanitize()
	return s.admin(ctx, "postgres",
		"CREATE DATABASE "+quoted+" OWNER "+RoleApp,
		"GRANT CREATE ON DATABASE "+quoted+" TO "+RoleFence)
}

// Install puts schema fence into a database.
func (s *Stack) Install(ctx context.Context, database string) error {
	conn, err := pgx.Connect(ctx, s.DSN(RoleFence, database))
	if err != nil {
		return fmt.Errorf("connect to install schema fence: %w", err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	_, _, err = fencing.Install(ctx, conn)
	return err
}

// admin runs statements as the superuser, each on its own.
func (s *Stack) admin(ctx context.Context, database string, statements ...string) error {
	conn, err := pgx.Connect(ctx, s.DSN(postgres.Superuser, database))
	if err != nil {
		return fmt.Errorf("connect as superuser: %w", err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	for _, statement := range statements {
		if _, err := conn.Exec(ctx, statement); err != nil {
			return fmt.Errorf("%s: %w", strings.Join(strings.Fields(statement)[:2], " "), err)
		}
	}
	return nil
}

// DSN is how a role reaches a database straight, round every proxy.
func (s *Stack) DSN(role, database string) string {
	return s.dsn(s.Postgres.Addr(), role, database)
}

// ProxyDSN is how a role reaches a database through the proxy at addr; several
// addresses, joined with commas, are tried one after the other.
func (s *Stack) ProxyDSN(addr, role, database string) string { return s.dsn(addr, role, database) }

func (s *Stack) dsn(addr, role, database string) string {
	u := url.URL{
		Scheme: "postgres", User: url.UserPassword(role, s.passwords[role]),
		Host: addr, Path: "/" + database, RawQuery: "sslmode=disable",
	}
	return u.String()
}
