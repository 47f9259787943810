package chaos

import (
	"context"
	"errors"
	"net"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fenceproxy/fenceproxy/fencing"
	"github.com/fenceproxy/fenceproxy/testharness/history"
)

const (
	// connectTimeout bounds a login, which a claim may be part of.
	connectTimeout = 7 * time.Second
	// requestTimeout bounds anything else that is asked of the database.
	requestTimeout = 8 * time.Second
)

// A session is a connection to the database, and the tag that it presents.
type session struct {
	conn *pgx.Conn
	gate string
	open history.Moment // when it was opened
	tag  []fencing.Pair
	// local says that the tag is presented anew in each transaction.
	local bool
	// claimed says that the tag was acknowledged, and stays.
	claimed bool
	// stall lets some time pass in the middle of a block, now and then.
	stall   func()
	warning *pgconn.Notice // a refused tag at startup, which is no error
}

// connecting marks the context of a login. A connection that is given up has
// its driver send a cancel request, which it dials for too: without one,
// nobody here cancels anything that waits for the standby and so makes a commit
// be seen that may be lost.
type connecting struct{}

var errNoCancel = errors.New("cancel requests aren't sent here")

// open logs in, with startup parameters.
func open(ctx context.Context, gate string, params map[string]string) (*session, error) {
	config, err := pgx.ParseConfig(gate)
	if err != nil {
		return nil, err
	}
	for name, value := range params {
		config.RuntimeParams[name] = value
	}
	s := &session{gate: gate, open: history.Now()}
	config.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) {
		if strings.HasPrefix(n.Code, "LF") {
			s.warning = n
		}
	}
	dial := config.DialFunc
	config.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		if ctx.Value(connecting{}) == nil {
			return nil, errNoCancel
		}
		return dial(ctx, network, addr)
	}
	ctx, cancel := finishing(context.WithValue(ctx, connecting{}, true), connectTimeout)
	defer cancel()
	if s.conn, err = pgx.ConnectConfig(ctx, config); err != nil {
		return nil, err
	}
	return s, nil
}

// finishing bounds a request, and lets it be answered when ctx ends: what has
// been asked is waited for.
func finishing(ctx context.Context, within time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), within)
}

// close gives the connection up.
func (s *session) close() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	s.conn.Close(ctx)
}

// after returns the session behind an operation, or nil and closes it if it is
// lost, has been evicted, or has a transaction left open; or if a claim never left
// it, for then it has the tag that it had, or none.
func (s *session) after(op *history.Op) *session {
	if op.Kind == history.KindClaim && op.Unsent() || s.conn.IsClosed() || s.conn.PgConn().TxStatus() != 'I' || op.Code == fencing.CodeEvicted {
		s.close()
		return nil
	}
	return s
}

// exec runs SQL in the simple protocol.
func (s *session) exec(ctx context.Context, sql string) error {
	_, err := s.conn.Exec(ctx, sql, pgx.QueryExecModeSimpleProtocol)
	return err
}

// settle writes down what came of an operation. What a server says that goes
// down or loses a connection tells nothing of what was done before; an error of
// the driver's that nothing was sent after tells that it wasn't.
func settle(op *history.Op, err error) {
	var refused *pgconn.PgError
	switch {
	case err == nil:
		op.Outcome = history.OutcomeOK
	case errors.As(err, &refused):
		op.Code, op.Text = fencing.Code(refused.Code), refused.Message
		if !history.Lost(refused.Code) {
			op.Outcome = history.OutcomeRefused
		}
	default:
		op.Text = err.Error()
		if pgconn.SafeToRetry(err) && op.Form != formStartup {
			op.Outcome = history.OutcomeRefused
		}
	}
}
