package fencing_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"go.uber.org/goleak"

	"github.com/fenceproxy/fenceproxy/fencing"
	"github.com/fenceproxy/fenceproxy/testharness/poll"
	"github.com/fenceproxy/fenceproxy/testharness/postgres"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// deadline bounds every wait in these tests; no healthy run comes near it.
const deadline = 20 * time.Second

// The roles and the database that every stack has.
const (
	database = "app"
	adminRol = "fence_admin" // owns schema fence, runs the claims; no superuser
	appRole  = "app_user"
)

// A stack is one PostgreSQL with schema fence installed by a role that is no
// superuser.
type stack struct {
	t   *testing.T
	srv *postgres.Server
}

func newStack(t *testing.T, config ...string) *stack {
	t.Helper()
	s := newBareStack(t, config...)
	s.install()
	return s
}

// newBareStack leaves schema fence out.
func newBareStack(t *testing.T, config ...string) *stack {
	t.Helper()
	s := &stack{t: t, srv: postgres.New(t, postgres.Options{Config: config})}
	root := s.dial(postgres.Superuser, "postgres")
	for _, sql := range []string{
		"CREATE ROLE " + adminRol + " LOGIN",
		"GRANT pg_signal_backend, pg_read_all_stats TO " + adminRol,
		"CREATE ROLE " + appRole + " LOGIN",
		"CREATE DATABASE " + database + " OWNER " + adminRol,
	} {
		s.exec(root, sql)
	}
	app := s.dial(postgres.Superuser, database)
	s.exec(app, "CREATE TABLE public.job (id int PRIMARY KEY, done_by text)")
	s.exec(app, "GRANT ALL ON public.job TO "+appRole)
	return s
}

func (s *stack) install() (from, to int) {
	s.t.Helper()
	from, to, err := fencing.Install(s.t.Context(), s.dial(adminRol, database))
	if err != nil {
		s.t.Fatal(err)
	}
	return from, to
}

func (s *stack) dial(user, db string) *pgx.Conn {
	s.t.Helper()
	conn, err := pgx.Connect(s.t.Context(), s.srv.DSN(user, db)+"&default_query_exec_mode=simple_protocol")
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { conn.Close(context.Background()) })
	return conn
}

// root returns a superuser's session in the database.
func (s *stack) root() *pgx.Conn { return s.dial(postgres.Superuser, database) }

// tagged returns an application's session with a tag.
func (s *stack) tagged(key string, token fencing.Token) *pgx.Conn {
	s.t.Helper()
	conn := s.dial(appRole, database)
	s.exec(conn, fmt.Sprintf("SET fence.key = '%s'; SET fence.token = %d; SET application_name = 'worker %d'", key, token, token))
	return conn
}

// begun returns a session that is idle in a checked transaction which has
// written row id.
func (s *stack) begun(key string, token fencing.Token, id int) *pgx.Conn {
	s.t.Helper()
	conn := s.tagged(key, token)
	s.exec(conn, "BEGIN")
	s.exec(conn, "SELECT fence.check()")
	s.exec(conn, fmt.Sprintf("INSERT INTO job VALUES (%d, '%d')", id, token))
	return conn
}

func (s *stack) exec(conn *pgx.Conn, sql string) {
	s.t.Helper()
	if _, err := conn.Exec(s.t.Context(), sql); err != nil {
		s.t.Fatalf("%s: %v", sql, err)
	}
}

// one runs a query that returns one value.
func one[T any](s *stack, conn *pgx.Conn, sql string) (value T) {
	s.t.Helper()
	if err := conn.QueryRow(s.t.Context(), sql).Scan(&value); err != nil {
		s.t.Fatalf("%s: %v", sql, err)
	}
	return value
}

func (s *stack) jobs() string {
	return one[string](s, s.root(), "SELECT coalesce(string_agg(id || ' by ' || done_by, ', ' ORDER BY id), 'none') FROM job")
}

// mark returns the token of key's mark, 0 without one.
func (s *stack) mark(key string) fencing.Token {
	return fencing.Token(one[int64](s, s.root(), "SELECT coalesce(max(token), 0) FROM fence.mark WHERE resource_key = '"+key+"'"))
}

// waiting waits until n claims wait for a lock.
func (s *stack) waiting(n int) {
	s.t.Helper()
	s.waitEvent(n, "wait_event_type = 'Lock' AND application_name = '"+fencing.ClaimApplication+"'")
}

func (s *stack) waitEvent(n int, where string) {
	s.t.Helper()
	conn := s.root()
	poll.Until(s.t, where, func() bool {
		return one[int](s, conn, "SELECT count(*)::int FROM pg_stat_activity WHERE "+where) == n
	})
}

// claimer returns a Claimer like a proxy's, for the role that owns the schema.
func (s *stack) claimer(a fencing.Authority, set ...func(*fencing.Claimer)) *fencing.Claimer {
	s.t.Helper()
	return s.claimerOf(s.srv.DSN(adminRol, "postgres"), a, set...)
}

func (s *stack) claimerOf(dsn string, a fencing.Authority, set ...func(*fencing.Claimer)) *fencing.Claimer {
	s.t.Helper()
	store, err := fencing.NewStore(dsn)
	if err != nil {
		s.t.Fatal(err)
	}
	c := fencing.NewClaimer(store, a, nil)
	for _, f := range set {
		f(c)
	}
	s.t.Cleanup(func() {
		c.Close()
		store.Close()
	})
	return c
}

func evictAfter(d time.Duration) func(*fencing.Claimer) {
	return func(c *fencing.Claimer) { c.EvictAfter = d }
}

func claimTimeout(d time.Duration) func(*fencing.Claimer) {
	return func(c *fencing.Claimer) { c.ClaimTimeout = d }
}

// claim makes one claim with a Claimer of its own, which must succeed.
func (s *stack) claim(key string, token fencing.Token) {
	s.t.Helper()
	if err := s.claimer(holder(key, token)).Claim(s.t.Context(), database, fencing.Pair{Key: key, Token: token}); err != nil {
		s.t.Fatal(err)
	}
}

// start makes a claim in the background; the channel gets its answer.
func start(t *testing.T, c *fencing.Claimer, key string, token fencing.Token) <-chan error {
	answer := make(chan error, 1)
	go func() {
		answer <- c.Claim(context.WithoutCancel(t.Context()), database, fencing.Pair{Key: key, Token: token})
	}()
	return answer
}

func (s *stack) answered(answer <-chan error) error {
	s.t.Helper()
	select {
	case err := <-answer:
		return err
	case <-time.After(deadline):
		s.t.Fatal("the claim was not answered")
		return nil
	}
}

func (s *stack) unanswered(answer <-chan error) {
	s.t.Helper()
	select {
	case err := <-answer:
		s.t.Fatalf("the claim was answered early: %v", err)
	default:
	}
}

// An etcd is an Authority that plays etcd: it knows the holder of each key.
type etcd struct {
	mu      sync.Mutex
	holders map[string]fencing.Token
	rev     int64 // 0: the highest token that was ever a holder's
	top     int64
	cluster string
	down    bool
	calls   int
	before  func() // runs before each answer
	after   func() // runs after each answer was made up
}

// holder returns an etcd in which token holds key.
func holder(key string, token fencing.Token) *etcd {
	e := &etcd{holders: map[string]fencing.Token{}, cluster: "c1"}
	e.hold(key, token)
	return e
}

func (e *etcd) hold(key string, token fencing.Token) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.holders[key] = token
	e.top = max(e.top, int64(token))
}

func (e *etcd) set(f func(*etcd)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	f(e)
}

func (e *etcd) called() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.calls
}

func (e *etcd) Verify(ctx context.Context, key string, token fencing.Token) (fencing.Verification, error) {
	e.mu.Lock()
	before, after := e.before, e.after
	e.mu.Unlock()
	if before != nil {
		before()
	}
	v, err := e.answer(key, token)
	if after != nil {
		after()
	}
	return v, err
}

func (e *etcd) answer(key string, token fencing.Token) (fencing.Verification, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.calls++
	v := fencing.Verification{LockKey: "/locks/" + key + "/1", Cluster: e.cluster, Revision: max(e.rev, e.top)}
	if e.rev != 0 {
		v.Revision = e.rev
	}
	switch {
	case e.down:
		return v, fencing.Refuse(fencing.CodeUnverified, "etcd is away")
	case e.holders[key] != token:
		return v, fencing.Refuse(fencing.CodeNotHolder, "%s token %d", key, token)
	}
	return v, nil
}

// code returns the refusal's code, or the SQLSTATE, or "" for nil.
func code(err error) string {
	var refusal *fencing.Error
	var pgErr *pgconn.PgError
	switch {
	case err == nil:
		return ""
	case errors.As(err, &refusal):
		return string(refusal.Code)
	case errors.As(err, &pgErr):
		return pgErr.Code
	}
	return err.Error()
}

// refusal checks err's code, and that its texts say what they should.
func refusal(t *testing.T, err error, want fencing.Code, says ...string) {
	t.Helper()
	var e *fencing.Error
	if !errors.As(err, &e) || e.Code != want {
		t.Fatalf("got %v, want %s", err, want)
	}
	if !strings.HasPrefix(e.Message, want.Name()+": ") {
		t.Errorf("message: got %q, want it to start with %s", e.Message, want.Name())
	}
	for _, text := range says {
		if all := e.Message + "\n" + e.Detail + "\n" + e.Hint; !strings.Contains(all, text) {
			t.Errorf("got %q, want it to say %q", all, text)
		}
	}
}
