package scenario

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fenceproxy/fenceproxy/fencing"
	"github.com/fenceproxy/fenceproxy/leases"
)

// A lock is what a worker holds: a leases.Lease, or an expiringLock.
type lock interface {
	Key() string
	Token() fencing.Token
	Err() error // nil while it is held, as far as the worker knows
	Release(context.Context) error
}

var _ lock = (*leases.Lease)(nil)

// expiringTable holds expiring locks: what Redis would keep under a key, and
// how many owners there have been, which only the history looks at.
const expiringTable = `CREATE TABLE IF NOT EXISTS expiring_lock (key text PRIMARY KEY, owner text NOT NULL, expires timestamptz NOT NULL, nr bigint NOT NULL)`

// The statements of an expiring lock: SET NX PX, its renewal and its removal by the
// owner alone, in SQL.
const (
	expiringTake = `INSERT INTO expiring_lock AS l VALUES ($1, $2, pg_catalog.clock_timestamp() + $3::text::interval, 1)
		ON CONFLICT (key) DO UPDATE SET owner = excluded.owner, expires = excluded.expires, nr = l.nr + 1
		WHERE l.expires <= pg_catalog.clock_timestamp() RETURNING nr`
	expiringRenew = `UPDATE expiring_lock SET expires = pg_catalog.clock_timestamp() + $3::text::interval
		WHERE key = $1 AND owner = $2 AND expires > pg_catalog.clock_timestamp()`
	expiringFree = `UPDATE expiring_lock SET expires = pg_catalog.clock_timestamp() WHERE key = $1 AND owner = $2`
	expiringDrop = `UPDATE expiring_lock SET expires = pg_catalog.clock_timestamp() WHERE key = $1`
	expiringGone = `SELECT NOT EXISTS (SELECT FROM expiring_lock WHERE key = $1 AND nr = $2 AND expires > pg_catalog.clock_timestamp())`
)

// An expiringLock is the lock that people build on Redis: it has an owner,
// who renews it, and frees itself when nobody does.
type expiringLock struct {
	key, owner string
	nr         fencing.Token
	ttl        time.Duration

	done    chan struct{} // ends the renewal
	renewal sync.WaitGroup

	mu       sync.Mutex
	conn     *pgx.Conn
	deadline time.Time // up to which it is known to be held
}

var errOverdue = errors.New("the lock was not renewed in time")

// takeExpiring waits until the lock is free and takes it. Such locks have no
// line: everybody asks again and again.
func takeExpiring(ctx context.Context, dsn, key string, ttl time.Duration) (*expiringLock, error) {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return nil, fmt.Errorf("connect for the lock: %w", err)
	}
	l := &expiringLock{key: key, owner: rand.Text(), ttl: ttl, conn: conn, done: make(chan struct{})}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		sent := time.Now()
		var nr int64
		err := conn.QueryRow(ctx, expiringTake, key, l.owner, ttl.String()).Scan(&nr)
		if err == nil {
			l.nr, l.deadline = fencing.Token(nr), sent.Add(ttl)
			l.renewal.Add(1)
			go l.renew()
			return l, nil
		}
		if !errors.Is(err, pgx.ErrNoRows) {
			conn.Close(ctx)
			return nil, fmt.Errorf("take the lock: %w", err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			conn.Close(context.WithoutCancel(ctx))
			return nil, context.Cause(ctx)
		}
	}
}

// renew ends when the lock is released.
func (l *expiringLock) renew() {
	defer l.renewal.Done()
	tick := time.NewTicker(l.ttl / 3)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			l.renewOnce()
		case <-l.done:
			return
		}
	}
}

// renewOnce moves the deadline if the lock was still this owner's.
func (l *expiringLock) renewOnce() {
	l.mu.Lock()
	defer l.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), l.ttl)
	defer cancel()
	sent := time.Now()
	tag, err := l.conn.Exec(ctx, expiringRenew, l.key, l.owner, l.ttl.String())
	if err == nil && tag.RowsAffected() == 1 {
		l.deadline = sent.Add(l.ttl)
	}
}

func (l *expiringLock) Key() string          { return l.key }
func (l *expiringLock) Token() fencing.Token { return l.nr }

func (l *expiringLock) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if time.Now().After(l.deadline) {
		return errOverdue
	}
	return nil
}

// drop frees the lock whoever's it is, as a program does that doesn't look
// whether it is still the owner. It is called once, instead of Release.
func (l *expiringLock) drop(ctx context.Context) error { return l.end(ctx, expiringDrop, l.key) }

// Release frees the lock if it is this owner's. It is called once.
func (l *expiringLock) Release(ctx context.Context) error {
	return l.end(ctx, expiringFree, l.key, l.owner)
}

func (l *expiringLock) end(ctx context.Context, statement string, args ...any) error {
	close(l.done)
	l.renewal.Wait()
	defer l.conn.Close(ctx)
	_, err := l.conn.Exec(ctx, statement, args...)
	return err
}
