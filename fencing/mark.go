package fencing

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// A Mark is the highest token that was accepted for a key.
type Mark struct {
	Key       string
	Token     Token // 0: none was ever accepted
	LockKey   string
	ClaimedAt time.Time
	// Comparable says that the mark is of the current lineage, so that
	// tokens of today are higher or lower than it.
	Comparable bool
}

// whereabouts tell one PostgreSQL and one history of it from others, and one
// history of etcd.
type whereabouts struct {
	System   string // system identifier
	Timeline string // "standby" on one
	Epoch    int32  // of the lineage, 0 before the first claim
}

// history names one PostgreSQL and one history of it; "" on a standby, which has
// none of its own.
func (w whereabouts) history() string {
	if w.Timeline == "standby" {
		return ""
	}
	return w.System + "/" + w.Timeline
}

// mark reads what is accepted for key.
func (s *Store) mark(ctx context.Context, database, key string) (Mark, whereabouts, error) {
	const query = "SELECT token, lock_key, claimed_at, comparable, system_id, timeline, epoch FROM fence.accepted($1)"
	m := Mark{Key: key}
	var w whereabouts
	var token *int64
	var lockKey *string
	var at *time.Time
	err := s.reader(database).QueryRow(ctx, query, key).Scan(&token, &lockKey, &at, &m.Comparable, &w.System, &w.Timeline, &w.Epoch)
	if err != nil {
		return Mark{}, whereabouts{}, err
	}
	m.set(token, lockKey, at)
	return m, w, nil
}

func (m *Mark) set(token *int64, lockKey *string, at *time.Time) {
	if token != nil && lockKey != nil && at != nil {
		m.Token, m.LockKey, m.ClaimedAt = Token(*token), *lockKey, *at
	}
}

// raised is the answer of fence.claim. The outcomes stand there.
type raised struct {
	outcome string
	mark    Mark
	highest int64 // how far etcd is known to have come, 0 if nothing is
	where   whereabouts
}

const (
	outcomeRaised   = "raised"
	outcomeHeld     = "held"
	outcomeStale    = "stale"
	outcomeBehind   = "behind"
	outcomeForeign  = "foreign"
	outcomeReplaced = "replaced"
)

// claimConn takes a connection whose server-side time-outs are below limit, so
// that a claim whose proxy is killed or paused ends by itself.
func (s *Store) claimConn(ctx context.Context, database string, limit time.Duration) (*pgxpool.Conn, error) {
	p, err := s.of(database)
	if err != nil {
		return nil, err
	}
	conn, err := p.claim.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	const known = "fenceproxy limit"
	if had, ok := conn.Conn().PgConn().CustomData()[known]; ok && had == limit {
		return conn, nil
	}
	const set = `SELECT set_config('lock_timeout', $1, false), set_config('statement_timeout', $1, false),
		set_config('idle_in_transaction_session_timeout', $1, false), set_config('tcp_user_timeout', $1, false)`
	below := strconv.FormatInt(max(limit*9/10, time.Millisecond).Milliseconds(), 10)
	if _, err := conn.Exec(ctx, set, below); err != nil {
		conn.Release()
		return nil, err
	}
	conn.Conn().PgConn().CustomData()[known] = limit
	return conn, nil
}

// raise runs fence.claim once. When it returns without an error, its
// transaction has been committed.
func raise(ctx context.Context, conn *pgxpool.Conn, p Pair, v Verification, by string) (raised, error) {
	const query = `SELECT outcome, token, lock_key, claimed_at, coalesce(highest, 0), system_id, timeline, epoch
		FROM fence.claim($1, $2, $3, $4, $5, $6, $7)`
	data := conn.Conn().PgConn().CustomData()
	delete(data, warned)
	r := raised{mark: Mark{Key: p.Key, Comparable: true}}
	var token *int64
	var lockKey *string
	var at *time.Time
	// Scan returns when the server's ReadyForQuery was read, and so after the
	// commit: QueryRow reads its rows to their end.
	// The statement is prepared once for each connection: PostgreSQL would spend
	// as much on reading and planning it as on half of the claim.
	err := conn.QueryRow(ctx, query, pgx.QueryExecModeCacheStatement, p.Key, int64(p.Token), v.LockKey, v.Cluster, v.Revision, v.epoch, by).
		Scan(&r.outcome, &token, &lockKey, &at, &r.highest, &r.where.System, &r.where.Timeline, &r.where.Epoch)
	if err != nil {
		return raised{}, err
	}
	// A wait for the standby that an administrator broke off ends with a
	// warning and a commit that a failover can lose (syncrep.c).
	if warning, ok := data[warned].(string); ok {
		return raised{}, fmt.Errorf("%w: %s", errNotDurable, warning)
	}
	r.mark.set(token, lockKey, at)
	return r, nil
}

var errNotDurable = errors.New("the mark may not be durable")
