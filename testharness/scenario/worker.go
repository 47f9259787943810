package scenario

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fenceproxy/fenceproxy/fencing"
	"github.com/fenceproxy/fenceproxy/leases"
)

// Verb is what an actor is told to do.
type Verb string

// The verbs. Each is answered with one Reply before the next is read. VerbCount has
// others before it, which tell of its turns.
const (
	VerbLock    Verb = "lock"    // wait for the lock Key as Arm has it, hold it under a lease of TTL
	VerbHeld    Verb = "held"    // say whether the lock is still held, as far as the worker knows
	VerbConnect Verb = "connect" // open a session at DSN, tagged with Tag
	VerbExec    Verb = "exec"    // run SQL with Args in the extended protocol
	VerbSimple  Verb = "simple"  // run SQL in the simple protocol
	VerbBatch   Verb = "batch"   // run Batch in one pipeline, as one transaction
	VerbRelease Verb = "release" // give the locks back
	VerbDrop    Verb = "drop"    // the same, without a look whose they are
	VerbQueue   Verb = "queue"   // stand in line for the lock Key and don't wait; Renew the lease or not
	VerbCount   Verb = "count"   // increment the counter Times times, each under the lock Key, at DSN
)

// An Order is one line of JSON to a worker.
type Order struct {
	Verb  Verb          `json:"verb"`
	Arm   Arm           `json:"arm,omitempty"`
	Key   string        `json:"key,omitempty"`
	TTL   time.Duration `json:"ttl,omitempty"`
	Store string        `json:"store,omitempty"` // DSN of where expiring locks are
	DSN   string        `json:"dsn,omitempty"`
	Tag   []Hold        `json:"tag,omitempty"`
	SQL   string        `json:"sql,omitempty"`
	Args  []string      `json:"args,omitempty"`
	Batch []string      `json:"batch,omitempty"`
	Renew bool          `json:"renew,omitempty"`
	Times int           `json:"times,omitempty"`
	Name  string        `json:"name,omitempty"` // the session's application_name
}

// A Reply is one line of JSON from a worker. Code is the SQLSTATE if it was
// PostgreSQL or the proxy that said no, and WarningCode that of a WARNING.
type Reply struct {
	Token       fencing.Token `json:"token,omitempty"`
	Held        bool          `json:"held,omitempty"`
	Rows        [][]string    `json:"rows,omitempty"`
	Code        fencing.Code  `json:"code,omitempty"`
	Error       string        `json:"error,omitempty"`
	Warning     string        `json:"warning,omitempty"`
	WarningCode fencing.Code  `json:"warning_code,omitempty"`
	Counted     Count         `json:"counted,omitzero"`
	Turn        *Turn         `json:"turn,omitempty"` // of a count that goes on: no answer yet
}

// replyTimeout bounds one order, but for those that wait for a lock.
const replyTimeout = 20 * time.Second

// worker is the other end of an Actor: a process that takes orders.
type worker struct {
	etcd    *clientv3.Client
	prefix  string
	locks   []lock
	conn    *pgx.Conn
	warning *pgconn.Notice  // of the order at hand
	tell    func(any) error // what isn't the answer to an order yet
}

// Work takes orders from in and answers them on out until in ends. It is what
// the process of an actor does.
func Work(ctx context.Context, endpoints []string, prefix string, in io.Reader, out io.Writer) error {
	client, err := leases.NewClient(endpoints, nil)
	if err != nil {
		return err
	}
	defer client.Close()
	orders, replies := json.NewDecoder(in), json.NewEncoder(out)
	w := &worker{etcd: client, prefix: prefix, tell: replies.Encode}
	defer w.close()
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
	_ = w.release(ctx)
}

func (w *worker) carryOut(ctx context.Context, o Order) Reply {
	w.warning = nil
	r, err := w.try(ctx, o)
	if w.warning != nil {
		r.Warning, r.WarningCode = w.warning.Message, fencing.Code(w.warning.Code)
	}
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
		return Reply{Held: w.held()}, nil
	case VerbRelease:
		return Reply{}, w.release(ctx)
	case VerbDrop:
		return Reply{}, w.drop(ctx)
	case VerbQueue:
		return w.queue(ctx, o)
	case VerbCount:
		return w.count(ctx, o)
	case VerbConnect:
		return Reply{}, w.connect(ctx, o)
	case VerbExec:
		return w.query(ctx, pgx.QueryExecModeExec, o)
	case VerbSimple:
		return w.query(ctx, pgx.QueryExecModeSimpleProtocol, o)
	case VerbBatch:
		return Reply{}, w.batch(ctx, o.Batch)
	default:
		return Reply{}, fmt.Errorf("unknown verb %q", o.Verb)
	}
}

// lock waits until the lock is ours.
func (w *worker) lock(ctx context.Context, o Order) (Reply, error) {
	l, err := w.take(ctx, o)
	if err != nil || l == nil {
		return Reply{}, err
	}
	w.locks = append(w.locks, l)
	return Reply{Token: l.Token()}, nil
}

// take returns nil where nobody locks.
func (w *worker) take(ctx context.Context, o Order) (lock, error) {
	switch o.Arm {
	case ArmNone:
		return nil, nil
	case ArmExpiring:
		return takeExpiring(ctx, o.Store, o.Key, o.TTL)
	default:
		locker := leases.NewLocker(w.etcd)
		locker.Prefix, locker.TTL = w.prefix, o.TTL
		return locker.Acquire(ctx, o.Key)
	}
}

// held says whether all locks are still ours, as far as can be known here.
func (w *worker) held() bool {
	return len(w.locks) > 0 && !slices.ContainsFunc(w.locks, func(l lock) bool { return l.Err() != nil })
}

func (w *worker) release(ctx context.Context) error {
	var errs []error
	for _, l := range w.locks {
		errs = append(errs, l.Release(ctx))
	}
	w.locks = nil
	return errors.Join(errs...)
}

// drop is release by a program that doesn't look whose the locks are, where
// that can be.
func (w *worker) drop(ctx context.Context) error {
	var errs []error
	for _, l := range w.locks {
		end := l.Release
		if l, expiring := l.(*expiringLock); expiring {
			end = l.drop
		}
		if err := end(ctx); !errors.Is(err, leases.ErrLost) {
			errs = append(errs, err)
		}
	}
	w.locks = nil
	return errors.Join(errs...)
}

// queue stands in line as etcd's clients do, by a key of its own under a
// lease. Its create revision will be the token once all before it are gone.
func (w *worker) queue(ctx context.Context, o Order) (Reply, error) {
	lease, err := w.etcd.Grant(ctx, int64(o.TTL/time.Second))
	if err != nil {
		return Reply{}, fmt.Errorf("get a lease: %w", err)
	}
	if o.Renew {
		// What is renewed ends with this process.
		if _, err := w.etcd.KeepAlive(context.WithoutCancel(ctx), lease.ID); err != nil {
			return Reply{}, fmt.Errorf("renew the lease: %w", err)
		}
	}
	put, err := w.etcd.Put(ctx, fmt.Sprintf("%s/%x", leases.LockPrefix(w.prefix, o.Key), lease.ID), "", clientv3.WithLease(lease.ID))
	if err != nil {
		return Reply{}, fmt.Errorf("stand in line: %w", err)
	}
	return Reply{Token: fencing.Token(put.Header.Revision)}, nil
}

// connect opens a session that carries the tag as startup parameters, which
// is what PGOPTIONS does for programs that use libpq.
func (w *worker) connect(ctx context.Context, o Order) error {
	ctx, cancel := context.WithTimeout(ctx, replyTimeout)
	defer cancel()
	config, err := pgx.ParseConfig(o.DSN)
	if err != nil {
		return fmt.Errorf("parse DSN: %w", err)
	}
	if err := tagWith(config.RuntimeParams, o.Tag); err != nil {
		return err
	}
	config.RuntimeParams["application_name"] = o.Name
	config.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) { w.warning = n }
	if w.conn != nil {
		_ = w.conn.Close(ctx) // the one before may be dead
	}
	w.conn, err = pgx.ConnectConfig(ctx, config)
	return err
}

// tagWith sets the parameters that present a tag.
func tagWith(parameters map[string]string, tag []Hold) error {
	switch len(tag) {
	case 0:
		return nil
	case 1:
		parameters[fencing.SettingKey], parameters[fencing.SettingToken] = tag[0].Key, tag[0].Token.String()
		return nil
	}
	tokens := map[string]fencing.Token{}
	for _, h := range tag {
		tokens[h.Key] = h.Token
	}
	text, err := json.Marshal(tokens)
	if err != nil {
		return fmt.Errorf("write the tag: %w", err)
	}
	parameters[fencing.SettingTokens] = string(text)
	return nil
}

// batch runs statements that have no result, all sent at once.
func (w *worker) batch(ctx context.Context, statements []string) error {
	if w.conn == nil {
		return errNoSession
	}
	ctx, cancel := context.WithTimeout(ctx, replyTimeout)
	defer cancel()
	b := &pgx.Batch{}
	for _, sql := range statements {
		b.Queue(sql)
	}
	return w.conn.SendBatch(ctx, b).Close()
}

var errNoSession = errors.New("no session is open")

// query runs one statement and returns its rows as text.
func (w *worker) query(ctx context.Context, mode pgx.QueryExecMode, o Order) (Reply, error) {
	if w.conn == nil {
		return Reply{}, errNoSession
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
	if err := rows.Err(); err != nil {
		return r, err
	}
	if rows.CommandTag().String() == "ROLLBACK" && o.SQL == commit().SQL {
		return r, pgx.ErrTxCommitRollback
	}
	return r, nil
}
