package cases_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fenceproxy/fenceproxy/fencing"
	"github.com/fenceproxy/fenceproxy/leases"
	"github.com/fenceproxy/fenceproxy/testharness/poll"
	"github.com/fenceproxy/fenceproxy/testharness/stack"
)

// locksInEtcd are the keys of all locks, held and awaited.
func (r *rig) locksInEtcd() (keys []string) {
	r.t.Helper()
	resp, err := r.Client.Get(context.Background(), leases.DefaultPrefix, clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		r.t.Fatal(err)
	}
	for _, kv := range resp.Kvs {
		keys = append(keys, strings.TrimPrefix(string(kv.Key), leases.DefaultPrefix))
	}
	return keys
}

// wantLocks checks how many locks there are in etcd, at once.
func (r *rig) wantLocks(want int) {
	r.t.Helper()
	if got := r.locksInEtcd(); len(got) != want {
		r.t.Errorf("locks in etcd: got %v, want %d", got, want)
	}
}

// acquire takes a lock in SQL, which must succeed.
func acquire(t testing.TB, conn *pgx.Conn, args string) (token fencing.Token) {
	t.Helper()
	if err := conn.QueryRow(context.Background(), "SELECT token FROM fence.acquire("+args+")", pgx.QueryExecModeSimpleProtocol).Scan(&token); err != nil {
		t.Fatalf("acquire %s: %v", args, err)
	}
	return token
}

func released(t testing.TB, conn *pgx.Conn, key string) (held bool) {
	t.Helper()
	if err := conn.QueryRow(context.Background(), "SELECT fence.release('"+key+"')", pgx.QueryExecModeSimpleProtocol).Scan(&held); err != nil {
		t.Fatalf("release %s: %v", key, err)
	}
	return held
}

// The ways in which drivers send a call with arguments.
func TestSQLLocks_Protocols(t *testing.T) {
	r := newRig(t)
	for name, mode := range map[string]pgx.QueryExecMode{
		"simple": pgx.QueryExecModeSimpleProtocol, "extended": pgx.QueryExecModeExec, "described": pgx.QueryExecModeDescribeExec,
		"cached": pgx.QueryExecModeCacheStatement, "cached description": pgx.QueryExecModeCacheDescribe,
	} {
		t.Run(name, func(t *testing.T) {
			r := r.on(t)
			conn := r.session(r.first)
			var had fencing.Token
			for range 2 { // the second time a cached statement is used
				var key string
				var token fencing.Token
				var until time.Time
				if err := conn.QueryRow(t.Context(), "SELECT * FROM fence.acquire($1, $2)", mode, "it's é", "10s").Scan(&key, &token, &until); err != nil {
					t.Fatal(err)
				}
				if left := time.Until(until); key != "it's é" || token <= had || left > 11*time.Second || left < 5*time.Second {
					t.Errorf("got %q token %d for %v, want the key, a token above %d, and 10s", key, token, left, had)
				}
				had = token
				accepted(t, "write", simple.run(conn, "INSERT INTO t VALUES (1, 'a')"))
				r.wantMark("it''s é", token)
				r.wantLocks(1)
				if err := conn.QueryRow(t.Context(), "SELECT resource_key, token, expires_at FROM fence.renew($1)", mode, "it's é").Scan(&key, &token, &until); err != nil || token != had {
					t.Fatalf("renew: got token %d, %v, want %d", token, err, had)
				}
				var held bool
				if err := conn.QueryRow(t.Context(), "SELECT fence.release($1)", mode, "it's é").Scan(&held); err != nil || !held {
					t.Fatalf("release: got %v, %v, want true", held, err)
				}
				r.wantLocks(0)
				if got := text(t, conn, "SHOW fence.tokens"); got != "" {
					t.Errorf("the tag after the release: got %q, want none", got)
				}
			}
		})
	}
}

func TestSQLLocks_Compete(t *testing.T) {
	r := newRig(t)
	one, two := r.session(r.first), r.session(r.other)
	first := acquire(t, one, "'k', '2s'")
	refused(t, "a taken lock", simple.run(two, "SELECT * FROM fence.acquire('k')"), fencing.CodeLockTaken,
		"lock_not_available: the lock k is held by somebody else", "held with token "+first.String())
	accepted(t, "another statement of the one who got none", simple.run(two, "SELECT 1"))
	r.wantLocks(1)

	// The holder stops renewing, and loses the lock to the one in line.
	second := acquire(t, two, "'k', ttl => '30s', wait => '20 s'")
	if second <= first {
		t.Errorf("got token %d after %d, want a higher one", second, first)
	}
	accepted(t, "write", simple.run(two, "INSERT INTO t VALUES (2, 'new')"))
	refused(t, "the former holder's write", simple.run(one, "INSERT INTO t VALUES (1, 'stale')"), fencing.CodeStale)
	r.wantRows("2 new")
	two.Close(t.Context())
	poll.Until(t, "the lock of a session that has ended is free", func() bool { return len(r.locksInEtcd()) == 0 })
}

func TestSQLLocks_Renew(t *testing.T) {
	r := newRig(t)
	conn := r.session(r.first)
	refused(t, "renew nothing", simple.run(conn, "SELECT fence.renew('k')"), fencing.CodeNotHeld)
	token := acquire(t, conn, "'k', '2s'")
	began := time.Now()
	poll.Until(t, "the lock outlives its ttl twice by renewals", func() bool {
		accepted(t, "renew", simple.run(conn, "SELECT fence.renew('k')"))
		return t.Failed() || time.Since(began) > 5*time.Second
	})
	accepted(t, "begin", simple.run(conn, "BEGIN"))
	accepted(t, "write", simple.run(conn, "INSERT INTO t VALUES (1, 'a')"))
	accepted(t, "renew in a transaction", extended.run(conn, "SELECT fence.renew('k')"))
	accepted(t, "commit", simple.run(conn, "COMMIT"))
	r.wantRows("1 a")
	poll.Until(t, "the lease runs out", func() bool { return len(r.locksInEtcd()) == 0 })
	refused(t, "renew a lost lock", simple.run(conn, "SELECT fence.renew('k')"), fencing.CodeStale, "k token "+token.String()+": the lock is lost")
	if again := acquire(t, conn, "'k'"); again <= token {
		t.Errorf("got token %d after %d, want a higher one", again, token)
	}
	accepted(t, "write", simple.run(conn, "INSERT INTO t VALUES (2, 'b')"))
	if !released(t, conn, "k") {
		t.Error("release: got false, want true")
	}
	if released(t, conn, "k") {
		t.Error("release again: got true, want false")
	}
	r.wantLocks(0)
}

// A lock that was lost behind the session's back is not told to have been held, and
// nothing of anybody else's is given back.
func TestSQLLocks_ReleaseLost(t *testing.T) {
	r := newRig(t)
	for name, lose := range map[string]func(key string, lease clientv3.LeaseID) (left int, err error){
		"deleted": func(key string, _ clientv3.LeaseID) (int, error) {
			_, err := r.Client.Delete(context.Background(), key)
			return 0, err
		},
		"revoked": func(_ string, lease clientv3.LeaseID) (int, error) {
			_, err := r.Client.Revoke(context.Background(), lease)
			return 0, err
		},
		"another's by now": func(key string, _ clientv3.LeaseID) (int, error) {
			_, err := r.Client.Delete(context.Background(), key)
			if err == nil {
				_, err = r.Client.Put(context.Background(), key, "")
			}
			return 1, err
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := r.on(t)
			conn := r.session(r.first)
			acquire(t, conn, "'k', '5min'")
			resp, err := r.Client.Get(t.Context(), leases.DefaultPrefix, clientv3.WithPrefix())
			if err != nil || len(resp.Kvs) != 1 {
				t.Fatalf("got %v, %v, want one lock", resp, err)
			}
			key := string(resp.Kvs[0].Key)
			left, err := lose(key, clientv3.LeaseID(resp.Kvs[0].Lease))
			if err != nil {
				t.Fatal(err)
			}
			if released(t, conn, "k") {
				t.Error("release: got true, want false")
			}
			r.wantLocks(left)
			if got := text(t, conn, "SHOW fence.tokens"); got != "" {
				t.Errorf("the tag afterwards: got %q, want none", got)
			}
			if _, err := r.Client.Delete(t.Context(), key); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func TestSQLLocks_Several(t *testing.T) {
	r := newRig(t)
	conn := r.session(r.first)
	r.first.Server.Lending.MaxLocks = 2
	a, b := acquire(t, conn, "'a'"), acquire(t, conn, "'b'")
	if got, want := text(t, conn, "SHOW fence.tokens"), `{"a":`+a.String()+`,"b":`+b.String()+`}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	refused(t, "one held already", simple.run(conn, "SELECT fence.acquire('a')"), fencing.CodeHeldAlready)
	refused(t, "one too many", simple.run(conn, "SELECT fence.acquire('c')"), fencing.CodeTooManyLocks)
	released(t, conn, "a")
	r.wantLocks(1)
	accepted(t, "DISCARD ALL", simple.run(conn, "DISCARD ALL"))
	r.wantLocks(0)
	for _, off := range []string{"RESET ALL", "RESET fence.tokens", "SET fence.tokens = ''", "SELECT set_config('fence.tokens', NULL, false)"} {
		acquire(t, conn, "'a'")
		accepted(t, off, simple.run(conn, off))
		if got := r.locksInEtcd(); len(got) != 0 {
			t.Errorf("after %s: got %v in etcd, want none", off, got)
		}
	}
	acquire(t, conn, "'a'")
	accepted(t, "begin", simple.run(conn, "BEGIN"))
	accepted(t, "reset in a transaction", simple.run(conn, "RESET fence.tokens"))
	r.wantLocks(1)
	accepted(t, "roll back", simple.run(conn, "ROLLBACK"))
	r.wantLocks(1)
	accepted(t, "write", simple.run(conn, "INSERT INTO t VALUES (1, 'a')"))
}

// What the proxy can't serve is refused, and no lock is left behind.
func TestSQLLocks_Refused(t *testing.T) {
	r := newRig(t)
	r.admin("CREATE VIEW v AS SELECT * FROM fence.acquire('k'); " +
		"CREATE FUNCTION f() RETURNS bigint LANGUAGE sql AS $$SELECT token FROM fence.acquire('k')$$")
	for _, c := range []struct {
		name, before, sql string
		want              fencing.Code
	}{
		{"in a block", "BEGIN", "SELECT fence.acquire('k')", fencing.CodeInBlock},
		{"release in a block", "BEGIN", "SELECT fence.release('k')", fencing.CodeInBlock},
		{"in a failed block", "BEGIN; SELECT 1/0", "SELECT fence.acquire('k')", "25P02"},
		{"in DO", "", "DO $$BEGIN PERFORM fence.acquire('k'); END$$", fencing.CodeNotFenceable},
		{"in a function", "", "SELECT f()", fencing.CodeNotFenceable},
		{"in a view", "", "TABLE v", fencing.CodeNotFenceable},
		{"in a larger query", "", "SELECT token + 1 FROM fence.acquire('k')", fencing.CodeNotFenceable},
		{"twice", "", "SELECT fence.acquire('k'), fence.acquire('l')", fencing.CodeNotFenceable},
		{"an expression for a key", "", "SELECT fence.acquire('k' || 'l')", fencing.CodeNotFenceable},
		{"by EXECUTE", "PREPARE p AS SELECT fence.acquire('k')", "EXECUTE p", fencing.CodeNotFenceable},
		{"by a cursor", "", "DECLARE c CURSOR WITH HOLD FOR SELECT fence.acquire('k')", fencing.CodeNotFenceable},
		{"by COPY", "", "COPY (SELECT fence.acquire('k')) TO STDOUT", fencing.CodeNotFenceable},
		{"explained", "", "EXPLAIN ANALYZE SELECT fence.acquire('k')", fencing.CodeNotFenceable},
		{"a null key", "", "SELECT fence.acquire(NULL)", fencing.CodeBadArgument},
		{"an empty key", "", "SELECT fence.acquire('')", fencing.CodeBadArgument},
		{"a long key", "", "SELECT fence.acquire('" + strings.Repeat("k", fencing.MaxKeyLen+1) + "')", fencing.CodeBadArgument},
		{"a bad ttl", "", "SELECT fence.acquire('k', 'soon')", fencing.CodeBadArgument},
		{"a short ttl", "", "SELECT fence.acquire('k', '500ms')", fencing.CodeBadArgument},
		{"a long ttl", "", "SELECT fence.acquire('k', '1 day')", fencing.CodeBadArgument},
		{"a longer ttl than allowed", "", "SELECT fence.acquire('k', '11min')", fencing.CodeBadArgument},
		{"a longer wait than allowed", "", "SELECT fence.acquire('k', '10s', '61s')", fencing.CodeBadArgument},
		{"a number for a ttl", "", "SELECT fence.acquire('k', 30)", "42883"},
		{"a grant made up, for another key", "SET fence.grant = '{\"do\": \"acquire\", \"key\": \"l\"}'", "SELECT f()", fencing.CodeNotFenceable},
	} {
		for _, p := range protocols() {
			t.Run(c.name+", "+string(p), func(t *testing.T) {
				r := r.on(t)
				conn := r.session(r.first)
				if c.before != "" {
					_, _ = conn.Exec(t.Context(), c.before) // some fail
				}
				refused(t, c.sql, p.run(conn, c.sql), c.want)
				_ = simple.run(conn, "ROLLBACK")
				accepted(t, "afterwards", p.run(conn, "SELECT 1"))
				accepted(t, "a write afterwards", p.run(conn, "INSERT INTO t VALUES (1, 'a')"))
				r.wantLocks(0)
				acquire(t, conn, "'k'")
				released(t, conn, "k")
			})
		}
	}
	t.Run("several statements", func(t *testing.T) {
		r := r.on(t)
		conn := r.session(r.first)
		for _, sql := range []string{
			"SELECT fence.acquire('k'); INSERT INTO t VALUES (1, 'a')", "INSERT INTO t VALUES (1, 'a'); SELECT fence.acquire('k')",
			"SET fence.key = 'l'; SELECT fence.acquire('k')", "SELECT fence.acquire('k'); SELECT fence.acquire('l')",
		} {
			refused(t, sql, simple.run(conn, sql), fencing.CodeNotFenceable)
		}
		r.wantLocks(0)
		r.wantRows("none")
	})
	t.Run("not allowed", func(t *testing.T) {
		r := r.on(t)
		r.other.Server.Lending.Allow = false
		refused(t, "acquire", simple.run(r.session(r.other), "SELECT fence.acquire('k')"), fencing.CodeNotAllowed, "--sql-locks allow")
	})
	t.Run("no proxy", func(t *testing.T) {
		r := r.on(t)
		conn := stack.Connect(t, r.DSN(stack.RoleApp, "app"))
		refused(t, "acquire", simple.run(conn, "SELECT fence.acquire('k')"), fencing.CodeNotFenceable, "through fenceproxy")
	})
}

// A made-up grant gives a tag, as SET does, and the check refuses it.
func TestSQLLocks_ForgedGrant(t *testing.T) {
	r := newRig(t)
	conn := r.session(r.first)
	refused(t, "write", simple.run(conn, `DO $$BEGIN
		PERFORM set_config('fence.grant', '{"do": "acquire", "key": "k", "token": 7, "left_ms": 1, "tokens": "{\"k\": 7}"}', false);
		PERFORM fence.acquire('k');
		INSERT INTO t VALUES (1, 'forged');
	END$$`), fencing.CodeNotHolder)
	r.wantRows("none")
	r.wantMark("k", 0)
}

// What fails behind the taking of a lock gives it back.
func TestSQLLocks_FailsBehind(t *testing.T) {
	r := newRig(t)
	conn := r.session(r.first)
	r.schemaOwner("REVOKE EXECUTE ON FUNCTION fence.acquire FROM PUBLIC")
	for _, p := range protocols() {
		refused(t, "acquire", p.run(conn, "SELECT fence.acquire('k')"), "42501")
		r.wantLocks(0)
		if got := text(t, conn, "SELECT coalesce(current_setting('fence.tokens', true), '')"); got != "" {
			t.Errorf("the tag afterwards: got %q, want none", got)
		}
	}
	r.schemaOwner("GRANT EXECUTE ON FUNCTION fence.acquire TO PUBLIC")

	// The rest of a pipeline fails.
	for rest, want := range map[string]fencing.Code{"SELECT 1/0": "22012", "INSERT INTO t VALUES (1, 'a')": fencing.CodeNotFenceable} {
		batch := r.session(r.first).PgConn().StartPipeline(t.Context())
		batch.SendQueryParams("SELECT fence.acquire('k')", nil, nil, nil, nil)
		batch.SendQueryParams(rest, nil, nil, nil, nil)
		if err := batch.Sync(); err != nil {
			t.Fatal(err)
		}
		refused(t, rest, batch.Close(), want)
		r.wantLocks(0)
	}
	r.wantRows("none")

	// The claim is refused: etcd answers the lock's question, and PostgreSQL is
	// no place for a mark.
	r.schemaOwner("ALTER FUNCTION fence.claim(text, bigint, text, text, bigint, integer, text) RENAME TO gone")
	refused(t, "acquire", simple.run(conn, "SELECT fence.acquire('fresh')"), fencing.CodeNotInstalled)
	r.wantLocks(0)
	accepted(t, "afterwards", simple.run(conn, "SELECT 1"))
}
