package fencing

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
)

// SchemaVersion is the version of schema fence that this program installs and
// works with. It goes up with every change below schema/.
const SchemaVersion = 5

// schemaFiles holds the steps (NNN_name.sql, each run once, to version NNN) and
// the definitions, which every install runs again.
//
//go:embed schema/*.sql
var schemaFiles embed.FS

// installLock is the key of the advisory lock that keeps two installs apart.
const installLock = 0x66656e6365 // "fence"

// Install installs schema fence in conn's database, or upgrades it to
// SchemaVersion, in one transaction, and puts its functions and rights back to
// what they should be. It returns the version before (0 is none) and after.
//
// The role needs CREATE on the database the first time, and to be (a member of)
// the schema's owner afterwards. A schema that a newer program made is left as
// it is, and is an error.
func Install(ctx context.Context, conn *pgx.Conn) (from, to int, err error) {
	err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		from, err = install(ctx, tx, schemaFiles, SchemaVersion)
		return err
	})
	if err != nil {
		return 0, 0, fmt.Errorf("install schema fence: %w", err)
	}
	return from, SchemaVersion, nil
}

func install(ctx context.Context, tx pgx.Tx, files fs.FS, to int) (from int, err error) {
	// What a database's or role's settings say must not bend what is defined.
	const prepare = `SELECT pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true),
		pg_catalog.set_config('check_function_bodies', 'on', true),
		pg_catalog.set_config('default_tablespace', '', true),
		pg_catalog.pg_advisory_xact_lock($1)`
	if _, err := tx.Exec(ctx, prepare, installLock); err != nil {
		return 0, err
	}
	if err := enterSchema(ctx, tx); err != nil {
		return 0, err
	}
	if from, err = installedVersion(ctx, tx); err != nil {
		return 0, err
	}
	if from > to {
		return 0, fmt.Errorf("this database has version %d, and this program knows versions up to %d only: use a newer fenceproxy", from, to)
	}
	if from == 0 || from == to { // what an earlier version's tables lack, its steps bring
		if err := undamaged(ctx, tx, "init again"); err != nil {
			return 0, err
		}
	}
	before, err := grantable(ctx, tx)
	if err != nil {
		return 0, err
	}
	steps, err := steps(files, from, to)
	if err != nil {
		return 0, err
	}
	for _, name := range append(steps, "check.sql", "claim.sql", "guard.sql", "locks.sql", "history.sql", "status.sql") {
		if err := runFile(ctx, tx, files, name); err != nil {
			return 0, err
		}
	}
	if err := stripDefaults(ctx, tx, before); err != nil {
		return 0, err
	}
	if err := runFile(ctx, tx, files, "rights.sql"); err != nil {
		return 0, err
	}
	const record = `INSERT INTO fence.meta (version, installed_at, installed_by) VALUES ($1, now(), session_user)
		ON CONFLICT (singleton) DO UPDATE SET version = excluded.version, installed_at = excluded.installed_at,
			installed_by = excluded.installed_by
		WHERE meta.version <> excluded.version`
	_, err = tx.Exec(ctx, record, to)
	return from, err
}

// installedVersion returns 0 where there is no schema fence of ours.
func installedVersion(ctx context.Context, tx pgx.Tx) (version int, err error) {
	var there bool
	if err := tx.QueryRow(ctx, "SELECT to_regclass('fence.meta') IS NOT NULL").Scan(&there); err != nil || !there {
		return 0, err
	}
	err = tx.QueryRow(ctx, "SELECT version FROM fence.meta").Scan(&version)
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, damaged("table fence.meta is empty", "init again")
	}
	return version, err
}

// enterSchema makes the schema, or becomes its owner, so that all that is made
// has one owner. A schema fence that somebody else made beforehand is refused:
// whoever owns the schema can drop what is in it.
func enterSchema(ctx context.Context, tx pgx.Tx) error {
	var owner string
	var self, member, ours bool
	err := tx.QueryRow(ctx, `SELECT quote_ident(r.rolname), r.rolname = current_user, pg_has_role(current_user, r.oid, 'MEMBER'),
			EXISTS (SELECT FROM pg_class AS c WHERE c.relnamespace = n.oid AND c.relname = 'meta')
		FROM pg_namespace AS n JOIN pg_roles AS r ON r.oid = n.nspowner WHERE n.nspname = 'fence'`).Scan(&owner, &self, &member, &ours)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return createSchema(ctx, tx)
	case err != nil:
		return err
	case self:
		return nil
	case !ours:
		return fmt.Errorf("there is a schema fence that role %s made for something else: drop it, or ALTER SCHEMA fence OWNER TO the role that installs", owner)
	case !member:
		return fmt.Errorf("schema fence belongs to role %s: install as that role or as a member of it", owner)
	}
	_, err = tx.Exec(ctx, "SET LOCAL ROLE "+owner)
	return err
}

func createSchema(ctx context.Context, tx pgx.Tx) error {
	var may bool
	var grant string
	err := tx.QueryRow(ctx, `SELECT has_database_privilege(current_database(), 'CREATE'),
		format('GRANT CREATE ON DATABASE %I TO %I', current_database(), current_user)`).Scan(&may, &grant)
	if err != nil {
		return err
	}
	if !may {
		return fmt.Errorf("this role may not create a schema here: run %s", grant)
	}
	_, err = tx.Exec(ctx, "CREATE SCHEMA fence")
	return err
}

// steps returns the files that lead from one version to another, in order.
func steps(files fs.FS, from, to int) ([]string, error) {
	names, err := fs.Glob(files, "schema/[0-9]*_*.sql")
	if err != nil {
		return nil, err
	}
	var out []string
	for _, name := range names { // fs.Glob sorts, and the numbers have equal width
		name = strings.TrimPrefix(name, "schema/")
		number, _, _ := strings.Cut(name, "_")
		version, err := strconv.Atoi(number)
		if err != nil {
			return nil, fmt.Errorf("number of %s: %w", name, err)
		}
		if from < version && version <= to {
			out = append(out, name)
		}
	}
	return out, nil
}

func runFile(ctx context.Context, tx pgx.Tx, files fs.FS, name string) error {
	text, err := fs.ReadFile(files, "schema/"+name)
	if err != nil {
		return err
	}
	// The simple protocol, for a file holds many statements.
	if _, err := tx.Conn().PgConn().Exec(ctx, string(text)).ReadAll(); err != nil {
		return fmt.Errorf("run %s: %w", name, err)
	}
	return nil
}

// objects is a query's first part: what schema fence holds, and itself.
const objects = `
	WITH object (oid, kind, name, owner, acl) AS (
		SELECT oid, 'schema', 'SCHEMA fence', nspowner, nspacl FROM pg_namespace WHERE nspname = 'fence'
		UNION ALL
		SELECT oid, CASE relkind WHEN 'v' THEN 'view' ELSE 'table' END, format('TABLE fence.%I', relname), relowner, relacl
		FROM pg_class WHERE relnamespace = 'fence'::regnamespace AND relkind IN ('r', 'v')
		UNION ALL
		SELECT oid, 'function', 'FUNCTION ' || oid::regprocedure, proowner, proacl
		FROM pg_proc WHERE pronamespace = 'fence'::regnamespace
	)`

// grantable returns the functions and views that are there already: rights on
// them may have been granted by hand, to roles that claim or that watch.
func grantable(ctx context.Context, tx pgx.Tx) ([]uint32, error) {
	rows, err := tx.Query(ctx, objects+" SELECT oid FROM object WHERE kind IN ('function', 'view')")
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[uint32])
}

// stripDefaults takes away what ALTER DEFAULT PRIVILEGES gave to others, on all
// but the objects in keep. On the tables nobody else ever has a right.
func stripDefaults(ctx context.Context, tx pgx.Tx, keep []uint32) error {
	rows, err := tx.Query(ctx, objects+`
		SELECT DISTINCT format('REVOKE ALL ON %s FROM %I', o.name, r.rolname)
		FROM object AS o CROSS JOIN LATERAL aclexplode(o.acl) AS a JOIN pg_roles AS r ON r.oid = a.grantee
		WHERE a.grantee <> o.owner AND NOT (o.kind IN ('function', 'view') AND o.oid = ANY ($1))`, keep)
	if err != nil {
		return err
	}
	statements, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return err
	}
	for _, statement := range statements {
		if _, err := tx.Exec(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}
