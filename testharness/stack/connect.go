package stack

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/fenceproxy/fenceproxy/testharness/postgres"
)

// Connect opens a session for a test, which is closed when the test ends.
// params are names and values of the startup packet by turns.
func Connect(t postgres.TB, dsn string, params ...string) *pgx.Conn {
	t.Helper()
	config, err := pgx.ParseConfig(dsn)
	if err != nil {
		t.Fatalf("read the DSN: %v", err)
	}
	for i := 0; i+1 < len(params); i += 2 {
		config.RuntimeParams[params[i]] = params[i+1]
	}
	conn, err := pgx.ConnectConfig(context.Background(), config)
	if err != nil {
		t.Fatalf("connect: %v", err)
	}
	t.Cleanup(func() { conn.Close(context.Background()) })
	return conn
}
