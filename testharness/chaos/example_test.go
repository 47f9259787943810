package chaos_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/jackc/pgx/v5"

	"github.com/fenceproxy/fenceproxy/fencing"
	"github.com/fenceproxy/fenceproxy/leases"
	"github.com/fenceproxy/fenceproxy/testharness/chaos"
	"github.com/fenceproxy/fenceproxy/testharness/fault"
	"github.com/fenceproxy/fenceproxy/testharness/history"
	"github.com/fenceproxy/fenceproxy/testharness/history/check"
	"github.com/fenceproxy/fenceproxy/testharness/stack"
)

// A workload of one's own, on a stack with one link that is cut in the middle:
// a worker records what it asks and is answered, the watcher what etcd has to
// say, and the checkers judge.
func Example() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "fenceproxy-example-")
	must(err)
	defer os.RemoveAll(dir)
	file, err := os.Create(filepath.Join(dir, "mine.jsonl"))
	must(err)
	defer file.Close()
	record := history.NewRecorder("mine", file)

	s, err := stack.Start(ctx, stack.Options{})
	must(err)
	defer s.Close()
	must(s.CreateDatabase(ctx, "app"))
	must(s.Install(ctx, "app"))
	proxy, err := s.StartProxy("app", "", nil)
	must(err)
	link, err := fault.NewLink(proxy.Addr())
	must(err)
	defer link.Close()
	watcher := chaos.Watch(ctx, s.Client, record)

	lease, err := leases.NewLocker(s.Client).Acquire(ctx, "order:1")
	must(err)
	tag := fencing.Pair{Key: lease.Key(), Token: lease.Token()}
	conn, err := pgx.Connect(ctx, s.ProxyDSN(link.Addr(), stack.RoleApp, "app"))
	must(err)
	ask := func(kind history.Kind, rows []history.Row, sql string, args ...any) {
		op := &history.Op{Kind: kind, Tag: []fencing.Pair{tag}, Rows: rows}
		record.Begin(op)
		if _, err := conn.Exec(ctx, sql, args...); err == nil {
			op.Outcome = history.OutcomeOK
		} // else nobody knows, since it is the connection that breaks here
		record.End(op)
	}
	ask(history.KindClaim, nil, "SELECT set_config('fence.key', $1, false), set_config('fence.token', $2, false)", tag.Key, tag.Token.String())
	_, err = conn.Exec(ctx, "CREATE TABLE entry (id bigint, key text, token bigint)")
	must(err)
	for id := range int64(3) {
		if id == 2 {
			link.Set(fault.Cut)
		}
		ask(history.KindWrite, []history.Row{{ID: id, Key: tag.Key, Token: tag.Token}}, "INSERT INTO entry VALUES ($1, $2, $3)", id, tag.Key, int64(tag.Token))
	}

	must(lease.Release(ctx))
	must(watcher.Finish(ctx))
	must(proxy.Close())
	record.Add(history.Record{Tables: tables(ctx, s)})
	must(record.Err())
	h, err := history.Load(dir)
	must(err)
	for i := range h.Ops {
		fmt.Println(h.Ops[i].Kind, h.Ops[i].Outcome)
	}
	fmt.Println("kept:", check.Check(h, check.NewLimits()).OK())
	// Output:
	// claim ok
	// write ok
	// write ok
	// write unknown
	// kept: true
}

// tables reads what is there at the end.
func tables(ctx context.Context, s *stack.Stack) *history.Tables {
	conn, err := pgx.Connect(ctx, s.DSN(stack.RoleApp, "app"))
	must(err)
	defer conn.Close(ctx)
	rows, err := conn.Query(ctx, "SELECT id, key, token FROM entry")
	must(err)
	t := &history.Tables{}
	t.Rows, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (r history.Row, err error) {
		err = row.Scan(&r.ID, &r.Key, &r.Token)
		return r, err
	})
	must(err)
	return t
}

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
