package fencing

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

// A querier is a connection or a transaction.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// parts are what the tables of SchemaVersion are made of, each as `table part`.
// No install can put one back: the accepted tokens were in it.
func parts() []string {
	return []string{
		"meta singleton boolean",
		"meta version integer",
		"meta installed_at timestamp with time zone",
		"meta installed_by text",
		"meta mock_key bytea",
		"meta PRIMARY KEY (singleton)",
		"lineage epoch integer",
		"lineage cluster text",
		"lineage adopted_at timestamp with time zone",
		"lineage adopted_by text",
		"lineage floor bigint",
		"lineage PRIMARY KEY (epoch)",
		"mark resource_key text",
		"mark token bigint",
		"mark lock_key text",
		"mark lineage integer",
		"mark claimed_at timestamp with time zone",
		"mark claimed_by text",
		"mark PRIMARY KEY (resource_key)",
		"guarded relation regclass",
		"guarded template text",
		"guarded replica_apply text",
		"guarded since timestamp with time zone",
		"guarded by text",
		"guarded PRIMARY KEY (relation)",
		"override_log began timestamp with time zone",
		"override_log transaction xid8",
		"override_log relation text",
		"override_log reason text",
		"override_log by text",
		"override_log application text",
		"override_log client text",
		"override_log PRIMARY KEY (began, transaction, relation)",
	}
}

// undamaged returns an error that says what the tables of schema fence lack, or
// nil if nothing, or if there is no table at all. install is damaged's.
func undamaged(ctx context.Context, conn querier, install string) error {
	found, err := tableParts(ctx, conn)
	if err != nil {
		return fmt.Errorf("look at the tables of schema fence: %w", err)
	}
	if len(found) == 0 {
		return nil
	}
	have := map[string]bool{} // parts, and names of tables
	for _, part := range found {
		table, _, _ := strings.Cut(part, " ")
		have[part], have[table] = true, true
	}
	for _, part := range parts() {
		switch table, what, _ := strings.Cut(part, " "); {
		case !have[table]:
			return damaged("table fence."+table+" is missing", install)
		case !have[part]:
			return damaged("table fence."+table+" lacks "+what, install)
		}
	}
	return nil
}

// tableParts returns what the tables in schema fence are made of.
func tableParts(ctx context.Context, conn querier) ([]string, error) {
	const query = `
		WITH have (name, oid) AS (
			SELECT c.relname, c.oid FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
			WHERE n.nspname = 'fence' AND c.relkind = 'r')
		SELECT h.name || ' ' || a.attname || ' ' || pg_catalog.format_type(a.atttypid, a.atttypmod)
		FROM have AS h JOIN pg_catalog.pg_attribute AS a ON a.attrelid = h.oid
		WHERE a.attnum > 0 AND NOT a.attisdropped
		UNION ALL
		SELECT h.name || ' ' || pg_catalog.pg_get_constraintdef(k.oid)
		FROM have AS h JOIN pg_catalog.pg_constraint AS k ON k.conrelid = h.oid
		WHERE k.contype = 'p'`
	rows, err := conn.Query(ctx, query)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

// damaged is the error for a schema that an install can't mend; install is what
// to run after the schema is dropped.
func damaged(what, install string) error {
	return fmt.Errorf("schema fence is damaged: %s; restore it from a backup, or begin anew (holders claim their tokens again, guarded tables are open until they are protected again): DROP SCHEMA fence CASCADE, and then %s",
		what, install)
}
