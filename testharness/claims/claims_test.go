package claims_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/fenceproxy/fenceproxy/fencing"
	"github.com/fenceproxy/fenceproxy/leases"
	"github.com/fenceproxy/fenceproxy/testharness/environ"
	"github.com/fenceproxy/fenceproxy/testharness/postgres"
	"github.com/fenceproxy/fenceproxy/testharness/stack"
)

const database = "app"

// newStack starts servers that are as durable as real ones.
func newStack(b *testing.B) *stack.Stack {
	b.Helper()
	s, err := stack.Start(b.Context(), stack.Options{Postgres: postgres.Options{Durable: true, Config: []string{"shared_buffers = 256MB", "jit = off"}}})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := s.Close(); err != nil {
			b.Error(err)
		}
	})
	if err := errors.Join(s.CreateDatabase(b.Context(), database), s.Install(b.Context(), database)); err != nil {
		b.Fatal(err)
	}
	return s
}

// claimer returns what a proxy claims with.
func claimer(b *testing.B, s *stack.Stack, database string, etcd *clientv3.Client) *fencing.Claimer {
	b.Helper()
	store, err := fencing.NewStore(s.DSN(stack.RoleFence, database))
	if err != nil {
		b.Fatal(err)
	}
	c := fencing.NewClaimer(store, leases.NewAuthority(etcd), nil)
	b.Cleanup(func() {
		c.Close()
		store.Close()
	})
	return c
}

// BenchmarkMarks measures a check and a claim beside 1,000 marks and beside
// MARKS of them, and then lets a proxy remove them all, with claims beside it.
func BenchmarkMarks(b *testing.B) {
	n := environ.Int(b, "MARKS", 1_000_000)
	if n < 1 {
		b.Fatalf("MARKS is %d, and a number above 0 is expected", n)
	}
	s := newStack(b)
	c := claimer(b, s, database, s.Client)
	root, err := pgx.Connect(b.Context(), s.DSN(postgres.Superuser, database))
	if err != nil {
		b.Fatal(err)
	}
	defer root.Close(context.Background())
	m := &measure{b: b, stack: s, claimer: c, root: root}
	m.hold()
	for b.Loop() {
		m.fill(1, 1000)
		m.report("few")
		m.fill(1001, n)
		m.report("many")
		m.remove(n)
		m.report("removed")
		m.fill(1, n)
		b.ReportMetric(m.size(), "MB-after-filling-again")
	}
}

// A measure is the servers of one benchmark, and a lock that is held.
type measure struct {
	b       *testing.B
	stack   *stack.Stack
	claimer *fencing.Claimer
	root    *pgx.Conn
	session *concurrency.Session
	pair    fencing.Pair
}

// hold acquires a lock and claims it.
func (m *measure) hold() {
	m.b.Helper()
	if m.session == nil {
		var err error
		if m.session, err = concurrency.NewSession(m.stack.Client); err != nil {
			m.b.Fatal(err)
		}
	}
	mutex := concurrency.NewMutex(m.session, leases.DefaultPrefix+"held")
	if err := mutex.Lock(m.b.Context()); err != nil {
		m.b.Fatal(err)
	}
	m.pair = fencing.Pair{Key: "held", Token: fencing.Token(mutex.Header().Revision)}
	if err := m.claimer.Claim(m.b.Context(), database, m.pair); err != nil {
		m.b.Fatal(err)
	}
}

// exec runs statements as the superuser.
func (m *measure) exec(sql string) {
	m.b.Helper()
	if _, err := m.root.Exec(m.b.Context(), sql, pgx.QueryExecModeSimpleProtocol); err != nil {
		m.b.Fatal(err)
	}
}

// fill makes marks as claims would have, in no order of their keys.
func (m *measure) fill(from, to int) {
	m.b.Helper()
	m.exec(fmt.Sprintf(`INSERT INTO fence.mark SELECT 'order:' || md5(i::text), 1, '/fenceproxy/locks/order/' || i, 1, now() - interval '60 days', 'test'
		FROM generate_series(%d, %d) AS i; ANALYZE fence.mark`, from, to))
}

// report tells what a check and a claim take now, and how large the table is.
func (m *measure) report(when string) {
	m.b.Helper()
	m.exec(fmt.Sprintf("SET fence.key = 'held'; SET fence.token = %d", m.pair.Token))
	const n = 3000
	began := time.Now()
	for range n {
		if _, err := m.root.Exec(m.b.Context(), "SELECT fence.check()"); err != nil {
			m.b.Fatal(err)
		}
	}
	m.b.ReportMetric(float64(time.Since(began).Microseconds())/n, "µs/check-"+when)
	began = time.Now()
	const claims = 300
	for range claims {
		if _, err := m.stack.Client.Delete(m.b.Context(), leases.DefaultPrefix+"held/", clientv3.WithPrefix()); err != nil {
			m.b.Fatal(err)
		}
		m.hold()
	}
	m.b.ReportMetric(float64(time.Since(began).Microseconds())/claims, "µs/lock+claim-"+when)
	m.b.ReportMetric(m.size(), "MB-"+when)
}

// remove lets a proxy remove all old marks, without its pauses.
func (m *measure) remove(n int) {
	m.b.Helper()
	r := fencing.NewRetention(m.claimer.Store, leases.NewAuthority(m.stack.Client))
	r.Pause = 0
	began := time.Now()
	gone, err := r.Sweep(m.b.Context(), database)
	if err != nil || gone != n {
		m.b.Fatalf("got %d marks removed, %v, want %d", gone, err, n)
	}
	m.b.ReportMetric(float64(gone)/time.Since(began).Seconds(), "removed/s")
	m.exec("VACUUM fence.mark") // which autovacuum would do
}

// size is the table's, with its indexes.
func (m *measure) size() (mb float64) {
	m.b.Helper()
	if err := m.root.QueryRow(m.b.Context(), "SELECT pg_total_relation_size('fence.mark') / 1e6").Scan(&mb); err != nil {
		m.b.Fatal(err)
	}
	return mb
}
