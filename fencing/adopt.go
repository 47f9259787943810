package fencing

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// An Adoption is what Adopt did.
type Adoption struct {
	Epoch    int32 // of the new lineage
	Sessions int   // that were ended
	Marks    int64 // that were removed
}

// adoptTimeout bounds each wait of an adoption: for claims under way, and for
// the sessions to end.
const adoptTimeout = 10 * time.Second

// An adoption looks every adoptEvery whether the sessions have ended, and wants
// to see none adoptLooks times: a backend that has just let its client in shows
// itself a moment later.
const (
	adoptEvery = 20 * time.Millisecond
	adoptLooks = 5
)

// LineageOf returns the lineage of the marks in conn's database.
func LineageOf(ctx context.Context, conn *pgx.Conn) (Lineage, error) {
	l, err := currentLineage(ctx, conn)
	if err != nil {
		return Lineage{}, fmt.Errorf("read the lineage: %w", err)
	}
	return l, nil
}

// SessionsOf counts the sessions in conn's database that Adopt would end.
func SessionsOf(ctx context.Context, conn *pgx.Conn) (int, error) {
	all, err := lineageSessions(ctx, conn, nil)
	if err != nil {
		return 0, fmt.Errorf("look for sessions: %w", err)
	}
	return len(all), nil
}

// Adopt makes the etcd cluster that is at revision the one that marks come
// from, in the database of conn, whose role must own schema fence. from is the
// lineage that the decision was made on; where it isn't the current one any
// more, nothing is done. by is recorded.
//
// Tokens of one etcd mean nothing in the other, which gives the same numbers
// out again, and a session doesn't say which of the two its token is of. So all
// sessions of the database are ended, whatever proxy they are behind and
// whether that one runs or not, and all marks removed, before anything can be
// claimed in the new lineage: claims wait for the lock on fence.lineage.
func Adopt(ctx context.Context, conn *pgx.Conn, from Lineage, cluster string, revision int64, by string) (Adoption, error) {
	var a Adoption
	if err := checkRights(ctx, conn); err != nil {
		return a, err
	}
	err := pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		const prepare = `SELECT set_config('lock_timeout', $1, true), set_config('synchronous_commit', 'on', true),
			set_config('search_path', 'pg_catalog, pg_temp', true)`
		if _, err := tx.Exec(ctx, prepare, fmt.Sprint(adoptTimeout.Milliseconds())); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, "LOCK TABLE fence.lineage IN ACCESS EXCLUSIVE MODE"); err != nil {
			return fmt.Errorf("wait for claims under way: %w", err)
		}
		now, err := currentLineage(ctx, tx)
		if err != nil {
			return err
		}
		if now.Epoch != from.Epoch || now.Cluster != from.Cluster {
			return fmt.Errorf("epoch %d (cluster %s) was adopted by %s meanwhile: look again", now.Epoch, now.Cluster, now.AdoptedBy)
		}
		if a.Sessions, err = endSessions(ctx, tx); err != nil {
			return err
		}
		return succeed(ctx, tx, &a, cluster, revision, by)
	})
	if err != nil {
		return Adoption{}, fmt.Errorf("adopt a lineage: %w", err)
	}
	return a, nil
}

// succeed removes the marks and records the new lineage.
func succeed(ctx context.Context, tx pgx.Tx, a *Adoption, cluster string, revision int64, by string) error {
	if err := tx.QueryRow(ctx, "SELECT count(*) FROM fence.mark").Scan(&a.Marks); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, "TRUNCATE fence.mark"); err != nil {
		return fmt.Errorf("remove the marks, which a prepared transaction may hold: %w", err)
	}
	const record = `INSERT INTO fence.lineage (epoch, cluster, adopted_at, adopted_by, floor)
		SELECT coalesce(max(l.epoch), 0) + 1, $1, clock_timestamp(), format('%s (%s)', session_user, $2::text), $3
		FROM fence.lineage AS l RETURNING epoch`
	return tx.QueryRow(ctx, record, cluster, by, revision).Scan(&a.Epoch)
}

// lineageSessions returns the sessions of conn's database, if before isn't nil
// those that began before that: all but its own, and those that proxies make their claims with.
func lineageSessions(ctx context.Context, conn querier, before *time.Time) ([]Blocker, error) {
	const query = `
		SELECT a.pid, coalesce(a.usename::text, ''), coalesce(a.application_name, ''), coalesce(a.state, ''),
			coalesce(a.wait_event, ''), coalesce(r.rolsuper, false),
			coalesce((extract(epoch FROM clock_timestamp() - a.xact_start) * 1000)::bigint, 0)
		FROM pg_stat_activity AS a LEFT JOIN pg_roles AS r ON r.oid = a.usesysid
		WHERE a.datname = current_database() AND a.backend_type = 'client backend' AND a.pid <> pg_backend_pid()
			AND ($1::timestamptz IS NULL OR a.backend_start < $1)
			AND NOT (a.application_name IN ($2, $3) AND has_function_privilege(a.usesysid, $4, 'EXECUTE'))
		ORDER BY a.pid`
	rows, err := conn.Query(ctx, query, before, ClaimApplication, WatchApplication, claimSignature)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (b Blocker, err error) {
		var ms int64
		err = row.Scan(&b.PID, &b.User, &b.Application, &b.State, &b.WaitEvent, &b.Superuser, &ms)
		b.Age = time.Duration(ms) * time.Millisecond
		return b, err
	})
}

// endSessions ends what lineageSessions finds, and returns how many there were.
// Which of them have a tag can't be seen from outside.
func endSessions(ctx context.Context, tx pgx.Tx) (int, error) {
	var began time.Time
	var superuser bool
	const now = "SELECT clock_timestamp(), current_setting('is_superuser') = 'on'"
	if err := tx.QueryRow(ctx, now).Scan(&began, &superuser); err != nil {
		return 0, err
	}
	ended, none := map[int32]bool{}, 0
	for deadline := time.Now().Add(adoptTimeout); ; time.Sleep(adoptEvery) {
		// Else the first look would be the only one (pgstat_fetch_consistency).
		if _, err := tx.Exec(ctx, "SELECT pg_stat_clear_snapshot()"); err != nil {
			return 0, err
		}
		left, err := lineageSessions(ctx, tx, &began)
		if err != nil {
			return 0, fmt.Errorf("look for sessions: %w", err)
		}
		if len(left) == 0 {
			if none++; none == adoptLooks {
				return len(ended), nil
			}
			continue
		}
		none = 0
		if err := mayEnd(left, superuser); err != nil {
			return 0, err
		}
		if time.Now().After(deadline) {
			return 0, fmt.Errorf("these sessions have not ended within %s: %s", adoptTimeout, listed(left))
		}
		for _, b := range left {
			if b.WaitEvent == waitSyncRep || ended[b.PID] {
				continue // it ends when the standby has answered
			}
			if _, err := tx.Exec(ctx, "SELECT pg_terminate_backend($1)", b.PID); err != nil {
				return 0, fmt.Errorf("end pid %d: %w", b.PID, err)
			}
			ended[b.PID] = true
		}
	}
}

// mayEnd refuses before anything is ended: what can't be ended might be a
// session with a tag.
func mayEnd(sessions []Blocker, superuser bool) error {
	var not []Blocker
	for _, b := range sessions {
		if b.Superuser && !superuser {
			not = append(not, b)
		}
	}
	if len(not) == 0 {
		return nil
	}
	return errors.New("only a superuser may end the sessions of superusers: end them, or connect as one: " + listed(not))
}

func listed(sessions []Blocker) string {
	var all []string
	for _, b := range sessions {
		all = append(all, b.String())
	}
	return strings.Join(all, "; ")
}
