package chaos

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/fenceproxy/fenceproxy/fencing"
	"github.com/fenceproxy/fenceproxy/testharness/history"
)

// opening is what each account begins with.
const opening = 1_000_000

// NewWorkload is the workload of this package: counters, entries and accounts,
// each of a key that a lock protects. self is a command line that ends in Serve.
func NewWorkload(self []string, keys []string) *Workload {
	setup := []string{
		`CREATE TABLE counter (key text PRIMARY KEY, n bigint NOT NULL) WITH (fillfactor = 50)`,
		`CREATE TABLE entry (id bigint PRIMARY KEY, key text NOT NULL, token bigint NOT NULL, n bigint)`,
		`CREATE INDEX entry_token ON entry (key, token, id)`,
		`CREATE TABLE account (key text PRIMARY KEY, balance bigint NOT NULL) WITH (fillfactor = 50)`,
		// A write that stands behind a function's name.
		`CREATE FUNCTION put(p_id bigint, p_key text, p_token bigint) RETURNS bigint LANGUAGE sql AS $$
			WITH c AS (UPDATE counter SET n = n + 1 WHERE key = p_key RETURNING n)
			INSERT INTO entry SELECT p_id, p_key, p_token, c.n FROM c RETURNING n $$`,
		// One that looks like no function at all: key and token in one text.
		`CREATE FUNCTION put_as(p_id bigint, p_tag text) RETURNS bigint LANGUAGE sql AS $$
			SELECT put(p_id, split_part(p_tag, ' ', 1), split_part(p_tag, ' ', 2)::bigint) $$`,
		`CREATE OPERATOR <# (LEFTARG = bigint, RIGHTARG = text, FUNCTION = put_as)`,
	}
	for _, key := range keys {
		setup = append(setup, fmt.Sprintf("INSERT INTO counter VALUES ('%s', 0)", key),
			fmt.Sprintf("INSERT INTO account VALUES ('%s', %d)", key, opening))
	}
	return &Workload{Command: append(self[:len(self):len(self)], roleWorker), Setup: setup, Collect: collect}
}

// collect reads the tables of NewWorkload, and the marks if there are any.
func collect(ctx context.Context, conn *pgx.Conn) (history.Tables, error) {
	t := history.Tables{Counters: map[string]int64{}, Balances: map[string]int64{}, Opening: opening}
	err := each(ctx, conn, "SELECT key, n FROM counter", func(key string, n int64) { t.Counters[key] = n })
	if err == nil {
		err = each(ctx, conn, "SELECT key, balance FROM account", func(key string, n int64) { t.Balances[key] = n })
	}
	if err == nil {
		t.Marks, err = Marks(ctx, conn)
	}
	if err != nil {
		return t, err
	}
	rows, err := conn.Query(ctx, "SELECT id, key, token, coalesce(n, 0) FROM entry")
	if err != nil {
		return t, fmt.Errorf("read the entries: %w", err)
	}
	t.Rows, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (r history.Row, err error) {
		err = row.Scan(&r.ID, &r.Key, &r.Token, &r.N)
		return r, err
	})
	if err != nil {
		return t, fmt.Errorf("read the entries: %w", err)
	}
	return t, nil
}

// Marks reads the marks of all keys, for the Collect of a Workload. A run that
// goes straight to PostgreSQL has none.
func Marks(ctx context.Context, conn *pgx.Conn) (map[string]fencing.Token, error) {
	marks := map[string]fencing.Token{}
	err := each(ctx, conn, "SELECT resource_key, token FROM fence.mark", func(key string, n int64) { marks[key] = fencing.Token(n) })
	return marks, err
}

// each calls take for each row of a query that returns a key and a number.
func each(ctx context.Context, conn *pgx.Conn, query string, take func(key string, n int64)) error {
	rows, err := conn.Query(ctx, query)
	if err != nil {
		return fmt.Errorf("%s: %w", query, err)
	}
	var key string
	var n int64
	if _, err := pgx.ForEachRow(rows, []any{&key, &n}, func() error { take(key, n); return nil }); err != nil {
		return fmt.Errorf("%s: %w", query, err)
	}
	return nil
}
