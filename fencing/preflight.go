package fencing

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// MinServerVersion is the oldest PostgreSQL that claims and checks work with,
// as server_version_num (pg_current_xact_id_if_assigned came with 13).
const MinServerVersion = 130000

// Preflight looks, when a proxy starts, whether claims can work: is the server
// there, is schema fence installed in the DSN's own database, and has the role
// the rights. The error is one line that names the cause and the mend.
func (s *Store) Preflight(ctx context.Context) error {
	config := s.config.ConnConfig.Copy()
	if before := s.config.BeforeConnect; before != nil { // as the pools do: it may know the password
		if err := before(ctx, config); err != nil {
			return err
		}
	}
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return fmt.Errorf("connect to PostgreSQL at %s (database %s): %w", address(config), config.Database, reason(err))
	}
	defer conn.Close(context.WithoutCancel(ctx))
	for _, look := range s.Looks() {
		if err := look.At(ctx, conn); err != nil {
			return fmt.Errorf("PostgreSQL at %s (database %s): %w", address(config), config.Database, err)
		}
	}
	return nil
}

// A Look is one of the things that Preflight looks at.
type Look struct {
	Right string // what is so if At finds nothing wrong
	At    func(context.Context, *pgx.Conn) error
}

// Looks returns what Preflight looks at, in order: each makes sense only if
// those before the rights were right.
func (s *Store) Looks() []Look {
	return []Look{
		{"no pooler stands between", checkDirect},
		{fmt.Sprintf("the server is a primary, and not older than version %d", MinServerVersion/10000), s.checkServer},
		{fmt.Sprintf("schema fence is whole, version %d", SchemaVersion), s.checkSchema},
		{"the proxies' role may see what blocks a claim", checkSees},
		{"the proxies' role may end what blocks a claim", checkSignals},
	}
}

func address(c *pgx.ConnConfig) string {
	if network, addr := pgconn.NetworkAddress(c.Host, c.Port); network == "unix" {
		return addr
	}
	return net.JoinHostPort(c.Host, strconv.Itoa(int(c.Port)))
}

func (s *Store) checkServer(ctx context.Context, conn *pgx.Conn) error {
	var version int
	var standby bool
	const query = "SELECT current_setting('server_version_num')::int, pg_is_in_recovery()"
	if err := conn.QueryRow(ctx, query).Scan(&version, &standby); err != nil {
		return fmt.Errorf("ask for the version: %w", err)
	}
	if version < MinServerVersion {
		return fmt.Errorf("its version is %d.%d, and %d is the oldest that works: upgrade PostgreSQL", version/10000, version%10000, MinServerVersion/10000)
	}
	if standby {
		return errors.New("it is a standby, where no mark can be raised: let the upstream be the primary")
	}
	return nil
}

// checkDirect looks whether a connection is PostgreSQL's own. A pooler gives out
// keys of its own making, with a process that isn't the backend's: a claim can't
// find by it what it waits for, and a session's tag may be on another backend
// than its writes.
func checkDirect(ctx context.Context, conn *pgx.Conn) error {
	var pid uint32
	// By the simple protocol, for nothing that is prepared is sure to be there.
	if err := conn.QueryRow(ctx, "SELECT pg_backend_pid()", pgx.QueryExecModeSimpleProtocol).Scan(&pid); err != nil {
		return fmt.Errorf("ask for the backend's process: %w", err)
	}
	if pid != conn.PgConn().PID() {
		return errors.New("a pooler stands between, where neither tags nor claims are sure: connect to PostgreSQL itself, and let poolers stand between clients and the proxy")
	}
	return nil
}

func (s *Store) checkSchema(ctx context.Context, conn *pgx.Conn) error {
	initialise := s.InitCommand(s.Database())
	var there, claims bool
	var role string
	const rights = `
		SELECT bool_and(f.oid IS NOT NULL), coalesce(bool_and(has_function_privilege(f.oid, 'EXECUTE')), false), quote_ident(current_user)
		FROM (SELECT to_regprocedure(name)::oid AS oid FROM unnest($1::text[]) AS name) AS f`
	if err := conn.QueryRow(ctx, rights, claimFunctions).Scan(&there, &claims, &role); err != nil {
		return fmt.Errorf("look for schema fence: %w", err)
	}
	if !there {
		return fmt.Errorf("schema fence is not installed, or an old one is; run: %s", initialise)
	}
	if !claims {
		return fmt.Errorf("role %s may not claim; run: %s", role, grantClaims(role))
	}
	if err := checkVersion(ctx, conn, initialise); err != nil {
		return err
	}
	if err := undamaged(ctx, conn, initialise); err != nil {
		return err
	}
	return checkFunctions(ctx, conn, initialise)
}

func checkVersion(ctx context.Context, conn *pgx.Conn, initialise string) error {
	var version *int
	err := conn.QueryRow(ctx, "SELECT fence.version()").Scan(&version)
	switch {
	case hasCode(err, codeNoTable):
		return damaged("table fence.meta is missing", initialise)
	case err != nil:
		return fmt.Errorf("read the version of schema fence: %w", err)
	case version == nil:
		return damaged("table fence.meta is empty", initialise)
	case *version < SchemaVersion:
		return fmt.Errorf("schema fence has version %d and this fenceproxy needs %d; run: %s", *version, SchemaVersion, initialise)
	case *version > SchemaVersion:
		return fmt.Errorf("schema fence has version %d and this fenceproxy knows %d; use a newer fenceproxy", *version, SchemaVersion)
	}
	return nil
}

// checkFunctions looks for what claims don't call themselves: the check that
// sessions run, and what it and fence.claim call.
func checkFunctions(ctx context.Context, conn *pgx.Conn, initialise string) error {
	names := []string{"fence.check(boolean)", "fence.check_tag(boolean)", "fence.check_key(text, bigint)",
		"fence.describe(fence.mark, bigint)", "fence.refuse_tag(text)", "fence.whereabouts()", "fence.mock_key()", "fence.read_tag()",
		"fence.guard()", "fence.key_of(oid, text[])", "fence.guard_keys(oid, text[])", "fence.refuse_unguarded(oid, text)",
		"fence.acquire(text, text, text)", "fence.renew(text)", "fence.release(text)", "fence.take_grant(text, text)", "fence.override(oid)", "fence.applying()", "fence.old_marks(interval, text, integer)",
		"fence.forget(text[], bigint[], integer, bigint, interval)"}
	const query = "SELECT coalesce(min(name), '') FROM unnest($1::text[]) AS name WHERE to_regprocedure(name) IS NULL"
	var missing string
	if err := conn.QueryRow(ctx, query, names).Scan(&missing); err != nil {
		return fmt.Errorf("look for the functions of schema fence: %w", err)
	}
	if missing != "" {
		return fmt.Errorf("function %s is missing; run: %s", missing, initialise)
	}
	return nil
}

// checkRights looks for what ending sessions needs.
func checkRights(ctx context.Context, conn *pgx.Conn) error {
	if err := checkSees(ctx, conn); err != nil {
		return err
	}
	return checkSignals(ctx, conn)
}

// checkSees and checkSignals look for what an eviction needs: to see what blocks
// a claim, and to end it.
func checkSees(ctx context.Context, conn *pgx.Conn) error {
	return checkMember(ctx, conn, "pg_read_all_stats", "may not see what blocks a claim")
}

func checkSignals(ctx context.Context, conn *pgx.Conn) error {
	return checkMember(ctx, conn, "pg_signal_backend", "may not end what blocks a claim")
}

func checkMember(ctx context.Context, conn *pgx.Conn, of, lacks string) error {
	var member bool
	var role string
	if err := conn.QueryRow(ctx, "SELECT pg_has_role($1, 'USAGE'), quote_ident(current_user)", of).Scan(&member, &role); err != nil {
		return fmt.Errorf("ask for the rights: %w", err)
	}
	if !member {
		return fmt.Errorf("role %s %s; run: GRANT %s TO %s", role, lacks, of, role)
	}
	return nil
}

// reason is what a failed connection comes down to, in one line: pgx tells of
// every address and TLS mode that it tried, and the last try says enough.
func reason(err error) error {
	var connect *pgconn.ConnectError
	if !errors.As(err, &connect) {
		return err
	}
	err = connect.Unwrap()
	var tries interface{ Unwrap() []error }
	if errors.As(err, &tries) && len(tries.Unwrap()) > 0 {
		all := tries.Unwrap()
		return all[len(all)-1]
	}
	return err
}
