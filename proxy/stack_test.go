package proxy_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fenceproxy/fenceproxy/fencing"
	"github.com/fenceproxy/fenceproxy/proxy"
	"github.com/fenceproxy/fenceproxy/testharness/postgres"
)

// holders is an Authority in memory: who holds what is set by the test.
type holders struct {
	mu     sync.Mutex
	tokens map[string]fencing.Token
	down   bool
}

func (h *holders) hold(key string, t fencing.Token) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.tokens[key] = t
}

func (h *holders) stop() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.down = true
}

func (h *holders) Verify(_ context.Context, key string, t fencing.Token) (fencing.Verification, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.down {
		return fencing.Verification{}, fencing.Refuse(fencing.CodeUnverified, "etcd is away")
	}
	if h.tokens[key] != t {
		return fencing.Verification{}, fencing.Refuse(fencing.CodeNotHolder, "%s is not held with token %d", key, t)
	}
	return fencing.Verification{LockKey: "/locks/" + key, Cluster: "c1", Revision: 1 << 40}, nil
}

// A stack is a real PostgreSQL with schema fence and proxies before it.
type stack struct {
	t       *testing.T
	pg      *postgres.Server
	holders *holders
	admin   *pgx.Conn
	addrs   []string
	servers []*proxy.Server
}

func newStack(t *testing.T, proxies int) *stack {
	t.Helper()
	s := newStackOn(t, postgres.New(t, postgres.Options{}))
	for range proxies {
		s.addProxy(s.pg.Addr())
	}
	return s
}

// newStackOn makes a stack of a running server, without proxies.
func newStackOn(t *testing.T, pg *postgres.Server) *stack {
	t.Helper()
	s := &stack{t: t, pg: pg, holders: &holders{tokens: map[string]fencing.Token{}}}
	s.admin = s.connect(pg.DSN("postgres", "postgres"))
	if _, _, err := fencing.Install(t.Context(), s.admin); err != nil {
		t.Fatal(err)
	}
	s.exec(`CREATE TABLE t (id int PRIMARY KEY, v text);
		CREATE FUNCTION writes() RETURNS int LANGUAGE sql VOLATILE AS 'INSERT INTO t VALUES (99, ''sneaky'') RETURNING id';
		CREATE VIEW sneaky AS SELECT writes() AS x`)
	return s
}

// addProxy starts a proxy before the given address of PostgreSQL; set changes
// it before it serves.
func (s *stack) addProxy(upstream string, set ...func(*proxy.Server)) string {
	s.t.Helper()
	return s.serve(listen(s.t), upstream, set...)
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return ln
}

// acceptAll gives each connection to ln a goroutine of its own. When the test is
// over it closes ln, does what end is for, and waits for all of them.
func acceptAll(t *testing.T, ln net.Listener, serve func(net.Conn), end ...func()) {
	t.Helper()
	var running sync.WaitGroup
	running.Go(func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return // closed below
			}
			running.Go(func() { serve(conn) })
		}
	})
	t.Cleanup(func() {
		ln.Close()
		for _, f := range end {
			f()
		}
		running.Wait()
	})
}

// serve is addProxy for clients that come by ln.
func (s *stack) serve(ln net.Listener, upstream string, set ...func(*proxy.Server)) string {
	s.t.Helper()
	store, err := fencing.NewStore(s.pg.DSN("postgres", "postgres"))
	if err != nil {
		s.t.Fatal(err)
	}
	claimer := fencing.NewClaimer(store, s.holders, nil)
	s.t.Cleanup(func() {
		claimer.Close()
		store.Close()
	})
	server := proxy.NewServer(proxy.TCP(upstream), claimer)
	claimer.Evictor = server
	server.Patience = 0 // a wait that keeps the others waiting hangs
	for _, f := range set {
		f(server)
	}
	serveUntilCleanup(s.t, server, ln)
	s.addrs = append(s.addrs, ln.Addr().String())
	s.servers = append(s.servers, server)
	return ln.Addr().String()
}

// serveUntilCleanup has a proxy serve, and closes it when the test is over.
func serveUntilCleanup(t *testing.T, server *proxy.Server, ln net.Listener) {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- server.Serve(ln) }()
	t.Cleanup(func() {
		server.Close()
		if err := <-done; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
}

func (s *stack) dsn(proxy int) string {
	return fmt.Sprintf("postgres://postgres@%s/postgres?sslmode=disable", s.addrs[proxy])
}

func (s *stack) connect(dsn string) *pgx.Conn {
	s.t.Helper()
	c, err := pgx.Connect(s.t.Context(), dsn)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { c.Close(context.Background()) })
	return c
}

// session opens a session through a proxy, tagged unless key is "".
func (s *stack) session(proxy int, key string, token fencing.Token) *pgx.Conn {
	s.t.Helper()
	c := s.connect(s.dsn(proxy))
	if key != "" {
		s.tag(c, key, token)
	}
	return c
}

func (s *stack) tag(c *pgx.Conn, key string, token fencing.Token) {
	s.t.Helper()
	if _, err := c.Exec(s.t.Context(), fmt.Sprintf("SET fence.key = '%s'; SET fence.token = %d", key, token)); err != nil {
		s.t.Fatalf("tag: %v", err)
	}
}

func (s *stack) exec(sql string) {
	s.t.Helper()
	if _, err := s.admin.Exec(s.t.Context(), sql); err != nil {
		s.t.Fatal(err)
	}
}

func (s *stack) count(where string) int {
	s.t.Helper()
	var n int
	if err := s.admin.QueryRow(s.t.Context(), "SELECT count(*) FROM t WHERE "+where).Scan(&n); err != nil {
		s.t.Fatal(err)
	}
	return n
}

// raise moves the lock to a new holder and claims it through a proxy.
func (s *stack) raise(proxy int, key string, token fencing.Token) {
	s.t.Helper()
	s.holders.hold(key, token)
	s.session(proxy, key, token)
}

// A protocol is a way to send one statement without parameters. pgx sends
// those by the simple protocol unless it is told otherwise at its low level.
type protocol string

const (
	simple   protocol = "simple"   // Query
	extended protocol = "extended" // Parse, Bind, Describe, Execute, Sync
	prepared protocol = "prepared" // Bind, Describe, Execute, Sync of a statement parsed before
)

var protocols = []protocol{simple, extended, prepared}

// run sends sql, which holds one statement unless p is simple.
func (p protocol) run(ctx context.Context, c *pgx.Conn, sql string) error {
	switch p {
	case extended:
		return c.PgConn().ExecParams(ctx, sql, nil, nil, nil, nil).Read().Err
	case prepared:
		st, err := c.PgConn().Prepare(ctx, sql, sql, nil)
		if err != nil {
			return err
		}
		err = c.PgConn().ExecPrepared(ctx, st.Name, nil, nil, nil).Read().Err
		if c.PgConn().TxStatus() != 'E' && !c.IsClosed() {
			c.PgConn().Deallocate(ctx, st.Name)
		}
		return err
	}
	_, err := c.Exec(ctx, sql)
	return err
}

func code(err error) string {
	var pgErr *pgconn.PgError
	if errors.As(err, &pgErr) {
		return pgErr.Code
	}
	if err == nil {
		return ""
	}
	return err.Error()
}

func pgError(err error) *pgconn.PgError {
	var e *pgconn.PgError
	errors.As(err, &e)
	return e
}
