package fencing

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// A guard is a set of triggers that call fence.guard. There are two kinds.
//
// A table that is no part of another gets statement triggers, which check the
// keys of a whole statement at once. PostgreSQL doesn't fire those when rows
// come by way of a parent, so one more trigger, which never runs, has the form
// that PostgreSQL refuses on partitions and inheritance children: the table
// can't become one. Nor are they fired when a subscription applies rows, so a
// row trigger stands in for them there, and wherever else
// session_replication_role is replica.
//
// Partitioned tables, their parts and inheritance children get row triggers,
// which PostgreSQL clones to partitions, those that are made later too.
//
// All are AFTER triggers: what BEFORE triggers and generated columns have made
// of a row is in it then. TRUNCATE has one of its own.
const (
	guardSet = `
		CREATE TRIGGER fence_guard_insert AFTER INSERT ON %1$s REFERENCING NEW TABLE AS new_rows
			FOR EACH STATEMENT EXECUTE FUNCTION fence.guard(%2$s);
		CREATE TRIGGER fence_guard_update AFTER UPDATE ON %1$s REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows
			FOR EACH STATEMENT EXECUTE FUNCTION fence.guard(%2$s);
		CREATE TRIGGER fence_guard_delete AFTER DELETE ON %1$s REFERENCING OLD TABLE AS old_rows
			FOR EACH STATEMENT EXECUTE FUNCTION fence.guard(%2$s);
		CREATE TRIGGER fence_guard_alone AFTER DELETE ON %1$s REFERENCING OLD TABLE AS old_rows
			FOR EACH ROW WHEN (false) EXECUTE FUNCTION fence.guard(%2$s);
		CREATE TRIGGER fence_guard_replica AFTER INSERT OR UPDATE OR DELETE ON %1$s
			FOR EACH ROW EXECUTE FUNCTION fence.guard(%2$s);
		ALTER TABLE %1$s ENABLE REPLICA TRIGGER fence_guard_replica;`
	guardRows = `
		CREATE TRIGGER fence_guard_rows AFTER INSERT OR UPDATE OR DELETE ON %1$s
			FOR EACH ROW EXECUTE FUNCTION fence.guard(%2$s);
		ALTER TABLE %1$s ENABLE ALWAYS TRIGGER fence_guard_rows;`
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
	// Foreign tables can't be truncated here, and get their parent's row
	// triggers.
	const parts = descendants + `
		SELECT c.oid::regclass::text FROM down JOIN pg_class AS c ON c.oid = down.oid WHERE c.relkind <> 'f' ORDER BY 1`
	rows, err := tx.Query(ctx, parts, t.oid)
	if err != nil {
		return nil, err
	}
	if also, err = pgx.CollectRows(rows, pgx.RowTo[string]); err != nil {
		return nil, err
	}
	own := guardSet
	if t.kind == "p" || t.child {
		own = guardRows
	}
	if err := makeOn(ctx, tx, []string{t.name}, own+guardTruncate, key, apply); err != nil {
		return nil, err
	}
	theirs := guardRows + guardTruncate
	if t.kind == "p" {
		theirs = guardTruncate // PostgreSQL clones the row triggers
	}
	return also, makeOn(ctx, tx, also, theirs, key, apply)
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
