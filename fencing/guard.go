package fencing

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// A guard is a set of triggers that call fence.guard.
//
// Statement triggers check the keys of a whole statement at once. PostgreSQL
// fires them for the table that a statement names, and not where rows come by
// way of a parent of it, or from a subscription. So there are row triggers too,
// which cost much more for each row, for these ways:
//
//   - A table that is no part of another has one that is fired only where
//     session_replication_role is replica. That nobody makes the table a part of
//     another sees guardAlone to: it never runs, but has the form that PostgreSQL
//     refuses on partitions and inheritance children.
//   - A partitioned table has one that PostgreSQL clones to all partitions, later
//     ones too. In those that have statement triggers it is fired for replicas
//     only: the statement triggers of whichever table is named see their rows.
//   - A table that is a part of another which is not guarded has one, and so have
//     inheritance children.
//
// All are AFTER triggers: what BEFORE triggers and generated columns have made
// of a row is in it then. TRUNCATE has one of its own.
const (
	guardStatements = `
		CREATE TRIGGER fence_guard_insert AFTER INSERT ON %1$s REFERENCING NEW TABLE AS new_rows
			FOR EACH STATEMENT EXECUTE FUNCTION fence.guard(%2$s);
		CREATE TRIGGER fence_guard_update AFTER UPDATE ON %1$s REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows
			FOR EACH STATEMENT EXECUTE FUNCTION fence.guard(%2$s);
		CREATE TRIGGER fence_guard_delete AFTER DELETE ON %1$s REFERENCING OLD TABLE AS old_rows
			FOR EACH STATEMENT EXECUTE FUNCTION fence.guard(%2$s);`
	guardAlone = `
		CREATE TRIGGER fence_guard_alone AFTER DELETE ON %1$s REFERENCING OLD TABLE AS old_rows
			FOR EACH ROW WHEN (false) EXECUTE FUNCTION fence.guard(%2$s);`
	guardRows = `
		CREATE TRIGGER fence_guard_rows AFTER INSERT OR UPDATE OR DELETE ON %1$s
			FOR EACH ROW EXECUTE FUNCTION fence.guard(%2$s);
		ALTER TABLE %1$s ENABLE ALWAYS TRIGGER fence_guard_rows;`
	guardReplicas = `
		ALTER TABLE %1$s ENABLE REPLICA TRIGGER fence_guard_rows;`
	guardTruncate = `
		CREATE TRIGGER fence_guard_truncate BEFORE TRUNCATE ON %1$s
			FOR EACH STATEMENT EXECUTE FUNCTION fence.guard(%2$s);
		ALTER TABLE %1$s ENABLE ALWAYS TRIGGER fence_guard_truncate;`
)

// descendants is a query's first part: the partitions and inheritance children
// of relation $1, of every level.
const descendants = `
	WITH RECURSIVE down (oid) AS (
		SELECT inhrelid FROM pg_inherits WHERE inhparent = $1
		UNION SELECT i.inhrelid FROM pg_inherits AS i JOIN down ON i.inhparent = down.oid)`

// guardTriggers is a query's part: the triggers that are a guard's, those that
// PostgreSQL cloned from a parent's aside.
const guardTriggers = ` FROM pg_trigger AS t JOIN pg_proc AS p ON p.oid = t.tgfoid
	WHERE p.pronamespace = 'fence'::regnamespace AND p.proname = 'guard' AND t.tgparentid = 0`

// dropTriggers drops the guard of a table and of its descendants, whatever
// became of the triggers' names.
func dropTriggers(ctx context.Context, tx pgx.Tx, oid uint32) error {
	const query = descendants + `
		SELECT format('DROP TRIGGER %I ON %s', t.tgname, t.tgrelid::regclass)` + guardTriggers + `
			AND t.tgrelid IN (SELECT $1 UNION SELECT oid FROM down)`
	return runAll(ctx, tx, query, oid)
}

// makeTriggers makes the guard of a table and of its descendants, and returns
// the names of these.
func makeTriggers(ctx context.Context, tx pgx.Tx, t table, key Template, apply ReplicaApply) (also []string, err error) {
	// Foreign tables can't be truncated here, and have their parent's row
	// triggers.
	const parts = descendants + `
		SELECT c.oid::regclass::text, c.relkind = 'r' FROM down JOIN pg_class AS c ON c.oid = down.oid WHERE c.relkind <> 'f' ORDER BY 1`
	rows, err := tx.Query(ctx, parts, t.oid)
	if err != nil {
		return nil, err
	}
	var name string
	var leaf bool
	var leaves []string
	if _, err := pgx.ForEachRow(rows, []any{&name, &leaf}, func() error {
		also = append(also, name)
		if leaf {
			leaves = append(leaves, name)
		}
		return nil
	}); err != nil {
		return nil, err
	}
	own, theirs, leafs := guardRows, guardRows, ""
	switch {
	case t.kind == "p" && t.child:
		theirs = "" // PostgreSQL clones the row triggers
	case t.kind == "p":
		own, theirs, leafs = guardStatements+guardRows, guardStatements, guardReplicas
	case !t.child:
		own = guardStatements + guardAlone + guardRows + guardReplicas
	}
	for _, step := range []struct {
		tables     []string
		statements string
	}{{[]string{t.name}, own + guardTruncate}, {also, theirs + guardTruncate}, {leaves, leafs}} {
		if err := makeOn(ctx, tx, step.tables, step.statements, key, apply); err != nil {
			return nil, err
		}
	}
	return also, nil
}

// GuardTriggers returns the triggers that makeTriggers makes for a table, each
// with its pg_trigger.tgenabled: fired as origin, as replica, or always. The
// table is root itself, the one that was protected, or below it; the kinds are
// those of pg_class.relkind, and rootBelow says that root is a part of another.
func GuardTriggers(rootKind string, rootBelow bool, kind string, below bool) []string {
	var triggers []string
	if kind != "f" {
		triggers = append(triggers, "fence_guard_truncate A")
	}
	if rootBelow || below && rootKind != "p" || kind == "f" {
		return append(triggers, "fence_guard_rows A")
	}
	triggers = append(triggers, "fence_guard_insert O", "fence_guard_update O", "fence_guard_delete O")
	switch {
	case kind == "p":
		return append(triggers, "fence_guard_rows A")
	case below:
		return append(triggers, "fence_guard_rows R")
	default:
		return append(triggers, "fence_guard_rows R", "fence_guard_alone O")
	}
}

// makeOn runs statements for each table.
func makeOn(ctx context.Context, tx pgx.Tx, tables []string, statements string, key Template, apply ReplicaApply) error {
	const fill = `
		SELECT format($1, name, (SELECT string_agg(quote_literal(a.arg), ', ' ORDER BY a.n) FROM unnest($3::text[]) WITH ORDINALITY AS a (arg, n)))
		FROM unnest($2::text[]) AS name`
	return runAll(ctx, tx, fill, statements, tables, append([]string{string(apply)}, key.parts...))
}

// runAll runs what a query returns.
func runAll(ctx context.Context, tx pgx.Tx, query string, args ...any) error {
	rows, err := tx.Query(ctx, query, args...)
	if err != nil {
		return err
	}
	statements, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return err
	}
	for _, statement := range statements {
		// The simple protocol, for it may be several.
		if _, err := tx.Conn().PgConn().Exec(ctx, statement).ReadAll(); err != nil {
			return err
		}
	}
	return nil
}
