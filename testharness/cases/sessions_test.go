package cases_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fenceproxy/fenceproxy/fencing"
	"github.com/fenceproxy/fenceproxy/testharness/samples"
	"github.com/fenceproxy/fenceproxy/testharness/stack"
)

// takenOver has a lock change hands, and the next holder claim through the
// other proxy.
func (r *rig) takenOver(key string, from fencing.Token) (next fencing.Token) {
	r.t.Helper()
	next = r.hold(key, time.Minute).Token()
	if next <= from {
		r.t.Fatalf("got token %d after %d", next, from)
	}
	r.tagged(r.other, key, next)
	return next
}

// Case 7: etcd takes a live holder's lease away, and nobody else wants the lock.
// Nobody can have overtaken the holder, so it goes on until somebody does; what
// has not been verified before isn't any more.
func TestCase7_LeaseRevoked(t *testing.T) {
	r := newRig(t)
	lease := r.hold("a", time.Minute)
	conn := r.tagged(r.first, "a", lease.Token())
	r.loses(lease)
	for _, p := range protocols() {
		accepted(t, "a write without the lease", p.run(conn, "INSERT INTO t VALUES (1, 'a')"))
	}
	accepted(t, "a new session where it is known", extended.run(r.tagged(r.first, "a", lease.Token()), "INSERT INTO t VALUES (1, 'a')"))
	refused(t, "a new session where it is not", tag(r.session(r.other), "a", lease.Token()), fencing.CodeNotHolder, "nobody holds the lock")
	r.wantMark("a", lease.Token())
	next := r.takenOver("a", lease.Token())
	refused(t, "a write after the next claim", extended.run(conn, "INSERT INTO t VALUES (2, 'a')"), fencing.CodeStale)
	r.wantRows("1 a, 1 a, 1 a")
	r.wantMark("a", next)
}

// Case 10: an application reaches for the marks, and an operator takes them
// away: the one has no right to, the other leaves nothing that is let through.
func TestCase10_MarksTakenAway(t *testing.T) {
	r := newRig(t)
	holder := r.hold("a", time.Minute)
	conn := r.tagged(r.first, "a", holder.Token())
	for _, sql := range []string{
		"UPDATE fence.mark SET token = 1", "DELETE FROM fence.mark", "TRUNCATE fence.mark", "DROP TABLE fence.mark", "DROP SCHEMA fence CASCADE",
		"SELECT fence.claim('a', 1, '', '', 1, 1, '')",
	} {
		for _, p := range protocols() {
			refused(t, sql, p.run(conn, sql), "42501")
		}
	}
	r.wantMark("a", holder.Token())
	for _, gone := range []struct {
		sql  string
		code fencing.Code
		mend func()
	}{
		{"DELETE FROM fence.mark", fencing.CodeNotHolder, func() { r.tagged(r.other, "a", holder.Token()) }},
		{"TRUNCATE fence.mark", fencing.CodeNotHolder, func() { r.tagged(r.other, "a", holder.Token()) }},
		{"DROP SCHEMA fence CASCADE", fencing.CodeNotInstalled, func() {
			if err := r.Install(context.Background(), "app"); err != nil {
				t.Fatal(err)
			}
			r.tagged(r.other, "a", holder.Token())
		}},
	} {
		r.schemaOwner(gone.sql)
		for _, p := range protocols() {
			refused(t, "a write after "+gone.sql, p.run(conn, "INSERT INTO t VALUES (-1, 'unchecked')"), gone.code)
		}
		gone.mend()
		accepted(t, "the holder's write when it is mended", extended.run(conn, "INSERT INTO t VALUES (1, 'a')"))
	}
	r.wantRows("1 a, 1 a, 1 a")
	r.wantMark("a", holder.Token())
}

// Case 15: whoever gets a pooled connection next has nothing to do with the
// lock of the one before, which has been lost meanwhile.
func TestCase15_PooledConnection(t *testing.T) {
	r := newRig(t)
	for i, c := range []struct{ begin, set, end string }{
		{"BEGIN", "SET LOCAL fence.key = '%s'; SET LOCAL fence.token = %d", "COMMIT"},
		{"BEGIN", "SET LOCAL fence.key = '%s'; SET LOCAL fence.token = %d", "ROLLBACK"},
		{"SELECT 1", "SET fence.key = '%s'; SET fence.token = %d", "DISCARD ALL"},
		{"SELECT 1", "SET fence.key = '%s'; SET fence.token = %d", "RESET ALL"},
		{"BEGIN", "SELECT set_config('fence.key', '%s', true), set_config('fence.token', '%d', true)", "COMMIT"},
	} {
		t.Run(c.set+"/"+c.end, func(t *testing.T) {
			r := r.on(t)
			r.other = r.first // whose eviction finds the connection, if anybody's does
			key := fmt.Sprintf("pooled:%d", i)
			lease := r.hold(key, time.Minute)
			pool := r.pool()
			defer pool.Close()
			one, err := pool.Acquire(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			backend := text(t, one.Conn(), "SELECT pg_backend_pid()::text")
			for _, sql := range []string{c.begin, fmt.Sprintf(c.set, key, lease.Token()), "INSERT INTO t VALUES (1, 'holder')", c.end} {
				must(t, one.Conn(), sql)
			}
			one.Release()
			r.loses(lease)
			r.takenOver(key, lease.Token())
			for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeSimpleProtocol, pgx.QueryExecModeExec} {
				var shown string
				if err := pool.QueryRow(t.Context(), "SELECT concat(pg_backend_pid(), current_setting('fence.key', true), current_setting('fence.token', true))", mode).Scan(&shown); err != nil || shown != backend {
					t.Errorf("the next user: got backend and tag %q, %v, want the same backend, %s, and no tag", shown, err, backend)
				}
				_, err := pool.Exec(t.Context(), "INSERT INTO t VALUES (2, 'next user')", mode)
				accepted(t, "the next user's write", err)
			}
			want := "1 holder, 2 next user, 2 next user"
			if c.end == "ROLLBACK" {
				want = "2 next user, 2 next user"
			}
			r.wantRows(want)
		})
	}
}

// pool is a pool of one connection.
func (r *rig) pool() *pgxpool.Pool {
	r.t.Helper()
	config, err := pgxpool.ParseConfig(r.ProxyDSN(r.first.Addr(), stack.RoleApp, "app"))
	if err != nil {
		r.t.Fatal(err)
	}
	config.MaxConns = 1
	config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol
	pool, err := pgxpool.NewWithConfig(r.t.Context(), config)
	if err != nil {
		r.t.Fatal(err)
	}
	return pool
}

// Case 16: a tag that was set in a transaction, or behind a savepoint, goes
// when that is rolled back, and the one before it counts again: here it has
// been superseded meanwhile.
func TestCase16_TagRolledBack(t *testing.T) {
	r := newRig(t)
	for i, c := range []struct {
		name         string
		begin, after []string
	}{
		{"transaction", []string{"BEGIN"}, []string{"ROLLBACK"}},
		{"failed transaction", []string{"BEGIN"}, []string{"SELECT 1/0", "COMMIT"}},
		{"savepoint", []string{"BEGIN", "SAVEPOINT s"}, []string{"ROLLBACK TO s"}},
		{"transaction for itself", []string{"BEGIN"}, []string{"COMMIT"}},
	} {
		for _, p := range protocols() {
			t.Run(c.name+"/"+string(p), func(t *testing.T) {
				r := r.on(t)
				old, inner := fmt.Sprintf("old:%d:%s", i, p), fmt.Sprintf("inner:%d:%s", i, p)
				was, within := r.hold(old, time.Minute), r.hold(inner, time.Minute)
				conn := r.tagged(r.first, old, was.Token())
				local := ""
				if c.name == "transaction for itself" {
					local = "LOCAL "
				}
				// In the block nothing is written under the old tag, so that a
				// claim has nothing to end.
				steps := append(append([]string{}, c.begin...),
					fmt.Sprintf("SET %sfence.key = '%s'", local, inner), fmt.Sprintf("SET %sfence.token = %d", local, within.Token()),
					"INSERT INTO t VALUES (1, 'within')")
				for _, sql := range append(steps, c.after...) {
					if err := p.run(conn, sql); err != nil && !strings.HasPrefix(sql, "SELECT 1/0") {
						t.Fatalf("%s: %v", sql, err)
					}
				}
				if got := text(t, conn, "SELECT current_setting('fence.key')"); got != old {
					t.Errorf("the tag afterwards: got %s, want %s", got, old)
				}
				r.loses(was)
				r.takenOver(old, was.Token())
				err := p.run(conn, "INSERT INTO t VALUES (2, 'stale')")
				if codeOf(err) != string(fencing.CodeStale) && codeOf(err) != string(fencing.CodeEvicted) {
					t.Errorf("a write under the tag of before: got %v, want LF001 or LF005", err)
				}
				_ = p.run(conn, "COMMIT") // of what is open still, if the session lives
				want := "none"
				if c.name == "transaction for itself" {
					want = "1 within"
				}
				r.wantRows(want)
			})
		}
	}
}

func codeOf(err error) string {
	var said *pgconn.PgError
	if errors.As(err, &said) {
		return said.Code
	}
	return ""
}

// Case 17: a session with two locks loses one, and with it the right to write
// at all; the other lock's mark stays, and serves on alone.
func TestCase17_OneOfTwoLost(t *testing.T) {
	r := newRig(t)
	for _, p := range protocols() {
		for _, open := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/open transaction=%v", p, open), func(t *testing.T) {
				r := r.on(t)
				kept, lost := fmt.Sprintf("kept:%s:%v", p, open), fmt.Sprintf("lost:%s:%v", p, open)
				a, b := r.hold(kept, time.Minute), r.hold(lost, time.Minute)
				both := fmt.Sprintf(`SET fence.tokens = '{"%s": %d, "%s": %d}'`, kept, a.Token(), lost, b.Token())
				conn := r.session(r.first)
				must(t, conn, both)
				accepted(t, "a write under both", p.run(conn, "INSERT INTO t VALUES (1, 'both')"))
				want := fencing.CodeStale
				if open {
					must(t, conn, "BEGIN")
					accepted(t, "a write in a block", p.run(conn, "INSERT INTO t VALUES (2, 'open')"))
					want = fencing.CodeEvicted
				}
				r.loses(b)
				next := r.takenOver(lost, b.Token())
				refused(t, "the next write", p.run(conn, "INSERT INTO t VALUES (3, 'one lost')"), want)
				_ = p.run(conn, "COMMIT") // of what is open still, if the session lives
				r.wantMark(kept, a.Token())
				r.wantMark(lost, next)
				accepted(t, "the lock that is left", p.run(r.tagged(r.first, kept, a.Token()), "INSERT INTO t VALUES (4, 'kept')"))
				r.wantRows("1 both, 4 kept")
			})
		}
	}
}

// refusals is what the first proxy's metric says of a code.
func (r *rig) refusals(code fencing.Code) float64 {
	r.t.Helper()
	return samples.Of(r.t, r.first.Server.Metrics.Refusals)["refusals_total "+string(code)]
}

// Case 20: a session is idle when the next holder claims. Through its own
// proxy it hears of it at its next statement, through another at its next
// write.
func TestCase20_IdleSession(t *testing.T) {
	r := newRig(t)
	for i, claimer := range []*stack.Proxy{r.first, r.other} {
		for _, p := range protocols() {
			for n, sql := range []string{"INSERT INTO t VALUES (2, 'stale')", "SELECT count(*) FROM t"} {
				t.Run(fmt.Sprintf("%d/%s/%s", i, p, sql), func(t *testing.T) {
					r := r.on(t)
					r.other = claimer
					key := fmt.Sprintf("idle:%d:%s:%d", i, p, n)
					lease := r.hold(key, time.Minute)
					conn := r.tagged(r.first, key, lease.Token())
					accepted(t, "a write before", p.run(conn, "INSERT INTO t VALUES (1, 'holder')"))
					r.loses(lease)
					r.takenOver(key, lease.Token())
					err := p.run(conn, sql)
					switch {
					case claimer == r.first:
						refused(t, "the next statement", err, fencing.CodeEvicted)
					case n == 0:
						refused(t, "the next write", err, fencing.CodeStale)
					default:
						// Only the mark knows, and a read doesn't ask.
						accepted(t, "a read", err)
						refused(t, "the write after it", p.run(conn, "INSERT INTO t VALUES (2, 'stale')"), fencing.CodeStale)
					}
					r.wantRows("1 holder")
				})
			}
		}
	}
}

// Case 22: a job is delivered to two workers. The lock lets one of them in at
// a time, and the unique index stands behind it: one row, and the loser hears
// of either layer.
func TestCase22_DeliveredTwice(t *testing.T) {
	r := newRig(t)
	r.admin("CREATE TABLE job (id int PRIMARY KEY, done_by text)")
	const write = "INSERT INTO job VALUES (%d, '%s')"
	done := func(id int) string {
		return text(t, stack.Connect(t, r.DSN(stack.RoleApp, "app")), fmt.Sprintf("SELECT string_agg(done_by, ', ') FROM job WHERE id = %d", id))
	}
	for id, p := range protocols() {
		t.Run(string(p), func(t *testing.T) {
			r := r.on(t)
			key := fmt.Sprintf("job:%d", id)
			a := r.hold(key, time.Minute)
			first := r.tagged(r.first, key, a.Token())
			accepted(t, "the job", p.run(first, fmt.Sprintf(write, 2*id, "A")))
			r.loses(a)
			b := r.takenOver(key, a.Token())
			second := r.tagged(r.other, key, b)
			refused(t, "the same job by the next holder", p.run(second, fmt.Sprintf(write, 2*id, "B")), "23505")
			if got := done(2 * id); got != "A" {
				t.Errorf("the job was done by %s, want A", got)
			}

			before := r.refusals(fencing.CodeStale)
			refused(t, "a job of the former holder's", p.run(first, fmt.Sprintf(write, 2*id+1, "A")), fencing.CodeStale)
			accepted(t, "the same job", p.run(second, fmt.Sprintf(write, 2*id+1, "B")))
			if got := done(2*id + 1); got != "B" {
				t.Errorf("the job was done by %s, want B", got)
			}
			if got := r.refusals(fencing.CodeStale) - before; got != 1 {
				t.Errorf("fenceproxy_refusals_total{code=%q} rose by %v, want 1", fencing.CodeStale, got)
			}
		})
	}
}
