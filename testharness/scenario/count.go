package scenario

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fenceproxy/fenceproxy/fencing"
	"github.com/fenceproxy/fenceproxy/leases"
)

// A Count is what became of the increments of one worker.
type Count struct {
	Acknowledged int            `json:"acknowledged"`
	Unknown      int            `json:"unknown"` // the connection broke before there was an answer
	Refused      []fencing.Code `json:"refused"`
}

// counterTable is what VerbCount counts in. Each increment leaves the token that it
// was made under, too.
const counterTable = `CREATE TABLE counter (n int NOT NULL); INSERT INTO counter VALUES (0); CREATE TABLE written (token bigint NOT NULL)`

// thinkTime is how long a worker takes between what it reads and what it
// writes. It is the work that the scenario is about, and waits for nothing.
const thinkTime = 20 * time.Millisecond

// countTimeout bounds a whole count, with all its turns at the lock.
const countTimeout = 50 * time.Second

// count increments the counter, each time under a lock of its own, until
// Times increments are acknowledged.
func (w *worker) count(ctx context.Context, o Order) (Reply, error) {
	ctx, cancel := context.WithTimeout(ctx, countTimeout)
	defer cancel()
	var r Reply
	for r.Counted.Acknowledged+r.Counted.Unknown < o.Times {
		err := w.countOnce(ctx, o)
		var refused *pgconn.PgError
		switch {
		case err == nil:
			r.Counted.Acknowledged++
		case ctx.Err() != nil:
			return r, err
		case errors.Is(err, leases.ErrLost):
			// It lost the lock before it had begun.
		case errors.As(err, &refused):
			r.Counted.Refused = append(r.Counted.Refused, fencing.Code(refused.Code))
		default:
			r.Counted.Unknown++
		}
	}
	return r, nil
}

// countOnce reads the counter and writes it, one higher.
func (w *worker) countOnce(ctx context.Context, o Order) error {
	l, err := w.take(ctx, o)
	if err != nil {
		return err
	}
	// Whoever lost it hears so from the database.
	defer func() { _ = l.Release(ctx) }()
	o.Tag = []Hold{{l.Key(), l.Token()}}
	if err := w.connect(ctx, o); err != nil {
		return err
	}
	defer func() { _ = w.conn.Close(ctx) }()
	turn := Turn{Hold: o.Tag[0]}
	if err := w.conn.QueryRow(ctx, "SELECT n FROM counter", pgx.QueryExecModeExec).Scan(&turn.Found); err != nil {
		return err
	}
	if err := w.tell(Reply{Turn: &turn}); err != nil {
		return err
	}
	time.Sleep(thinkTime)
	_, err = w.conn.Exec(ctx, "WITH counted AS (UPDATE counter SET n = $1::int) INSERT INTO written VALUES ($2::bigint)", pgx.QueryExecModeExec,
		strconv.Itoa(turn.Found+1), turn.Hold.Token.String())
	turn.end(err)
	return errors.Join(err, w.tell(Reply{Turn: &turn}))
}

// SendCount has the actor count; Counted is its answer.
func (a *Actor) SendCount(key string, times int) {
	a.order(Order{Verb: VerbCount, Arm: a.stage.Arm, Key: key, TTL: a.stage.TTL, Store: a.stage.Admin,
		DSN: a.gate.DSN, Name: a.Name, Times: times})
}

// Counted waits until the actor has counted.
func (a *Actor) Counted() Count {
	c := a.receiveWithin(countTimeout + replyTimeout).Counted
	for _, code := range c.Refused {
		if i := slices.Index(a.told, code); i >= 0 {
			a.told = slices.Delete(a.told, i, i+1)
			continue
		}
		a.record(Event{Kind: KindRefused, Code: code, Text: code.Name(), Story: "increments"})
	}
	if a.stage.err == nil && len(c.Refused)+c.Unknown > 0 {
		a.record(Event{Kind: KindRead, Text: fmt.Sprintf("had %d increments acknowledged, %d refused, %d without an answer",
			c.Acknowledged, len(c.Refused), c.Unknown)})
	}
	return c
}
