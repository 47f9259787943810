package chaos

import (
	"errors"
	"io"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fenceproxy/fenceproxy/fencing"
	"github.com/fenceproxy/fenceproxy/testharness/dial"
	"github.com/fenceproxy/fenceproxy/testharness/history"
	"github.com/fenceproxy/fenceproxy/testharness/postgres"
)

// A refusal is what must have left nothing behind, so nothing is called one that
// may have.
func TestSettle(t *testing.T) {
	code := func(code string) error { return &pgconn.PgError{Code: code, Message: "m"} }
	cases := []struct {
		name string
		err  error
		want history.Outcome
	}{
		{"no error", nil, history.OutcomeOK},
		{"stale", code("LF001"), history.OutcomeRefused},
		{"evicted", code("LF005"), history.OutcomeRefused},
		{"a duplicate", code("23505"), history.OutcomeRefused},
		{"the server shuts down, perhaps while the commit waits for the standby", code("57P01"), history.OutcomeUnknown},
		{"a backend crashed", code("57P02"), history.OutcomeUnknown},
		{"the server starts up", code("57P03"), history.OutcomeUnknown},
		{"the proxy lost PostgreSQL", code("08006"), history.OutcomeUnknown},
		{"the connection broke", io.ErrUnexpectedEOF, history.OutcomeUnknown},
		{"a COMMIT that was answered ROLLBACK", errors.New("COMMIT was answered ROLLBACK"), history.OutcomeUnknown},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			op := &history.Op{}
			settle(op, c.err)
			if op.Outcome != c.want {
				t.Errorf("got %s, want %s", op.Outcome, c.want)
			}
		})
	}
}

// A worker goes on in a session only if it has the tag that it presents.
func TestSession_After(t *testing.T) {
	pg := postgres.New(t, postgres.Options{})
	for name, c := range map[string]struct {
		op   history.Op
		want bool
	}{
		"a claim was accepted":           {history.Op{Kind: history.KindClaim, Outcome: history.OutcomeOK}, true},
		"a claim was refused":            {history.Op{Kind: history.KindClaim, Outcome: history.OutcomeRefused, Code: fencing.CodeNotHolder}, true},
		"a claim never left its client":  {history.Op{Kind: history.KindClaim, Outcome: history.OutcomeRefused}, false},
		"a read never left its client":   {history.Op{Kind: history.KindRead, Outcome: history.OutcomeRefused}, true},
		"the session was ended for good": {history.Op{Kind: history.KindWrite, Outcome: history.OutcomeRefused, Code: fencing.CodeEvicted}, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := &session{conn: dial.Connect(t, pg.DSN(postgres.Superuser, "postgres"))}
			if got := s.after(&c.op) != nil; got != c.want || s.conn.IsClosed() == c.want {
				t.Errorf("goes on: %t, closed: %t, want %t", got, s.conn.IsClosed(), c.want)
			}
		})
	}
}

func TestLockOf(t *testing.T) {
	cases := []struct {
		name, place, want string
		direct            bool
	}{
		{"plain", "/fenceproxy/locks/order:1/3f", "order:1", true},
		{"escaped", "/fenceproxy/locks/a%2Fb/3f", "a/b", true},
		{"further down", "/fenceproxy/locks/a/b/3f", "", false},
		{"no place", "/fenceproxy/locks/a", "", false},
		{"another prefix", "/other/a/3f", "", false},
		{"the last word", lastKey, "", false},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if got, direct := lockOf(c.place); got != c.want || direct != c.direct {
				t.Errorf("got %q, %v, want %q, %v", got, direct, c.want, c.direct)
			}
		})
	}
}
