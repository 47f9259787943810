// The program libpq works with PostgreSQL through lib/pq, straight and through
// fenceproxy. See package clients.
package main

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/lib/pq"

	"github.com/fenceproxy/fenceproxy/testharness/clients/programs/golang/steps"
)

var (
	ctx        = context.Background()
	key, token = os.Getenv("FENCE_KEY"), os.Getenv("FENCE_TOKEN")
)

// recipe
// At connect: each connection of the pool is tagged. What lib/pq doesn't know
// itself it sends to PostgreSQL as a setting; quotes want a backslash before
// each quote and backslash.
func openTagged(key, token string) (*sql.DB, error) {
	quoted := strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(key)
	return sql.Open("postgres", fmt.Sprintf("fence.key='%s' fence.token=%s", quoted, token))
}

// For one transaction of any pool, with isLocal true and a *sql.Tx; for the
// session, with false and a *sql.Conn, since a *sql.DB is many sessions.
func tag(db execer, key, token string, isLocal bool) error {
	_, err := db.ExecContext(ctx, "SELECT set_config('fence.key', $1, $3), set_config('fence.token', $2, $3)", key, token, isLocal)
	return err
}

// end

type execer interface {
	ExecContext(context.Context, string, ...any) (sql.Result, error)
}

// open opens a pool of one connection.
func open() *sql.DB {
	db := steps.Must(sql.Open("postgres", ""))
	if key != "" {
		db = steps.Must(openTagged(key, token))
	}
	db.SetMaxOpenConns(1)
	return db
}

func count(db *sql.DB, name string) (n int) {
	steps.Must(0, db.QueryRow("SELECT count(*) FROM item WHERE name = $1", name).Scan(&n))
	return n
}

func play() {
	db := open()
	steps.Say("version", steps.Version("github.com/lib/pq"))
	var user, large string
	steps.Must(0, db.QueryRow("SELECT current_user").Scan(&user))
	steps.Say("connect", user)
	types(db)
	get := steps.Must(db.Prepare("SELECT $1::int + length($2)"))
	got := make([]int, 3)
	for n := range got {
		steps.Must(0, get.QueryRow(n, "abc").Scan(&got[n]))
	}
	steps.Say("prepared", got[0], got[1], got[2])

	tx := steps.Must(db.Begin())
	steps.Must(tx.Exec("INSERT INTO item VALUES (1, 'commit')"))
	steps.Must(0, tx.Commit())
	steps.Say("commit", count(db, "commit"))
	tx = steps.Must(db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelSerializable}))
	steps.Must(tx.Exec("INSERT INTO item VALUES ($1, $2)", 2, "rollback"))
	steps.Must(0, tx.Rollback())
	steps.Say("rollback", count(db, "rollback"))
	tx = steps.Must(db.Begin())
	steps.Must(tx.Exec("INSERT INTO item VALUES (3, 'savepoint'); SAVEPOINT a"))
	steps.Must(tx.Exec("INSERT INTO item VALUES ($1, $2)", 4, "savepoint"))
	steps.Must(tx.Exec("ROLLBACK TO a"))
	steps.Must(0, tx.Commit())
	steps.Say("savepoint", count(db, "savepoint"))
	steps.Say("errors", steps.Codes(func(sql string) string {
		_, err := db.Exec(sql)
		return steps.CodeOf(err)
	}))

	tx = steps.Must(db.Begin())
	in := steps.Must(tx.Prepare(pq.CopyIn("item", "id", "name")))
	for n := 1001; n <= 2000; n++ {
		steps.Must(in.Exec(n, "copy"))
	}
	steps.Must(in.Exec())
	steps.Must(0, in.Close())
	steps.Must(0, tx.Commit())
	steps.Say("copyin", count(db, "copy"))
	steps.Must(0, db.QueryRow("SELECT $1::text", steps.Large()).Scan(&large))
	steps.Say("large", len(large))
	steps.Say("cancel", cancel(db))
	listener := pq.NewListener("", time.Second, time.Second, nil)
	steps.Must(0, listener.Listen("news"))
	steps.Must(db.Exec("NOTIFY news, 'hello'"))
	steps.Say("notify", (<-listener.Notify).Extra)
}

func types(db *sql.DB) {
	var (
		n    int
		f    float64
		b    bool
		s    string
		none sql.NullString
		list []int64
	)
	row := db.QueryRow("SELECT $1::int, $2::float8, $3::bool, $4::text, $5::text, $6::int[]", 42, 1.5, true, "h\u00e9llo", nil, pq.Array([]int64{1, 2}))
	steps.Must(0, row.Scan(&n, &f, &b, &s, &none, pq.Array(&list)))
	steps.Say("types", steps.True(n == 42, f == 1.5, b, s == "h\u00e9llo", !none.Valid, slices.Equal(list, []int64{1, 2})))
}

// cancel cancels a query as soon as another session sees it run.
func cancel(db *sql.DB) string {
	cancellable, stop := context.WithCancel(ctx)
	done := make(chan error)
	go func() {
		_, err := db.ExecContext(cancellable, "SELECT pg_sleep(60)")
		done <- err
	}()
	other := open()
	for running := 0; running == 0; {
		steps.Must(0, other.QueryRow("SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'").Scan(&running))
	}
	stop()
	return steps.CodeOf(<-done)
}

func write(db execer, row int, name string) error {
	_, err := db.ExecContext(ctx, "INSERT INTO item VALUES ($1, $2)", row, name)
	return err
}

// ways writes with each way to tag: at connect, for the session, for a transaction.
func ways(token string, row int, name string) string {
	plain := steps.Must(sql.Open("postgres", ""))
	atConnect := write(steps.Must(openTagged(key, token)), row, name)
	session := steps.Must(plain.Conn(ctx))
	inSession := tag(session, key, token, false)
	if inSession == nil {
		inSession = write(session, row+1, name)
	}
	_ = session.Raw(func(any) error { return driver.ErrBadConn }) // a tagged session must not go back to the pool
	tx := steps.Must(plain.Begin())
	inTransaction := tag(tx, key, token, true)
	if inTransaction == nil {
		inTransaction = errors.Join(write(tx, row+2, name), tx.Commit())
	}
	return steps.CodeOf(atConnect) + " " + steps.CodeOf(inSession) + " " + steps.CodeOf(inTransaction)
}

func main() {
	held := open() // its one session stays open
	steps.Run(play, func(row int, name string) string { return steps.CodeOf(write(held, row, name)) }, ways)
}
