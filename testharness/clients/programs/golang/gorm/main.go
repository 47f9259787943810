// The program gorm works with PostgreSQL through gorm, straight and through
// fenceproxy. See package clients.
package main

import (
	"errors"
	"os"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/fenceproxy/fenceproxy/testharness/clients/programs/golang/steps"
)

var key, token = os.Getenv("FENCE_KEY"), os.Getenv("FENCE_TOKEN")

// Item is a row of the table.
type Item struct {
	ID   int `gorm:"primaryKey"`
	Name string
}

// TableName is what gorm calls.
func (Item) TableName() string { return "item" }

// recipe
// At connect: each connection of the pool is tagged.
func openTagged(key, token string) (*gorm.DB, error) {
	config, err := pgx.ParseConfig("")
	if err != nil {
		return nil, err
	}
	config.RuntimeParams["fence.key"] = key
	config.RuntimeParams["fence.token"] = token
	return openConfig(config)
}

// For one transaction of any pool.
func taggedTransaction(db *gorm.DB, key, token string, work func(tx *gorm.DB) error) error {
	return db.Transaction(func(tx *gorm.DB) error {
		err := tx.Exec("SELECT set_config('fence.key', ?, true), set_config('fence.token', ?, true)", key, token).Error
		if err != nil {
			return err
		}
		return work(tx)
	})
}

// end

func openConfig(config *pgx.ConnConfig) (*gorm.DB, error) {
	return gorm.Open(postgres.New(postgres.Config{Conn: stdlib.OpenDB(*config)}),
		&gorm.Config{PrepareStmt: true, Logger: logger.Discard, DisableAutomaticPing: true})
}

func open() *gorm.DB {
	if key != "" {
		return steps.Must(openTagged(key, token))
	}
	return steps.Must(openConfig(steps.Must(pgx.ParseConfig(""))))
}

func count(db *gorm.DB, name string) (n int64) {
	steps.Must(0, db.Model(&Item{}).Where("name = ?", name).Count(&n).Error)
	return n
}

func scalar[T any](db *gorm.DB, sql string, args ...any) (value T) {
	steps.Must(0, db.Raw(sql, args...).Scan(&value).Error)
	return value
}

func play() {
	db := open()
	steps.Say("version", steps.Version("gorm.io/gorm"))
	steps.Say("connect", scalar[string](db, "SELECT current_user"))
	var row struct {
		N    int
		F    float64
		B    bool
		S    string
		None *string
	}
	steps.Must(0, db.Raw("SELECT ?::int AS n, ?::float8 AS f, ?::bool AS b, ?::text AS s, ?::text AS none", 42, 1.5, true, "h\u00e9llo", nil).Scan(&row).Error)
	items := scalar[int](db, "SELECT count(*) FROM unnest(?::int[])", "{1,2}")
	steps.Say("types", steps.True(row.N == 42, row.F == 1.5, row.B, row.S == "h\u00e9llo", row.None == nil, items == 2))
	steps.Say("prepared", scalar[int](db, "SELECT ?::int + length(?)", 0, "abc"),
		scalar[int](db, "SELECT ?::int + length(?)", 1, "abc"), scalar[int](db, "SELECT ?::int + length(?)", 2, "abc"))
	steps.Must(0, db.Transaction(func(tx *gorm.DB) error { return tx.Create(&Item{1, "commit"}).Error }))
	steps.Say("commit", count(db, "commit"))
	tx := db.Begin()
	steps.Must(0, tx.Create(&Item{2, "rollback"}).Error)
	steps.Must(0, tx.Rollback().Error)
	steps.Say("rollback", count(db, "rollback"))
	steps.Must(0, db.Transaction(func(tx *gorm.DB) error {
		steps.Must(0, tx.Create(&Item{3, "savepoint"}).Error)
		_ = tx.Transaction(func(nested *gorm.DB) error { // a savepoint
			steps.Must(0, nested.Create(&Item{4, "savepoint"}).Error)
			return errors.New("rollback")
		})
		return nil
	}))
	steps.Say("savepoint", count(db, "savepoint"))
	steps.Say("errors", steps.Codes(func(sql string) string { return steps.CodeOf(db.Exec(sql).Error) }))
	many := make([]Item, 100)
	for i := range many {
		many[i] = Item{3001 + i, "many"}
	}
	steps.Must(0, db.CreateInBatches(many, 30).Error)
	steps.Must(0, db.Save(&Item{3001, "changed"}).Error)
	steps.Must(0, db.Delete(&Item{}, 3002).Error)
	steps.Say("objects", count(db, "many"), count(db, "changed"))
	steps.Say("large", len(scalar[string](db, "SELECT ?::text", steps.Large())))
	steps.Say("cancel", cancel(db))
}

// cancel has the server end a query by a timeout: pgx closes the connection of
// a context that ended, and shows no code.
func cancel(db *gorm.DB) string {
	return steps.CodeOf(db.Transaction(func(tx *gorm.DB) error {
		steps.Must(0, tx.Exec("SET LOCAL statement_timeout = 100").Error)
		return tx.Exec("SELECT pg_sleep(60)").Error
	}))
}

// ways writes with each way to tag: at connect, for a transaction.
func ways(token string, row int, name string) string {
	tagged := steps.Must(openTagged(key, token))
	plain := steps.Must(openConfig(steps.Must(pgx.ParseConfig(""))))
	return steps.CodeOf(tagged.Create(&Item{row, name}).Error) + " " +
		steps.CodeOf(taggedTransaction(plain, key, token, func(tx *gorm.DB) error { return tx.Create(&Item{row + 1, name}).Error }))
}

func main() {
	held := open() // its one session stays open
	steps.Run(play, func(row int, name string) string { return steps.CodeOf(held.Create(&Item{row, name}).Error) }, ways)
}
