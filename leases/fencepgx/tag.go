package fencepgx

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fenceproxy/fenceproxy/fencing"
)

// Tag presents the locks of ctx on conn, for all that its session does until Untag.
// It is for a connection of one's own; one of a pool that was made with Configure is
// tagged already.
//
// Errors: ErrNoLock; why a lock isn't held any more, wrapping leases.ErrLost or
// leases.ErrReleased; and those of the connection, a refusal of the proxy among them.
// The session is tagged all the same after a refusal: everything in it is refused
// until Untag.
func Tag(ctx context.Context, conn *pgx.Conn) error { return tag(ctx, conn, false) }

// TagTx presents the locks of ctx in a transaction, up to its end. Its errors are
// Tag's.
func TagTx(ctx context.Context, tx pgx.Tx) error { return tag(ctx, tx, true) }

// executor is what conn and tx have in common here.
type executor interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}

func tag(ctx context.Context, db executor, local bool) error {
	locks := heldUnder(ctx)
	tokens, err := locks.tokens()
	if err != nil {
		return fmt.Errorf("tag: %w", err)
	}
	if err := locks.err(); err != nil {
		return fmt.Errorf("tag: %w", err)
	}
	// Without a prepared statement, which a pooler may not know.
	_, err = db.Exec(ctx, "SELECT pg_catalog.set_config($1, $2, $3)", pgx.QueryExecModeExec, fencing.SettingTokens, tokens, local)
	if err != nil {
		return fmt.Errorf("tag: %w", err)
	}
	return nil
}

// Untag takes off what Tag has set. The session has then the tag that it was opened
// with, if any.
func Untag(ctx context.Context, conn *pgx.Conn) error {
	if _, err := conn.Exec(ctx, "RESET "+fencing.SettingTokens, pgx.QueryExecModeExec); err != nil {
		return fmt.Errorf("untag: %w", err)
	}
	return nil
}
