package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fenceproxy/fenceproxy/fencing"
	"github.com/fenceproxy/fenceproxy/testharness/poll"
	"github.com/fenceproxy/fenceproxy/testharness/postgres"
	"github.com/fenceproxy/fenceproxy/testharness/stack"
)

// A pair is a stack whose PostgreSQL has a streaming standby, and serve before
// both of them.
type pair struct {
	*stack.Stack
	standby *postgres.Server
	proxy   *stack.Process
}

func newPair(t *testing.T, flags ...string) *pair {
	t.Helper()
	s := stack.New(t, "app")
	p := &pair{Stack: s, standby: postgres.New(t, postgres.Options{Auth: postgres.AuthSCRAM, Password: "test", StandbyOf: s.Postgres})}
	// The standby stands first, to be passed over.
	p.proxy = serveOn(t, s, append([]string{"--upstream", p.upstream(t, p.standby.Addr(), s.Postgres.Addr())}, flags...)...)
	return p
}

// upstream is the DSN of role fence for servers at the given addresses.
func (p *pair) upstream(t *testing.T, addrs ...string) string {
	t.Helper()
	u, err := url.Parse(p.DSN(stack.RoleFence, "app"))
	if err != nil {
		t.Fatal(err)
	}
	u.Host = strings.Join(addrs, ",")
	return u.String()
}

// tryOpen connects through the proxy and returns where the session landed.
func (p *pair) tryOpen(params ...string) (*pgx.Conn, int, error) {
	config, err := pgx.ParseConfig(p.ProxyDSN(p.proxy.Addr, stack.RoleApp, "app"))
	if err != nil {
		return nil, 0, err
	}
	for i := 0; i+1 < len(params); i += 2 {
		config.RuntimeParams[params[i]] = params[i+1]
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return nil, 0, err
	}
	var port int
	if err := conn.QueryRow(ctx, "SELECT inet_server_port()").Scan(&port); err != nil {
		conn.Close(ctx)
		return nil, 0, err
	}
	return conn, port, nil
}

// caughtUp waits until the standby has all that the primary has.
func (p *pair) caughtUp(t *testing.T) {
	t.Helper()
	root := open(t, p.DSN(postgres.Superuser, "app"))
	poll.Until(t, "the standby has caught up", func() bool {
		var n int
		err := root.QueryRow(context.Background(),
			"SELECT count(*) FROM pg_stat_replication WHERE replay_lsn >= pg_current_wal_lsn()").Scan(&n)
		return err == nil && n == 1
	})
}

// After a failover new sessions go to the new primary and claim there, whatever
// became of the old one: killed, paused with its connections open, or awake
// again and of the opinion that it is the primary still.
func TestServe_Failover(t *testing.T) {
	for _, how := range []string{"killed", "paused"} {
		t.Run(how, func(t *testing.T) {
			p := newPair(t)
			first := hold(t, p.Client, "order:1")
			old, port, err := p.tryOpen(tagged("order:1", first.Token())...)
			if err != nil || port != p.Postgres.Port() {
				t.Fatalf("got a session at port %d, %v, want the primary's, %d", port, err, p.Postgres.Port())
			}
			defer old.Close(context.Background())
			untagged, _, err := p.tryOpen()
			if err != nil {
				t.Fatal(err)
			}
			defer untagged.Close(context.Background())
			exec1(t, old, "CREATE TABLE t (i int)")
			exec1(t, old, "INSERT INTO t VALUES (1)")
			p.caughtUp(t)

			if how == "killed" {
				err = p.Postgres.Kill()
			} else {
				p.Postgres.Pause()
			}
			if err != nil {
				t.Fatal(err)
			}
			if err := p.standby.Promote(t.Context()); err != nil {
				t.Fatal(err)
			}
			started := time.Now()
			if err := first.Release(context.Background()); err != nil {
				t.Fatal(err)
			}
			second := hold(t, p.Client, "order:1")
			next, port, err := p.tryOpen(tagged("order:1", second.Token())...)
			if err != nil || port != p.standby.Port() {
				t.Fatalf("got a session at port %d, %v, want the new primary's, %d", port, err, p.standby.Port())
			}
			t.Logf("a session %v after the failover", time.Since(started).Round(time.Millisecond))
			defer next.Close(context.Background())
			exec1(t, next, "INSERT INTO t VALUES (2)")
			if got := mark(t, p.standby); got != second.Token() {
				t.Errorf("the mark: got %d, want %d", got, second.Token())
			}
			if status, body := get(t, p.proxy, "/readyz"); status != 200 {
				t.Errorf("/readyz: got %d %q, want 200", status, body)
			}
			if how == "paused" {
				p.awake(t, untagged, second.Token())
			}
		})
	}
}

// awake wakes the old primary: nothing new goes to it, and no claim is made on
// it, though it takes itself for the primary.
func (p *pair) awake(t *testing.T, old *pgx.Conn, token fencing.Token) {
	t.Helper()
	p.Postgres.Resume()
	ctx := context.Background()
	// The session is where PostgreSQL left it; claims are another matter.
	exec1(t, old, "INSERT INTO t VALUES (0)")
	_, err := old.Exec(ctx, fmt.Sprintf("SET fence.key = 'order:1'; SET fence.token = %d", token))
	if code(err) != string(fencing.CodeUnverified) || !strings.Contains(err.Error(), "has moved to "+p.standby.Addr()) {
		t.Errorf("a claim of a session on the old primary: got %v, want %s that names the new one", err, fencing.CodeUnverified)
	}
	conn, port, err := p.tryOpen(tagged("order:1", token)...)
	if err != nil || port != p.standby.Port() {
		t.Fatalf("with both up: got a session at port %d, %v, want the new primary's, %d", port, err, p.standby.Port())
	}
	defer conn.Close(ctx)
	exec1(t, conn, "INSERT INTO t VALUES (3)")
	// A proxy that starts now knows nothing of what was before.
	fresh := serveOn(t, p.Stack, "--upstream", p.upstream(t, p.Postgres.Addr(), p.standby.Addr()))
	q := &pair{Stack: p.Stack, standby: p.standby, proxy: fresh}
	anew, port, err := q.tryOpen()
	if err != nil || port != p.standby.Port() {
		t.Fatalf("through a new proxy: got a session at port %d, %v, want the new primary's, %d", port, err, p.standby.Port())
	}
	anew.Close(ctx)
	if got := mark(t, p.Postgres); got >= token {
		t.Errorf("the mark on the old primary: got %d, want one below %d", got, token)
	}
}

// mark is the mark in one server.
func mark(t *testing.T, at *postgres.Server) (token fencing.Token) {
	t.Helper()
	root := open(t, at.DSN(postgres.Superuser, "app"))
	if err := root.QueryRow(context.Background(), "SELECT token FROM fence.mark WHERE resource_key = 'order:1'").Scan(&token); err != nil {
		t.Fatal(err)
	}
	return token
}

// Where no server takes sessions the client hears of each why not, and serve
// says so too, without a password.
func TestServe_NoPrimary(t *testing.T) {
	p := newPair(t)
	if err := p.Postgres.Kill(); err != nil {
		t.Fatal(err)
	}
	_, _, err := p.tryOpen()
	var refused *pgconn.PgError
	if code(err) != "08006" || !errors.As(err, &refused) {
		t.Fatalf("got %v, want 08006", err)
	}
	for _, want := range []string{p.standby.Addr() + ": it is a standby", p.Postgres.Addr() + ": ", "refused"} {
		if !strings.Contains(refused.Detail, want) {
			t.Errorf("got %q, want %q in it", refused.Detail, want)
		}
	}
	if status, body := get(t, p.proxy, "/readyz"); status != 503 || !strings.Contains(body, "standby") {
		t.Errorf("/readyz: got %d %q, want 503 that names the standby", status, body)
	}
	dsn := p.upstream(t, p.standby.Addr(), p.Postgres.Addr())
	for _, args := range [][]string{
		{"serve", "--upstream", dsn, "--etcd", p.Etcd.Endpoint(), "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"},
		{"init", "--upstream", dsn},
	} {
		status, _, stderr := program(t, nil, args...)
		u, _ := url.Parse(dsn)
		secret, _ := u.User.Password()
		if status != 1 || !strings.Contains(stderr, "it is a standby") || strings.Contains(stderr, secret) || strings.Count(stderr, "\n") != 1 {
			t.Errorf("%s: got exit %d, %q, want 1 and one line that names the standby and no password", args[0], status, stderr)
		}
	}
}
