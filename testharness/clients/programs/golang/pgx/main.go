// The program pgx works with PostgreSQL through pgx v5, straight and through
// fenceproxy. See package clients.
package main

import (
	"bytes"
	"context"
	"log"
	"os"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fenceproxy/fenceproxy/testharness/clients/programs/golang/steps"
)

var (
	ctx        = context.Background()
	key, token = os.Getenv("FENCE_KEY"), os.Getenv("FENCE_TOKEN")
)

// recipe
// At connect; pgxpool.Config has a ConnConfig too.
func connectTagged(key, token string) (*pgx.Conn, error) {
	config, err := pgx.ParseConfig("")
	if err != nil {
		return nil, err
	}
	config.RuntimeParams["fence.key"] = key
	config.RuntimeParams["fence.token"] = token
	return pgx.ConnectConfig(ctx, config)
}

// Later, with a pgx.Tx or a pgx.Conn: isLocal is true for this transaction only
// (pools), false for the session.
func tag(db interface {
	Exec(context.Context, string, ...any) (pgconn.CommandTag, error)
}, key, token string, isLocal bool) error {
	_, err := db.Exec(ctx, "SELECT set_config('fence.key', $1, $3), set_config('fence.token', $2, $3)", key, token, isLocal)
	return err
}

// end

func connect() *pgx.Conn {
	if key != "" {
		return steps.Must(connectTagged(key, token))
	}
	return steps.Must(pgx.Connect(ctx, ""))
}

// modes are all of pgx's ways to send a statement.
var modes = []pgx.QueryExecMode{
	pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec,
	pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol,
}

func one[T any](conn *pgx.Conn, sql string, args ...any) (value T) {
	if err := conn.QueryRow(ctx, sql, args...).Scan(&value); err != nil {
		log.Panic(err)
	}
	return value
}

func count(conn *pgx.Conn, name string) int {
	return one[int](conn, "SELECT count(*) FROM item WHERE name = $1", name)
}

func exec(conn *pgx.Conn, sql string, args ...any) error {
	_, err := conn.Exec(ctx, sql, args...)
	return err
}

func play() {
	conn := connect()
	steps.Say("version", steps.Version("github.com/jackc/pgx/v5"))
	steps.Say("connect", one[string](conn, "SELECT current_user"))
	types(conn)
	steps.Must(conn.Prepare(ctx, "get", "SELECT $1::int + length($2)"))
	steps.Say("prepared", one[int](conn, "get", 0, "abc"), one[int](conn, "get", 1, "abc"), one[int](conn, "get", 2, "abc"))

	steps.Must(0, pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error { return exec(tx.Conn(), "INSERT INTO item VALUES (1, 'commit')") }))
	steps.Say("commit", count(conn, "commit"))
	tx := steps.Must(conn.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.Serializable}))
	steps.Must(0, exec(conn, "INSERT INTO item VALUES ($1, $2)", 2, "rollback"))
	steps.Must(0, tx.Rollback(ctx))
	steps.Say("rollback", count(conn, "rollback"))
	tx = steps.Must(conn.Begin(ctx))
	steps.Must(0, exec(conn, "INSERT INTO item VALUES ($1, $2)", 3, "savepoint"))
	nested := steps.Must(tx.Begin(ctx))
	steps.Must(0, exec(conn, "INSERT INTO item VALUES ($1, $2)", 4, "savepoint"))
	steps.Must(0, nested.Rollback(ctx))
	steps.Must(0, tx.Commit(ctx))
	steps.Say("savepoint", count(conn, "savepoint"))
	steps.Say("errors", steps.Codes(func(sql string) string { return steps.CodeOf(exec(conn, sql)) }))
	var written []any
	for i, mode := range modes {
		written = append(written, steps.CodeOf(exec(conn, "INSERT INTO item VALUES ($1, $2)", mode, 31+i, "mode")),
			steps.CodeOf(exec(conn, "INSERT INTO item VALUES ($1, $2)", mode, 31+i, "mode")))
	}
	steps.Say("modes", written...)
	bulk(conn)
	other := connect()
	steps.Say("cancel", cancel(conn, other))
	steps.Must(0, exec(conn, "LISTEN news"))
	steps.Must(0, exec(other, "NOTIFY news, 'hello'"))
	steps.Say("notify", steps.Must(conn.WaitForNotification(ctx)).Payload)
}

func types(conn *pgx.Conn) {
	var (
		n    int
		f    float64
		b    bool
		s    string
		none *string
		list []int
	)
	row := conn.QueryRow(ctx, "SELECT $1::int, $2::float8, $3::bool, $4::text, $5::text, $6::int[]", 42, 1.5, true, "h\u00e9llo", nil, []int{1, 2})
	steps.Must(0, row.Scan(&n, &f, &b, &s, &none, &list))
	steps.Say("types", steps.True(n == 42, f == 1.5, b, s == "h\u00e9llo", none == nil, slices.Equal(list, []int{1, 2})))
}

// bulk is COPY, a large value, and statements that are sent before the first
// is answered, one of them wrong.
func bulk(conn *pgx.Conn) {
	steps.Must(conn.CopyFrom(ctx, pgx.Identifier{"item"}, []string{"id", "name"},
		pgx.CopyFromSlice(1000, func(i int) ([]any, error) { return []any{1001 + i, "copy"}, nil })))
	var out bytes.Buffer
	steps.Must(conn.PgConn().CopyTo(ctx, &out, "COPY item TO STDOUT"))
	steps.Say("copy", count(conn, "copy"), strings.Count(out.String(), "\tcopy\n"))
	steps.Say("large", len(one[string](conn, "SELECT $1::text", steps.Large())))
	pipe := conn.PgConn().StartPipeline(ctx)
	pipe.SendQueryParams("INSERT INTO item VALUES (21, 'pipeline') RETURNING 1", nil, nil, nil, nil)
	steps.Must(0, pipe.Sync())
	pipe.SendQueryParams("SELECT 1 / $1::int", [][]byte{[]byte("0")}, nil, nil, nil)
	pipe.SendQueryParams("INSERT INTO item VALUES (22, 'pipeline')", nil, nil, nil, nil)
	steps.Must(0, pipe.Sync())
	pipe.SendQueryParams("SELECT 3", nil, nil, nil, nil)
	steps.Must(0, pipe.Sync())
	var seen []any
	for syncs := 0; syncs < 3; {
		switch result, err := pipe.GetResults(); result := result.(type) {
		case *pgconn.ResultReader:
			if read := result.Read(); read.Err != nil {
				seen = append(seen, steps.CodeOf(read.Err))
			} else if len(read.Rows) > 0 {
				seen = append(seen, string(read.Rows[0][0]))
			}
		case *pgconn.PipelineSync:
			syncs++
		default:
			if err != nil {
				seen = append(seen, steps.CodeOf(err))
			}
		}
	}
	steps.Must(0, pipe.Close())
	steps.Say("pipeline", append(seen, count(conn, "pipeline"))...)
}

// cancel cancels a query as soon as the other session sees it run.
func cancel(conn, other *pgx.Conn) string {
	done := make(chan error)
	go func() { done <- exec(conn, "SELECT pg_sleep(60)") }()
	for one[int](other, "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'") == 0 {
	}
	steps.Must(0, conn.PgConn().CancelRequest(ctx))
	return steps.CodeOf(<-done)
}

func write(conn *pgx.Conn, row int, name string) error {
	return exec(conn, "INSERT INTO item VALUES ($1, $2)", row, name)
}

// ways writes with each way to tag: at connect, for the session, for a transaction.
func ways(token string, row int, name string) string {
	tagged, session, pooled := steps.Must(connectTagged(key, token)), steps.Must(pgx.Connect(ctx, "")), steps.Must(pgx.Connect(ctx, ""))
	atConnect := write(tagged, row, name)
	inSession := tag(session, key, token, false)
	if inSession == nil {
		inSession = write(session, row+1, name)
	}
	inTransaction := pgx.BeginFunc(ctx, pooled, func(tx pgx.Tx) error {
		if err := tag(tx, key, token, true); err != nil {
			return err
		}
		return write(tx.Conn(), row+2, name)
	})
	return steps.CodeOf(atConnect) + " " + steps.CodeOf(inSession) + " " + steps.CodeOf(inTransaction)
}

func main() {
	var held *pgx.Conn
	steps.Run(play, func(row int, name string) string {
		if held == nil {
			held = steps.Must(connectTagged(key, token))
		}
		return steps.CodeOf(write(held, row, name))
	}, ways)
}
