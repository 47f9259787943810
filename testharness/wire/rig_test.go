package wire_test

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fenceproxy/fenceproxy/fencing"
	"github.com/fenceproxy/fenceproxy/proxy"
	"github.com/fenceproxy/fenceproxy/testharness/dial"
	"github.com/fenceproxy/fenceproxy/testharness/postgres"
	"github.com/fenceproxy/fenceproxy/testharness/wire"
)

// The role that scripts log in as, which owns schema app, and the tag that
// they play with.
const (
	role  = "app"
	key   = "wire"
	token = 1
)

// evictAfter keeps a claim from waiting long for a script's sessions.
const evictAfter = 10 * time.Millisecond

// holder says of one key that it is held with one token, which may change.
type holder struct{ token atomic.Int64 }

func (h *holder) Verify(_ context.Context, k string, t fencing.Token) (fencing.Verification, error) {
	if k != key || int64(t) != h.token.Load() {
		return fencing.Verification{}, fencing.Refuse(fencing.CodeNotHolder, "%s is not held with token %d", k, t)
	}
	return fencing.Verification{LockKey: "/locks/" + k, Cluster: "c1", Revision: 1 << 40}, nil
}

// A rig is a PostgreSQL with a proxy before it, and databases that scripts
// borrow.
type rig struct {
	pg     *postgres.Server
	proxy  string
	holder *holder
	// ready prepares the connections of proxies that are started later; nil does
	// nothing.
	ready   func(context.Context, *pgx.Conn) error
	version int
	lanes   chan *lane
}

// newRig starts a rig with the given databases, schema fence in each.
func newRig(t *testing.T, databases ...string) *rig {
	t.Helper()
	return newRigOn(t, postgres.New(t, postgres.Options{Config: settings()}), nil, databases...)
}

// settings of the server are not the usual, which the proxy's own statements
// must not rely on.
func settings() []string {
	return []string{
		"max_prepared_transactions = 10",
		"DateStyle = 'German, DMY'", "IntervalStyle = 'iso_8601'", "TimeZone = 'Asia/Kathmandu'",
	}
}

// newRigOn makes a rig of a running server; set changes the proxy before it
// serves.
func newRigOn(t *testing.T, pg *postgres.Server, set func(*proxy.Server, *fencing.Store), databases ...string) *rig {
	t.Helper()
	r := &rig{pg: pg, holder: &holder{}, lanes: make(chan *lane, len(databases))}
	admin := dial.Connect(t, r.pg.DSN("postgres", "postgres"))
	version, err := strconv.Atoi(admin.PgConn().ParameterStatus("server_version")[:2])
	if err != nil {
		t.Fatal(err)
	}
	r.version = version
	dial.Exec(t, admin, "CREATE ROLE "+role+" LOGIN IN ROLE pg_signal_backend")
	for _, name := range databases {
		dial.Exec(t, admin, "CREATE DATABASE "+name+" OWNER "+role)
		l := &lane{name: name, conn: dial.Connect(t, r.pg.DSN("postgres", name))}
		if _, _, err := fencing.Install(t.Context(), l.conn); err != nil {
			t.Fatal(err)
		}
		dial.Exec(t, l.conn, `CREATE TEMP VIEW session AS
			SELECT application_name AS name, pid, state, wait_event, wait_event_type, query FROM pg_stat_activity
			WHERE datname = current_database() AND usename = 'app'`)
		r.lanes <- l
	}
	r.holder.token.Store(token)
	r.proxy = r.startProxy(t, set)
	return r
}

// startProxy starts a proxy and returns its address.
func (r *rig) startProxy(t *testing.T, set func(*proxy.Server, *fencing.Store)) string {
	t.Helper()
	config, err := pgxpool.ParseConfig(r.pg.DSN("postgres", "postgres"))
	if err != nil {
		t.Fatal(err)
	}
	config.AfterConnect = r.ready
	store := fencing.NewStoreOf(config)
	claimer := fencing.NewClaimer(store, r.holder, nil)
	claimer.EvictAfter = evictAfter
	server := proxy.NewServer(proxy.TCP(r.pg.Addr()), claimer)
	claimer.Evictor = server
	server.Patience = 0 // a wait that keeps the others waiting hangs
	if set != nil {
		set(server, store)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- server.Serve(ln) }()
	t.Cleanup(func() {
		server.Close()
		if err := <-done; err != nil {
			t.Errorf("Serve: %v", err)
		}
		claimer.Close()
		store.Close()
	})
	return ln.Addr().String()
}

// overSocket makes the direct leg go over the server's Unix socket.
func (r *rig) overSocket(p *wire.Player) {
	if p.Where.Leg == wire.Direct {
		p.Network, p.Addr = "unix", fmt.Sprintf("%s/.s.PGSQL.%d", r.pg.SocketDir(), r.pg.Port())
	}
}

// player plays on one leg in a lane.
func (r *rig) player(leg wire.Leg, l *lane) *wire.Player {
	p := &wire.Player{
		Where: wire.Where{Leg: leg, Version: r.version}, Network: "tcp", Addr: r.proxy,
		Params: []string{"user", role, "database", l.name}, Aside: l,
	}
	switch leg {
	case wire.Direct:
		p.Addr = r.pg.Addr()
	case wire.Tagged:
		p.Tag = []string{fencing.SettingKey, key, fencing.SettingToken, fmt.Sprint(r.holder.token.Load())}
	}
	return p
}

// A lane is a database for one script at a time, and a connection to it.
type lane struct {
	name string
	conn *pgx.Conn
}

const resetSQL = `
	DROP SCHEMA IF EXISTS app CASCADE;
	CREATE SCHEMA app AUTHORIZATION app;
	SELECT lo_unlink(oid) FROM pg_largeobject_metadata;`

// reset makes the lane what it was, once the sessions before are gone, and
// carries SQL out as the scripts' role.
func (l *lane) reset(ctx context.Context, p *wire.Player, setup []string) error {
	if err := p.Until(ctx, "SELECT count(*) = 0 FROM session"); err != nil {
		return fmt.Errorf("sessions were left behind: %w", err)
	}
	if err := l.Exec(ctx, resetSQL); err != nil {
		return err
	}
	for _, sql := range setup {
		if err := l.Exec(ctx, "SET ROLE app; SET search_path = app, public; "+sql+"; RESET search_path; RESET ROLE"); err != nil {
			return err
		}
	}
	return nil
}

// resetServer takes back what a script that was alone changed.
func (l *lane) resetServer(ctx context.Context, p *wire.Player) error {
	for _, sql := range []string{"ALTER SYSTEM RESET ALL", "SELECT pg_reload_conf()", "ALTER ROLE app CONNECTION LIMIT -1"} {
		if err := l.Exec(ctx, sql); err != nil {
			return err
		}
	}
	return p.Until(ctx, "SELECT count(*) = 0 FROM pg_settings WHERE sourcefile LIKE '%postgresql.auto.conf'")
}

// Exec carries SQL out as the superuser.
func (l *lane) Exec(ctx context.Context, sql string) error {
	if _, err := l.conn.Exec(ctx, sql); err != nil {
		return fmt.Errorf("%s: %w", sql, err)
	}
	return nil
}

// True asks a query of one boolean.
func (l *lane) True(ctx context.Context, sql string) (ok bool, err error) {
	err = l.conn.QueryRow(ctx, "SELECT coalesce(("+sql+"), false)", pgx.QueryExecModeSimpleProtocol).Scan(&ok)
	return ok, err
}
