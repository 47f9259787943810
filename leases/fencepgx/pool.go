package fencepgx

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// DefaultUntagTimeout is how long a connection that comes back to its pool may take
// to lose its tag; it is closed otherwise.
const DefaultUntagTimeout = 5 * time.Second

// Configure has the pool that is made of config present the locks of the context
// that a connection is acquired under, for as long as it is acquired. Acquiring under
// a context without a lock costs nothing; under one with locks it takes a round trip
// to tag the connection, and coming back another one, which nobody waits for.
//
// Hooks that config has already are called too: PrepareConn or BeforeAcquire before
// the tag is set, AfterRelease when it is off. Set any others before Configure.
func Configure(config *pgxpool.Config) {
	h := hooks{prepare: config.PrepareConn, release: config.AfterRelease}
	if before := config.BeforeAcquire; h.prepare == nil && before != nil {
		h.prepare = func(ctx context.Context, conn *pgx.Conn) (bool, error) { return before(ctx, conn), nil }
	}
	config.PrepareConn, config.AfterRelease = h.acquired, h.released
}

// hooks are those of a pool, and the ones that it had before.
type hooks struct {
	prepare func(context.Context, *pgx.Conn) (bool, error)
	release func(*pgx.Conn) bool
}

// tagged is the name of a connection's custom data that say whether it has a tag.
const tagged = "fencepgx.tagged"

// acquired is the pool's PrepareConn: false closes the connection, and the pool tries
// another one if there is no error.
func (h hooks) acquired(ctx context.Context, conn *pgx.Conn) (bool, error) {
	if h.prepare != nil {
		if ok, err := h.prepare(ctx, conn); !ok || err != nil {
			return ok, err
		}
	}
	if len(heldUnder(ctx)) == 0 {
		return true, nil
	}
	conn.PgConn().CustomData()[tagged] = true
	err := Tag(ctx, conn)
	if err == nil {
		return true, nil
	}
	if conn.IsClosed() && ctx.Err() == nil {
		return false, nil // it broke, most likely while it was idle
	}
	return false, err
}

// released is the pool's AfterRelease: false closes the connection.
func (h hooks) released(conn *pgx.Conn) bool {
	if data := conn.PgConn().CustomData(); data[tagged] != nil {
		ctx, cancel := context.WithTimeout(context.Background(), DefaultUntagTimeout)
		defer cancel()
		if Untag(ctx, conn) != nil {
			return false
		}
		delete(data, tagged)
	}
	return h.release == nil || h.release(conn)
}
