package fencing

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// A Blocker is a backend whose transaction a claim waits for.
type Blocker struct {
	PID         int32 // 0 is a prepared transaction, which has no backend
	User        string
	Application string
	State       string // of pg_stat_activity; "" where we may not see it
	WaitEvent   string
	BackendType string
	Superuser   bool
	XactStart   *time.Time
	Age         time.Duration // of its transaction
	Claim       bool          // another claim, which ends by itself unless it is forsaken
}

func (b Blocker) String() string {
	state := b.State
	switch {
	case state == "":
		state = "state not visible to this role"
	case b.WaitEvent == waitSyncRep:
		state = "waiting for a synchronous standby"
	}
	return fmt.Sprintf("pid %d (user %s, application %q, %s, transaction age %s)",
		b.PID, b.User, b.Application, state, b.Age.Round(time.Millisecond))
}

// waitSyncRep is the wait event of a backend that has committed and waits for
// its standby. Ending it would show everyone a commit that isn't replicated.
const waitSyncRep = "SyncRep"

// waitClientRead is the wait event of a backend that waits for its client.
const waitClientRead = "ClientRead"

// forsaken says whether b is a claim that is done but for its commit, for which
// its proxy's last message (Sync) must come yet. It has no time-out there, and may
// wait as long as the network loses things; its proxy tries once more if it is
// ended.
func (b Blocker) forsaken() bool { return b.Claim && b.WaitEvent == waitClientRead }

// endable says whether b may be ended for a claim. A backend that we may not
// see into might be waiting for its standby.
func (b Blocker) endable() bool {
	return b.PID != 0 && (!b.Claim || b.forsaken()) && b.BackendType == "client backend" && b.WaitEvent != waitSyncRep
}

// A watch ends what blocks one claim. It belongs to one goroutine, and is read
// when that has returned.
type watch struct {
	pool *pgxpool.Pool
	pid  uint32 // of the claim's backend
	pair Pair

	overtaken bool              // the mark has reached or passed the token
	blockers  []Blocker         // of the last look
	prepared  []string          // prepared transactions, at the last look that had one
	standby   bool              // at the last look, the claim waited for its own standby
	refused   map[int32]Blocker // whose end was refused for want of rights
	ended     map[int32]Blocker
	took      time.Duration // from the first look to the answer
	err       error         // of the last look, nil if it went well
}

// look looks once, and ends what it may. It sets overtaken where waiting has
// become pointless.
func (w *watch) look(ctx context.Context) {
	w.err = w.lookOnce(ctx)
}

func (w *watch) lookOnce(ctx context.Context) error {
	found, err := w.blocking(ctx)
	if err != nil {
		return fmt.Errorf("find what blocks the claim: %w", err)
	}
	overtaken, standby, err := w.progress(ctx)
	if err != nil {
		return fmt.Errorf("look at the mark: %w", err)
	}
	w.overtaken = overtaken
	// Where nothing is to be seen, the claim is about to be answered, perhaps
	// because its time is up: what it waited for is worth keeping then.
	if len(found) > 0 || standby {
		w.blockers, w.standby = found, standby
	}
	if overtaken {
		return nil
	}
	for _, b := range found {
		switch {
		case b.PID == 0:
			names, err := w.preparedTransactions(ctx)
			if err != nil {
				return fmt.Errorf("find the prepared transaction that blocks the claim: %w", err)
			}
			if len(names) > 0 {
				w.prepared = names
			}
		case b.endable():
			if err := w.end(ctx, b); err != nil {
				return fmt.Errorf("end pid %d: %w", b.PID, err)
			}
		}
	}
	return nil
}

// blocking returns what blocks the claim, through other claims that it queues
// behind, but not those themselves' rank in the queue: each is listed once.
func (w *watch) blocking(ctx context.Context) ([]Blocker, error) {
	const query = `
		WITH RECURSIVE activity AS MATERIALIZED (
			SELECT a.*, r.rolsuper, a.application_name = $2 AND has_function_privilege(a.usesysid, $3, 'EXECUTE') AS claim
			FROM pg_stat_activity AS a LEFT JOIN pg_roles AS r ON r.oid = a.usesysid
		), chain (pid) AS (
			SELECT unnest(pg_blocking_pids($1))
			UNION
			SELECT unnest(pg_blocking_pids(c.pid)) FROM chain AS c JOIN activity AS a USING (pid) WHERE a.claim
		)
		SELECT c.pid, coalesce(a.usename::text, ''), coalesce(a.application_name, ''), coalesce(a.state, ''),
			coalesce(a.wait_event, ''), coalesce(a.backend_type, ''), coalesce(a.rolsuper, false), a.xact_start,
			coalesce((extract(epoch FROM clock_timestamp() - a.xact_start) * 1000)::bigint, 0), coalesce(a.claim, false)
		FROM chain AS c LEFT JOIN activity AS a USING (pid)
		WHERE c.pid = 0 OR a.pid IS NOT NULL
		ORDER BY a.claim, c.pid`
	rows, err := w.pool.Query(ctx, query, int32(w.pid), ClaimApplication, claimSignature)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (b Blocker, err error) {
		var ms int64
		err = row.Scan(&b.PID, &b.User, &b.Application, &b.State, &b.WaitEvent, &b.BackendType, &b.Superuser, &b.XactStart, &ms, &b.Claim)
		b.Age = time.Duration(ms) * time.Millisecond
		return b, err
	})
}

// progress says whether the mark has reached the claim's token by another
// claim, which makes this one pointless and its blockers rightful holders (the
// update locks the newest row before it sees that it has nothing to do), and
// whether the claim has only its own standby to wait for, as one has that found
// the mark at its token.
func (w *watch) progress(ctx context.Context) (overtaken, standby bool, err error) {
	const query = `
		SELECT coalesce(m.comparable AND m.token >= $2 AND a.wait_event_type = 'Lock', false), coalesce(a.wait_event = $4, false)
		FROM fence.accepted($1) AS m LEFT JOIN pg_stat_activity AS a ON a.pid = $3`
	err = w.pool.QueryRow(ctx, query, w.pair.Key, int64(w.pair.Token), int32(w.pid), waitSyncRep).Scan(&overtaken, &standby)
	return overtaken, standby, err
}

// end ends b if it is still in the transaction that was seen to block, and the
// mark is still below the token: read after b was seen, that proves that b's
// lock is not a later holder's.
func (w *watch) end(ctx context.Context, b Blocker) error {
	const query = `
		SELECT pg_terminate_backend(a.pid) FROM pg_stat_activity AS a
		WHERE a.pid = $1 AND a.xact_start IS NOT DISTINCT FROM $2
			AND a.backend_type = 'client backend' AND a.wait_event IS DISTINCT FROM $3
			AND ($6 = '' OR a.wait_event = $6)
			AND (SELECT NOT m.comparable OR m.token < $5 FROM fence.accepted($4) AS m)`
	still := ""
	if b.forsaken() {
		still = waitClientRead
	}
	var done bool
	err := w.pool.QueryRow(ctx, query, b.PID, b.XactStart, waitSyncRep, w.pair.Key, int64(w.pair.Token), still).Scan(&done)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return nil // it has moved on
	case hasCode(err, codeDenied):
		w.refused[b.PID] = b
		return nil
	case err != nil:
		return err
	}
	if done {
		w.ended[b.PID] = b
	}
	return nil
}

// preparedTransactions names the prepared transactions that the claim, or a
// claim before it in the queue, waits for. Their locks have no pid in pg_locks;
// what belongs together has one virtual transaction, which is the preparing
// session's until a restart and -1/xid after it.
func (w *watch) preparedTransactions(ctx context.Context) ([]string, error) {
	pids := []int32{int32(w.pid)}
	for _, b := range w.blockers {
		if b.Claim {
			pids = append(pids, b.PID)
		}
	}
	const query = `
		SELECT format('prepared transaction %L (owner %s, prepared %s ago)', p.gid, p.owner,
			date_trunc('milliseconds', clock_timestamp() - p.prepared))
		FROM pg_prepared_xacts AS p
		WHERE EXISTS (
			SELECT FROM pg_locks AS own
			JOIN pg_locks AS held USING (virtualtransaction)
			JOIN pg_locks AS awaited ON awaited.locktype = held.locktype
				AND awaited.transactionid IS NOT DISTINCT FROM held.transactionid
				AND awaited.database IS NOT DISTINCT FROM held.database
				AND awaited.relation IS NOT DISTINCT FROM held.relation
			WHERE own.transactionid = p.transaction AND own.granted AND own.pid IS NULL
				AND held.granted AND held.pid IS NULL
				AND NOT awaited.granted AND awaited.pid = ANY ($1))
		ORDER BY p.gid`
	rows, err := w.pool.Query(ctx, query, pids)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

// detail says what the claim waited for when it was last looked at.
func (w *watch) detail() string {
	var parts []string
	for _, b := range w.blockers {
		if b.PID == 0 {
			parts = append(parts, w.prepared...)
		} else {
			parts = append(parts, b.String())
		}
	}
	switch {
	case len(parts) > 0:
		return "Blocked by " + strings.Join(parts, "; ") + "."
	case w.standby:
		return "The claim itself waits for a synchronous standby to confirm its commit."
	case w.err != nil:
		return "What blocks it could not be found out."
	default:
		return "Nothing was seen to block it."
	}
}

// hint says what would help. role is the role that runs the claims.
func (w *watch) hint(role string) string {
	for _, b := range w.blockers {
		switch _, refused := w.refused[b.PID]; {
		case b.PID == 0 && len(w.prepared) > 0:
			return "Finish the prepared transaction with COMMIT PREPARED or ROLLBACK PREPARED, and retry."
		case refused && b.Superuser:
			return fmt.Sprintf("Only a superuser may end a superuser's session, and role %s is none: end pid %d by hand, and retry.", role, b.PID)
		case refused:
			return fmt.Sprintf("Role %s may not end pid %d. Run: GRANT pg_signal_backend TO %s", role, b.PID, role)
		case b.State == "" && b.PID != 0:
			return fmt.Sprintf("Role %s may not see what pid %d does, and so leaves it alone. Run: GRANT pg_read_all_stats TO %s", role, b.PID, role)
		case b.WaitEvent == waitSyncRep:
			return "A commit that waits for a synchronous standby is never ended, for it would be seen without being replicated. Mend the replication, and retry."
		}
	}
	if w.standby {
		return "Mend the replication, and retry."
	}
	return "Retry. If it stays so, look at what blocks it."
}
