package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/fenceproxy/fenceproxy/proxy/console"
	"github.com/fenceproxy/fenceproxy/testharness/poll"
	"github.com/fenceproxy/fenceproxy/testharness/postgres"
	"github.com/fenceproxy/fenceproxy/testharness/stack"
)

// However a driver asks, it is answered the same: by statements that it has prepared and
// keeps, by those that it describes first, with types of its own, and by texts.
func TestServe_ConsoleModes(t *testing.T) {
	s := stack.New(t, "app")
	p := serveReloading(t, s, "admin_roles: "+stack.RoleApp+"\n")
	lease := hold(t, s.Client, "order:1")
	exec1(t, open(t, s.ProxyDSN(p.Addr, stack.RoleApp, "app"), tagged("order:1", lease.Token())...), "CREATE TABLE t (i int)")
	for _, mode := range []string{"cache_statement", "cache_describe", "describe_exec", "exec", "simple_protocol"} {
		t.Run(mode, func(t *testing.T) {
			conn := open(t, s.ProxyDSN(p.Addr, stack.RoleApp, console.DefaultDatabase)+"&default_query_exec_mode="+mode)
			victim := open(t, s.ProxyDSN(p.Addr, stack.RoleApp, "app"))
			for _, c := range []struct {
				sql  string
				args []any
				want string // SQLSTATE
				some bool   // there are rows
			}{
				{"SHOW KEYS", nil, "", true}, {"SHOW KEYS $1 LIMIT $2", []any{"order:", 5}, "", true}, {"SHOW KEYS $1", []any{"x"}, "", false},
				{"SHOW SESSIONS LIMIT $1", []any{int64(9)}, "", true}, {"SHOW MARKS", nil, "", true},
				{"SHOW MARKS $1 AFTER $2 LIMIT $3", []any{"order:", "order:0", 2}, "", true}, {"SHOW MARKS AFTER $1", []any{"order:1"}, "", false},
				{"SHOW REJECTIONS $1 LIMIT $2", []any{"o", 1}, "", false}, {"SHOW STATS", nil, "", true}, {"SHOW CONFIG", nil, "", true},
				{"SHOW VERSION", nil, "", true}, {"SHOW HELP", nil, "", true}, {"HELP", nil, "", true}, {"SELECT 1", nil, "", true},
				{"RELOAD", nil, "", false}, {"KILL $1", []any{int64(victim.PgConn().PID())}, "", false}, {"KILL $1", []any{int64(1)}, "42704", false},
				{"KILL SESSION $1", []any{int64(1 << 40)}, "42704", false}, {"SHOW KEYS LIMIT $1", []any{int64(-1)}, "22023", false},
				{"SHWO KEYS", nil, "42601", false}, {"SELECT * FROM t", nil, "0A000", false}, {"COPY t FROM STDIN", nil, "0A000", false},
			} {
				for range 2 { // the second time it may be kept
					if c.sql == "KILL $1" && c.want == "" && victim.IsClosed() {
						break
					}
					rows, err := asked(t, conn, c.sql, c.args...)
					if code(err) != c.want || err != nil && c.want == "" || (rows > 0) != c.some {
						t.Errorf("%s %v: got %d rows and %v, want rows %v and %q", c.sql, c.args, rows, err, c.some, c.want)
					}
					if c.sql == "KILL $1" && c.want == "" {
						if _, err := victim.Exec(t.Context(), "SELECT 1"); err == nil {
							t.Error("the victim goes on")
						}
						victim.Close(context.Background())
					}
				}
			}
			if mode == "simple_protocol" || mode == "exec" {
				batch(t, conn)
			} else {
				pipeline(t, conn)
			}
			if _, err := conn.CopyFrom(t.Context(), pgx.Identifier{"t"}, []string{"i"}, pgx.CopyFromRows([][]any{{1}})); code(err) != "0A000" {
				t.Errorf("COPY: got %v, want 0A000", err)
			}
			tx, err := conn.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if _, err := asked(t, tx, "nonsense"); code(err) != "42601" {
				t.Errorf("in a transaction: got %v, want 42601", err)
			}
			if _, err := asked(t, tx, "SHOW VERSION"); code(err) != "25P02" {
				t.Errorf("in one that failed: got %v, want 25P02", err)
			}
			if err := tx.Commit(t.Context()); !errors.Is(err, pgx.ErrTxCommitRollback) {
				t.Errorf("its COMMIT: got %v, want a ROLLBACK", err)
			}
			exec1(t, conn, "SHOW VERSION")
		})
	}
}

// asked returns how many rows there are.
func asked(t *testing.T, of interface {
	Query(context.Context, string, ...any) (pgx.Rows, error)
}, sql string, args ...any) (int, error) {
	t.Helper()
	found, err := of.Query(t.Context(), sql, args...)
	if err != nil {
		return 0, err
	}
	rows, err := pgx.CollectRows(found, pgx.RowToMap)
	return len(rows), err
}

// batch sends several statements at once, with a bad one among them.
func batch(t *testing.T, conn *pgx.Conn) {
	t.Helper()
	b := &pgx.Batch{}
	b.Queue("SHOW VERSION")
	b.Queue("nonsense")
	b.Queue("SHOW HELP")
	sent := conn.SendBatch(t.Context(), b)
	var got []string
	for range 3 {
		_, err := sent.Exec()
		got = append(got, code(err))
	}
	sent.Close()
	if fmt.Sprint(got) != "[ 42601 42601]" {
		t.Errorf("a batch: got %q, want the second to fail, and the third with it", got)
	}
}

// pipeline sends two segments at once, the first with a fault in the middle.
func pipeline(t *testing.T, conn *pgx.Conn) {
	t.Helper()
	pipe := conn.PgConn().StartPipeline(t.Context())
	pipe.SendQueryParams("SHOW VERSION", nil, nil, nil, nil)
	pipe.SendPrepare("s", "SHOW nonsense", nil)
	pipe.SendQueryParams("SHOW VERSION", nil, nil, nil, nil)
	if err := pipe.Sync(); err != nil {
		t.Fatal(err)
	}
	pipe.SendPrepare("s", "SHOW HELP", nil)
	pipe.SendQueryPrepared("s", nil, nil, []int16{1})
	pipe.SendDeallocate("s")
	if err := pipe.Sync(); err != nil {
		t.Fatal(err)
	}
	var got []string
	for {
		result, err := pipe.GetResults()
		switch r := result.(type) {
		case nil:
			if err == nil {
				pipe.Close()
				if want := "SHOW 42601 sync prepared SHOW closed sync"; strings.Join(got, " ") != want {
					t.Errorf("a pipeline: got %q, want %q", strings.Join(got, " "), want)
				}
				return
			}
			got = append(got, code(err))
		case *pgconn.ResultReader:
			tag, err := r.Close()
			got = append(got, tag.String()+code(err))
		case *pgconn.StatementDescription:
			got = append(got, "prepared")
		case *pgconn.PipelineSync:
			got = append(got, "sync")
		case *pgconn.CloseComplete:
			got = append(got, "closed")
		}
		if len(got) > 20 {
			t.Fatalf("a pipeline without an end: %v", got)
		}
	}
}

// A cancel request breaks off what the console waits for, and nothing else.
func TestServe_ConsoleCancel(t *testing.T) {
	s := stack.New(t, "app")
	p := serveOn(t, s, "--admin-roles", stack.RoleApp)
	lock := open(t, s.DSN(postgres.Superuser, "app"))
	exec1(t, lock, "BEGIN; LOCK TABLE fence.mark")
	conn := open(t, s.ProxyDSN(p.Addr, stack.RoleApp, console.DefaultDatabase))
	answer := make(chan error, 1)
	go func() {
		_, err := conn.Exec(t.Context(), "SHOW MARKS")
		answer <- err
	}()
	poll.Until(t, "an answer", func() bool {
		if err := conn.PgConn().CancelRequest(t.Context()); err != nil { // it may wait for nothing yet, or no more
			t.Fatal(err)
		}
		select {
		case err := <-answer:
			if code(err) != "57014" {
				t.Errorf("got %v, want 57014", err)
			}
			return true
		default:
			return false
		}
	})
	exec1(t, lock, "ROLLBACK")
	exec1(t, conn, "SHOW MARKS")
}

// What drivers seldom send is answered over a socket as well: a statement is described
// before it is bound, its rows are fetched in parts, a Flush is enough for an answer, and
// a function call has its own end.
func TestServe_ConsoleWire(t *testing.T) {
	s := stack.New(t, "app")
	p := serveOn(t, s, "--admin-roles", stack.RoleApp)
	taken, err := open(t, s.ProxyDSN(p.Addr, stack.RoleApp, console.DefaultDatabase)).PgConn().Hijack()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { taken.Conn.Close() })
	if err := taken.Conn.SetDeadline(time.Now().Add(poll.Deadline)); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		send []pgproto3.FrontendMessage
		want string
	}{
		{[]pgproto3.FrontendMessage{&pgproto3.Parse{Name: "s", Query: "SHOW HELP"}, &pgproto3.Flush{}}, "ParseComplete"},
		{[]pgproto3.FrontendMessage{
			&pgproto3.Describe{ObjectType: 'S', Name: "s"}, &pgproto3.Bind{DestinationPortal: "p", PreparedStatement: "s"},
			&pgproto3.Execute{Portal: "p", MaxRows: 2}, &pgproto3.Execute{Portal: "p", MaxRows: 1}, &pgproto3.Close{ObjectType: 'P', Name: "p"}, &pgproto3.Sync{},
		}, "ParameterDescription RowDescription BindComplete DataRow DataRow PortalSuspended DataRow PortalSuspended CloseComplete ReadyForQuery"},
		{[]pgproto3.FrontendMessage{&pgproto3.FunctionCall{Function: 1}}, "ErrorResponse ReadyForQuery"},
		{[]pgproto3.FrontendMessage{&pgproto3.Execute{Portal: "p"}, &pgproto3.Query{String: "SHOW VERSION"}, &pgproto3.Sync{}, &pgproto3.Query{String: "COPY t FROM STDIN"}},
			"ErrorResponse ReadyForQuery ErrorResponse ReadyForQuery"},
	} {
		for _, m := range c.send {
			taken.Frontend.Send(m)
		}
		if err := taken.Frontend.Flush(); err != nil {
			t.Fatal(err)
		}
		var got []string
		for range strings.Fields(c.want) {
			m, err := taken.Frontend.Receive()
			if err != nil {
				t.Fatalf("behind %v: %v", got, err)
			}
			got = append(got, strings.TrimPrefix(fmt.Sprintf("%T", m), "*pgproto3."))
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("got  %v\nwant %s", got, c.want)
		}
	}
}
