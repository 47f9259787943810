package scenario_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fenceproxy/fenceproxy/testharness/postgres"
	"github.com/fenceproxy/fenceproxy/testharness/scenario"
)

// A run in which nobody gets to write is wrong in every story: who refuses
// everybody hasn't kept the promise.
func TestStories_WrongIfNobodyWrites(t *testing.T) {
	pg := postgres.New(t, postgres.Options{})
	conn, err := pgx.Connect(t.Context(), pg.DSN(postgres.Superuser, "postgres"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(context.WithoutCancel(t.Context())) })
	for _, story := range scenario.Stories() {
		t.Run(story.Name, func(t *testing.T) {
			tx, err := conn.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = tx.Rollback(t.Context()) }() // so that the next one may have the same tables
			if _, err := tx.Exec(t.Context(), story.Tables); err != nil {
				t.Fatal(err)
			}
			rows, err := tx.Query(t.Context(), story.Wrong)
			if err != nil {
				t.Fatal(err)
			}
			found, err := pgx.CollectRows(rows, pgx.RowTo[string])
			if err != nil {
				t.Fatal(err)
			}
			if len(found) == 0 {
				t.Error("nobody has written, and nothing is wrong")
			}
		})
	}
}
