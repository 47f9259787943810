package steps_test

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fenceproxy/fenceproxy/fencing"
	"github.com/fenceproxy/fenceproxy/leases"
	"github.com/fenceproxy/fenceproxy/leases/embedded"
	"github.com/fenceproxy/fenceproxy/testharness/dial"
	"github.com/fenceproxy/fenceproxy/testharness/etcdtest"
	"github.com/fenceproxy/fenceproxy/testharness/history"
	"github.com/fenceproxy/fenceproxy/testharness/postgres"
)

// role is the one that the workers log in as, which owns their tables.
const role = "app"

// schema is what the workers write to. A counter numbers the commits of a key;
// the operator writes and looks like a read.
const schema = `
	CREATE TABLE counter (key text PRIMARY KEY, n bigint NOT NULL) WITH (fillfactor = 50);
	CREATE TABLE entry (id bigint PRIMARY KEY, key text NOT NULL, token bigint NOT NULL, n bigint);
	CREATE INDEX ON entry (key);
	CREATE FUNCTION put(p_id bigint, p_key text, p_token bigint) RETURNS bigint LANGUAGE sql AS $$
		WITH c AS (UPDATE counter SET n = n + 1 WHERE key = p_key RETURNING n)
		INSERT INTO entry SELECT p_id, p_key, p_token, c.n FROM c RETURNING n $$;
	CREATE FUNCTION put_as(p_id bigint, p_tag text) RETURNS bigint LANGUAGE sql AS $$
		SELECT put(p_id, split_part(p_tag, ' ', 1), split_part(p_tag, ' ', 2)::bigint) $$;
	CREATE OPERATOR <# (LEFTARG = bigint, RIGHTARG = text, FUNCTION = put_as)`

// A ground is a PostgreSQL and an etcd, which the lanes share.
type ground struct {
	pg   *postgres.Server
	etcd *embedded.Etcd
}

func newGround(t *testing.T) *ground {
	t.Helper()
	g := &ground{pg: postgres.New(t, postgres.Options{Config: []string{"autovacuum = off"}}), etcd: etcdtest.New(t)}
	admin := dial.Connect(t, g.pg.DSN(postgres.Superuser, "postgres"))
	dial.Exec(t, admin, "CREATE ROLE "+role+" LOGIN")
	return g
}

// A lane is a database with two proxies before it, and plays one after the
// other.
type lane struct {
	t     *testing.T
	name  string
	dsn   string // of the database, straight
	admin *pgx.Conn
	// surgeon ends sessions while the lane waits for something.
	surgeon *pgx.Conn
	etcd    *clientv3.Client
	steps   *meter
	sides   [2]*side
	plays   int64
	now     *play // the one that goes on
}

// besides is the other side.
func (l *lane) besides(s *side) *side {
	if s == l.sides[0] {
		return l.sides[1]
	}
	return l.sides[0]
}

// newLane makes a lane whose proxies are new ones of proxies.
func (g *ground) newLane(t *testing.T, name string, proxies func() program) *lane {
	t.Helper()
	root := dial.Connect(t, g.pg.DSN(postgres.Superuser, "postgres"))
	dial.Exec(t, root, "CREATE DATABASE "+name+" OWNER "+role)
	l := &lane{t: t, name: name, dsn: g.pg.DSN(postgres.Superuser, name), steps: &meter{}}
	l.admin, l.surgeon = dial.Connect(t, l.dsn), dial.Connect(t, l.dsn)
	if _, _, err := fencing.Install(t.Context(), l.admin); err != nil {
		t.Fatal(err)
	}
	owner := dial.Connect(t, g.pg.DSN(role, name))
	dial.Exec(t, owner, "CREATE SCHEMA "+role)
	dial.Exec(t, owner, schema)
	owner.Close(context.Background())
	dial.Exec(t, l.admin, "SET search_path = "+role)
	var err error
	if l.etcd, err = leases.NewClient([]string{g.etcd.Endpoint()}, nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.etcd.Close() })
	for i := range l.sides {
		l.sides[i] = newSide(t, l, g, proxies())
	}
	return l
}

// hold has a client take a lock, from whoever holds it, and says so in the
// history.
func (p *play) hold(key string) fencing.Token {
	ctx, lo := p.lane.t.Context(), history.Now()
	if before := p.places[key]; before != "" {
		gone, err := p.lane.etcd.Delete(ctx, before)
		if err != nil {
			p.lane.t.Fatal(err)
		}
		p.locks = append(p.locks, history.LockEvent{Key: key, Place: before, Token: p.holds[key], Gone: true,
			Revision: gone.Header.Revision, When: history.Span{Lo: lo, Hi: history.Now()}})
	}
	p.turns++
	place := leases.LockPrefix(leases.DefaultPrefix, key) + "/" + strconv.Itoa(p.turns)
	lo = history.Now()
	put, err := p.lane.etcd.Put(ctx, place, "")
	if err != nil {
		p.lane.t.Fatal(err)
	}
	token := fencing.Token(put.Header.Revision)
	p.locks = append(p.locks, history.LockEvent{Key: key, Place: place, Token: token,
		Revision: put.Header.Revision, When: history.Span{Lo: lo, Hi: history.Now()}})
	p.places[key], p.holds[key] = place, token
	return token
}

// endSessions ends all sessions of the proxies in PostgreSQL, those of claims
// too.
func (l *lane) endSessions() error {
	_, err := l.surgeon.Exec(context.Background(), `SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity
		WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid() AND pid <> $1`, l.admin.PgConn().PID())
	return err
}

// quiet waits until no session of a worker is left, and no claim runs.
func (l *lane) quiet() error {
	for late := time.Now().Add(patience); ; {
		var busy int
		err := l.admin.QueryRow(l.t.Context(), `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND backend_type = 'client backend'
			AND (usename = $1 OR state <> 'idle' AND pid <> pg_backend_pid())`, role).Scan(&busy)
		if err != nil || busy == 0 {
			return err
		}
		if time.Now().After(late) {
			return fmt.Errorf("%d sessions were left behind", busy)
		}
	}
}
