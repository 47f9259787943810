// Package dial opens plain sessions with PostgreSQL for tests, which fail where
// that fails.
package dial

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
)

// Connect returns a session by a DSN; it ends with the test.
func Connect(t testing.TB, dsn string) *pgx.Conn {
	t.Helper()
	c, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatalf("connect: %v", err)
	}
	t.Cleanup(func() { c.Close(context.Background()) })
	return c
}

// Exec carries SQL out.
func Exec(t testing.TB, c *pgx.Conn, sql string) {
	t.Helper()
	if _, err := c.Exec(t.Context(), sql); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}
