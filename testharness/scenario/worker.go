package scenario

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fenceproxy/fenceproxy/fencing"
	"github.com/fenceproxy/fenceproxy/leases"
)

// Verb is what an actor is told to do.
type Verb string

// The verbs. Each is answered with one Reply before the next is read.
const (
	VerbLock    Verb = "lock"    // wait for the lock Key, hold it under a lease of TTL
	VerbHeld    Verb = "held"    // say whether the lock is still held, as far as the worker knows
	VerbConnect Verb = "connect" // open a session at DSN, tagged with the lock that is held
	VerbExec    Verb = "exec"    // run SQL with Args in the extended protocol
	VerbSimple  Verb = "simple"  // run SQL in the simple protocol
)

// An Order is one line of JSON to a worker.
type Order struct {
	Verb Verb          `json:"verb"`
	Key  string        `json:"key,omitempty"`
	TTL  time.Duration `json:"ttl,omitempty"`
	DSN  string        `json:"dsn,omitempty"`
	SQL  string        `json:"sql,omitempty"`
	Args []string      `json:"args,omitempty"`
}

// A Reply is one line of JSON from a worker. Code is the SQLSTATE if it was
// PostgreSQL or the proxy that said no.
type Reply struct {
	Token   fencing.Token `json:"token,omitempty"`
	Held    bool          `json:"held,omitempty"`
	Rows    [][]string    `json:"rows,omitempty"`
	Code    fencing.Code  `json:"code,omitempty"`
	Error   string        `json:"error,omitempty"`
	Warning string        `json:"warning,omitempty"`
}

// replyTimeout bounds one order, but for those that wait for a lock.
const replyTimeout = 20 * time.Second

// worker is the other end of an Actor: a process that takes orders.
type worker struct {
	etcd    *clientv3.Client
	prefix  string
	lease   *leases.Lease
	conn    *pgx.Conn
	warning string
}

// Work takes orders from in and answers them on out until in ends. It is what
// the process of an actor does.
func Work(ctx context.Context, endpoints []string, prefix string, in io.Reader, out io.Writer) error {
	client, err := leases.NewClient(endpoints, nil)
	if err != nil {
		return err
	}
	defer client.Close()
	w := &worker{etcd: client, prefix: prefix}
	defer w.close()
	orders, replies := json.NewDecoder(in), json.NewEncoder(out)
	for {
		var o Order
		if err := orders.Decode(&o); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("read order: %w", err)
		}
		if err := replies.Encode(w.carryOut(ctx, o)); err != nil {
			return fmt.Errorf("write reply: %w", err)
		}
	}
}

func (w *worker) close() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if w.conn != nil {
		_ = w.conn.Close(ctx)
	}
	if w.lease != nil {
		_ = w.lease.Release(ctx)
	}
}

func (w *worker) carryOut(ctx context.Context, o Order) Reply {
	w.warning = ""
	r, err := w.try(ctx, o)
	r.Warning = w.warning
	if err != nil {
		var refused *pgconn.PgError
		r.Error = err.Error()
		if errors.As(err, &refused) {
			r.Code, r.Error = fencing.Code(refused.Code), refused.Message
		}
	}
	return r
}

func (w *worker) try(ctx context.Context, o Order) (Reply, error) {
	switch o.Verb {
	case VerbLock:
		return w.lock(ctx, o)
	case VerbHeld:
		return Reply{Held: w.lease != nil && w.lease.Err() == nil}, nil
	case VerbConnect:
		return Reply{}, w.connect(ctx, o.DSN)
	case VerbExec:
		return w.query(ctx, pgx.QueryExecModeExec, o)
	case VerbSimple:
		return w.query(ctx, pgx.QueryExecModeSimpleProtocol, o)
	default:
		return Reply{}, fmt.Errorf("unknown verb %q", o.Verb)
	}
}

// lock waits in line until the lock is ours.
func (w *worker) lock(ctx context.Context, o Order) (Reply, error) {
	locker := leases.NewLocker(w.etcd)
	locker.Prefix, locker.TTL = w.prefix, o.TTL
	lease, err := locker.Acquire(ctx, o.Key)
	if err != nil {
		return Reply{}, err
	}
	w.lease = lease
	return Reply{Token: lease.Token()}, nil
}

// connect opens a session that carries the lock as startup parameters, which
// is what PGOPTIONS does for programs that use libpq.
func (w *worker) connect(ctx context.Context, dsn string) error {
	ctx, cancel := context.WithTimeout(ctx, replyTimeout)
	defer cancel()
	config, err := pgx.ParseConfig(dsn)
	if err != nil {
		return fmt.Errorf("parse DSN: %w", err)
	}
	if w.lease != nil {
		config.RuntimeParams[fencing.SettingKey] = w.lease.Key()
		config.RuntimeParams[fencing.SettingToken] = w.lease.Token().String()
	}
	config.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) { w.warning = n.Message }
	w.conn, err = pgx.ConnectConfig(ctx, config)
	return err
}

// query runs one statement and returns its rows as text.
func (w *worker) query(ctx context.Context, mode pgx.QueryExecMode, o Order) (Reply, error) {
	if w.conn == nil {
		return Reply{}, errors.New("no session is open")
	}
	ctx, cancel := context.WithTimeout(ctx, replyTimeout)
	defer cancel()
	args := []any{mode}
	for _, a := range o.Args {
		args = append(args, a)
	}
	rows, err := w.conn.Query(ctx, o.SQL, args...)
	if err != nil {
		return Reply{}, err
	}
	var r Reply
	for rows.Next() {
		values, err := rows.Values()
		if err != nil {
			rows.Close()
			return Reply{}, err
		}
		row := make([]string, len(values))
		for i, v := range values {
			row[i] = fmt.Sprint(v)
		}
		r.Rows = append(r.Rows, row)
	}
	return r, rows.Err()
}
