package fencing

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// watchEvery is how often a claim that has to wait looks at what blocks it.
const watchEvery = 20 * time.Millisecond

// brokenTries is how often a claim starts over because its connection broke: once
// for one that was kept and broke before, and again for what breaks meanwhile.
const brokenTries = 3

// errOvertaken breaks off a claim whose token the mark has reached.
var errOvertaken = errors.New("the mark has reached the token")

// raise raises the mark. It waits for the transactions that hold the mark's
// share lock, ends them after EvictAfter, and gives up when ctx ends.
func (c *Claimer) raise(ctx context.Context, database string, p Pair, v Verification, report *ClaimReport) (raised, *Error) {
	began := time.Now()
	defer func() { report.Phases.Raise += time.Since(began) }()
	for broken := 0; ; {
		r, w, err := c.raiseOnce(ctx, database, p, v)
		report.Phases.Evict += w.took
		for _, b := range w.ended {
			report.Ended++
			if c.Observer != nil {
				c.Observer.BackendEnded(database, p.Key, b)
			}
		}
		switch {
		case err == nil:
			return r, nil
		case ctx.Err() != nil && c.ctx.Err() != nil:
			return raised{}, closing(p)
		case ctx.Err() != nil, hasCode(err, codeLockTimeout, codeCanceled):
			return raised{}, c.timedOut(database, p, w, err)
		case w.overtaken, hasCode(err, codeDeadlock, codeOvertaken):
			continue // when overtaken, to be told without waiting how the mark is
		case !answered(err) && broken < brokenTries:
			// The connection broke, perhaps before this claim: PostgreSQL was
			// restarted. A claim that did commit is answered "held". The other
			// connections that were kept are as old.
			broken++
			c.Store.forsake(database)
			continue
		default:
			return raised{}, c.Store.refusal(database, p, err)
		}
	}
}

// answered says whether err is PostgreSQL's own word on what it was asked, and
// not a broken connection's. What ended a connection that was kept may have been
// said long before: an administrator, a restart, idle_session_timeout.
func answered(err error) bool {
	var pgErr *pgconn.PgError
	if errors.As(err, &pgErr) {
		return !strings.HasPrefix(pgErr.Code, classEnded)
	}
	return errors.Is(err, errNotDurable) || errors.Is(err, errStoreClosed)
}

// classEnded is what SQLSTATEs begin with of sessions that the server ended
// (operator intervention, but for a cancelled query).
const classEnded = "57P"

// raiseOnce runs fence.claim once, with a watch beside it.
func (c *Claimer) raiseOnce(ctx context.Context, database string, p Pair, v Verification) (raised, *watch, error) {
	w := &watch{pair: p, refused: map[int32]Blocker{}, ended: map[int32]Blocker{}}
	conn, err := c.Store.claimConn(ctx, database, c.times().ClaimTimeout)
	if err != nil {
		return raised{}, w, err
	}
	defer conn.Release()
	pools, err := c.Store.of(database)
	if err != nil {
		return raised{}, w, err
	}
	w.pool, w.pid = pools.watch, conn.Conn().PgConn().PID()

	claiming, breakOff := context.WithCancelCause(ctx)
	defer breakOff(nil)
	answered, watched := make(chan struct{}), make(chan struct{})
	// Most claims are answered long before there is anything to watch.
	late := time.AfterFunc(c.times().EvictAfter, func() {
		defer close(watched)
		began := time.Now()
		defer func() { w.took = time.Since(began) }()
		c.watchClaim(ctx, w, answered, breakOff)
	})
	r, err := raise(claiming, conn, p, v, c.Name)
	close(answered)
	if !late.Stop() {
		<-watched
	}
	return r, w, err
}

// watchClaim watches a claim that has to wait, until it is answered, overtaken
// or out of time. It looks under the claim's own deadline, but never breaks a
// look off because the claim was answered: that would cost the connection.
func (c *Claimer) watchClaim(ctx context.Context, w *watch, answered <-chan struct{}, breakOff context.CancelCauseFunc) {
	look := time.NewTimer(0)
	defer look.Stop()
	for {
		select {
		case <-answered:
			return
		case <-ctx.Done():
			return
		case <-look.C:
		}
		w.look(ctx)
		if w.overtaken {
			breakOff(errOvertaken)
			return
		}
		look.Reset(watchEvery)
	}
}
