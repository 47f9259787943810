package cases_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fenceproxy/fenceproxy/fencing"
	"github.com/fenceproxy/fenceproxy/leases"
	"github.com/fenceproxy/fenceproxy/testharness/stack"
)

// patience bounds what must happen; no healthy run comes near it.
const patience = 20 * time.Second

// A rig is a PostgreSQL and an etcd with two proxies, and a table t.
type rig struct {
	*stack.Stack
	t     *testing.T
	first *stack.Proxy
	other *stack.Proxy
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{Stack: stack.New(t, "app"), t: t}
	for _, p := range []**stack.Proxy{&r.first, &r.other} {
		var err error
		if *p, err = r.StartProxy("app", "", nil); err != nil {
			t.Fatal(err)
		}
	}
	r.admin("CREATE TABLE t (id int, v text)")
	return r
}

// on is the rig for a subtest, with an empty table.
func (r *rig) on(t *testing.T) *rig {
	t.Helper()
	sub := *r
	sub.t = t
	sub.admin("TRUNCATE t")
	return &sub
}

// session opens an application's session through a proxy.
func (r *rig) session(by *stack.Proxy) *pgx.Conn {
	r.t.Helper()
	return stack.Connect(r.t, r.ProxyDSN(by.Addr(), stack.RoleApp, "app"))
}

// tagged opens a session whose tag must be accepted.
func (r *rig) tagged(by *stack.Proxy, key string, token fencing.Token) *pgx.Conn {
	r.t.Helper()
	conn := r.session(by)
	if err := tag(conn, key, token); err != nil {
		r.t.Fatalf("tag with %s token %d: %v", key, token, err)
	}
	return conn
}

func tag(conn *pgx.Conn, key string, token fencing.Token) error {
	_, err := conn.Exec(context.Background(), fmt.Sprintf("SET fence.key = '%s'; SET fence.token = %d", key, token))
	return err
}

// admin runs statements as the owner of the tables, straight to PostgreSQL.
func (r *rig) admin(sql string) {
	r.t.Helper()
	conn := stack.Connect(r.t, r.DSN(stack.RoleApp, "app"))
	defer conn.Close(context.Background())
	must(r.t, conn, sql)
}

// schemaOwner runs statements as the role that owns schema fence.
func (r *rig) schemaOwner(sql string) {
	r.t.Helper()
	conn := stack.Connect(r.t, r.DSN(stack.RoleFence, "app"))
	defer conn.Close(context.Background())
	must(r.t, conn, sql)
}

func must(t testing.TB, conn *pgx.Conn, sql string) {
	t.Helper()
	if _, err := conn.Exec(context.Background(), sql); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// rows is what stands in t, in the order of the ids.
func (r *rig) rows() string {
	r.t.Helper()
	return text(r.t, stack.Connect(r.t, r.DSN(stack.RoleApp, "app")), "SELECT coalesce(string_agg(concat_ws(' ', id, v), ', ' ORDER BY id), 'none') FROM t")
}

func (r *rig) wantRows(want string) {
	r.t.Helper()
	if got := r.rows(); got != want {
		r.t.Errorf("rows: got %s, want %s", got, want)
	}
}

// wantMark checks the mark of a key; 0 is none.
func (r *rig) wantMark(key string, want fencing.Token) {
	r.t.Helper()
	got := text(r.t, stack.Connect(r.t, r.DSN(stack.RoleFence, "app")), "SELECT coalesce(max(token), 0) FROM fence.mark WHERE resource_key = '"+key+"'")
	if got != want.String() {
		r.t.Errorf("the mark of %s: got %s, want %d", key, got, want)
	}
}

func text(t testing.TB, conn *pgx.Conn, sql string) (all string) {
	t.Helper()
	if err := conn.QueryRow(context.Background(), sql, pgx.QueryExecModeSimpleProtocol).Scan(&all); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return all
}

// hold takes a lock that is free, or becomes so by the end of a lease.
func (r *rig) hold(key string, ttl time.Duration) *leases.Lease {
	r.t.Helper()
	return hold(r.t, r.Client, key, ttl)
}

func hold(t testing.TB, client *clientv3.Client, key string, ttl time.Duration) *leases.Lease {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	locker := leases.NewLocker(client)
	locker.TTL = ttl
	lease, err := locker.Acquire(ctx, key)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = lease.Release(ctx) // it may be lost, and etcd away
	})
	return lease
}

// loses has a holder lose its lock, by the end of its lease.
func (r *rig) loses(lease *leases.Lease) {
	r.t.Helper()
	if _, err := r.Client.Revoke(r.t.Context(), lease.ID()); err != nil {
		r.t.Fatal(err)
	}
}

// A protocol is a way to send a statement.
type protocol string

const (
	simple   protocol = "simple"
	extended protocol = "extended"
)

func protocols() []protocol { return []protocol{simple, extended} }

// run sends one statement without parameters.
func (p protocol) run(conn *pgx.Conn, sql string) error {
	if p == extended {
		return conn.PgConn().ExecParams(context.Background(), sql, nil, nil, nil, nil).Read().Err
	}
	_, err := conn.Exec(context.Background(), sql, pgx.QueryExecModeSimpleProtocol)
	return err
}

// refused checks the code of a refusal, and that it says what it should.
func refused(t testing.TB, what string, err error, want fencing.Code, says ...string) {
	t.Helper()
	var said *pgconn.PgError
	if !errors.As(err, &said) || said.Code != string(want) {
		t.Errorf("%s: got %v, want %s", what, err, want)
		return
	}
	for _, words := range says {
		if all := said.Message + "\n" + said.Detail + "\n" + said.Hint; !strings.Contains(all, words) {
			t.Errorf("%s: got %q, want it to say %q", what, all, words)
		}
	}
}

// accepted checks that a statement was carried out.
func accepted(t testing.TB, what string, err error) {
	t.Helper()
	if err != nil {
		t.Errorf("%s: got %v, want it accepted", what, err)
	}
}

// The processes that this test binary can be instead of the tests.
const (
	asActor  = "TEST_AS_ACTOR"  // takes orders, see package scenario
	asMember = "TEST_AS_MEMBER" // a member of an etcd cluster
	asCrowd  = "TEST_AS_CROWD"  // many workers that want one lock
)

func TestMain(m *testing.M) {
	for name, be := range map[string]func(context.Context) error{asActor: beActor, asMember: beMember, asCrowd: beCrowd} {
		if os.Getenv(name) == "" {
			continue
		}
		if err := be(context.Background()); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}
