package fencing

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// The connections that a Store keeps for each database, at most.
const (
	// DefaultClaimConns bounds the claims that wait at the same time.
	DefaultClaimConns = 16
	// DefaultWatchConns serves the short queries: looking at marks, and
	// ending what blocks claims.
	DefaultWatchConns = 4
)

// The application names of a Store's connections. An eviction knows other
// proxies' claims by the first, and leaves them alone.
const (
	ClaimApplication = "fenceproxy claim"
	WatchApplication = "fenceproxy watch"
)

// idleFor is how long an unused connection is kept.
const idleFor = 5 * time.Minute

// A Store reads and raises marks, in the databases of one PostgreSQL server.
// Its connections are made when they are first needed.
type Store struct {
	// ClaimConns and WatchConns may be set before the first use.
	ClaimConns, WatchConns int32

	config *pgxpool.Config // of the DSN's own database

	mu     sync.Mutex
	closed bool
	pools  map[string]*pools // by database
}

// pools are the two pools of one database: waiting claims fill the first, and
// must not starve those that end what they wait for.
type pools struct {
	claim, watch *pgxpool.Pool
}

// NewStore returns a Store for the server and role of dsn, a libpq connection
// string or URL. It doesn't connect yet.
func NewStore(dsn string) (*Store, error) {
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, fmt.Errorf("read the upstream connection string: %w", err)
	}
	return NewStoreOf(config), nil
}

// NewStoreOf returns a Store for the server and role of a configuration, which
// must have been made by pgxpool.ParseConfig and stays as it is.
func NewStoreOf(config *pgxpool.Config) *Store {
	return &Store{
		ClaimConns: DefaultClaimConns,
		WatchConns: DefaultWatchConns,
		config:     config,
		pools:      map[string]*pools{},
	}
}

// Database returns the name of the DSN's own database.
func (s *Store) Database() string { return s.config.ConnConfig.Database }

// Databases returns the names of the databases that were used, and the DSN's
// own.
func (s *Store) Databases() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	names := map[string]bool{s.Database(): true}
	for name := range s.pools {
		names[name] = true
	}
	return slices.Sorted(maps.Keys(names))
}

// Close closes the connections, and waits for those that are in use. No call
// of the Store may follow.
func (s *Store) Close() {
	s.mu.Lock()
	s.closed = true
	all := s.pools
	s.pools = map[string]*pools{}
	s.mu.Unlock()
	for _, p := range all {
		p.claim.Close()
		p.watch.Close()
	}
}

var errStoreClosed = errors.New("the store of marks is closed")

func (s *Store) of(database string) (*pools, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, errStoreClosed
	}
	if p, ok := s.pools[database]; ok {
		return p, nil
	}
	claim, err := s.pool(database, ClaimApplication, s.ClaimConns)
	if err != nil {
		return nil, err
	}
	watch, err := s.pool(database, WatchApplication, s.WatchConns)
	if err != nil {
		claim.Close()
		return nil, err
	}
	p := &pools{claim: claim, watch: watch}
	s.pools[database] = p
	return p, nil
}

// forsake closes the connections to a database that were kept and aren't in
// use, now that one of them was found to be broken.
func (s *Store) forsake(database string) {
	s.mu.Lock()
	p := s.pools[database]
	s.mu.Unlock()
	if p != nil {
		p.claim.Reset()
		p.watch.Reset()
	}
}

// A reader asks a database. A question that finds its connection broken is put
// once more: it was kept, and may have been cut since.
type reader struct {
	store    *Store
	database string
}

func (s *Store) reader(database string) reader { return reader{s, database} }

// QueryRow puts a question when its answer is scanned.
func (r reader) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	return &question{r, ctx, sql, args}
}

type question struct {
	reader
	ctx  context.Context
	sql  string
	args []any
}

// Scan reads the one row of the answer.
func (q *question) Scan(into ...any) error {
	p, err := q.store.of(q.database)
	if err != nil {
		return err
	}
	ask := func() error { return p.watch.QueryRow(q.ctx, q.sql, q.args...).Scan(into...) }
	err = ask()
	if err == nil || answered(err) || errors.Is(err, pgx.ErrNoRows) || q.ctx.Err() != nil {
		return err
	}
	q.store.forsake(q.database)
	return ask()
}

// pool makes a pool without connecting.
func (s *Store) pool(database, application string, most int32) (*pgxpool.Pool, error) {
	config := s.config.Copy()
	config.MinConns, config.MinIdleConns, config.MaxConns = 0, 0, most
	config.MaxConnIdleTime = idleFor
	config.ConnConfig.Database = database
	// One round trip for each query, and nothing prepared that an upgrade of
	// the schema could make invalid.
	config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
	// Startup parameters win over what the DSN's options, the role and the
	// database have set.
	for name, value := range map[string]string{
		"application_name":              application,
		"search_path":                   "pg_catalog, pg_temp",
		"default_transaction_isolation": "read committed",
		"default_transaction_read_only": "off",
		"datestyle":                     "ISO", // what pgx reads times in
	} {
		config.ConnConfig.RuntimeParams[name] = value
	}
	if application == ClaimApplication {
		config.ConnConfig.OnNotice = keepWarning
		// A question whether the server is there, put to a connection that was
		// idle, would be a third round trip of a claim that comes alone. One that
		// finds its connection broken tries once more: see forsake.
		config.ShouldPing = func(context.Context, pgxpool.ShouldPingParams) bool { return false }
		before := config.BeforeConnect
		config.BeforeConnect = func(ctx context.Context, c *pgx.ConnConfig) error {
			neverCancel(c)
			if before != nil {
				return before(ctx, c)
			}
			return nil
		}
	}
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	if err != nil {
		return nil, fmt.Errorf("make a pool for database %s: %w", database, err)
	}
	return pool, nil
}

var errNoCancel = errors.New("claims are not cancelled")

// neverCancel keeps a connection from sending a cancel request when its query
// is given up. A claim that has committed and waits for its standby would be
// answered by it: visible to everyone, and not replicated. A claim that waits
// for a lock ends by its own time-outs.
func neverCancel(c *pgx.ConnConfig) {
	var connected atomic.Bool
	dial, after := c.DialFunc, c.AfterConnect
	c.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		if connected.Load() {
			return nil, errNoCancel
		}
		return dial(ctx, network, addr)
	}
	c.AfterConnect = func(ctx context.Context, conn *pgconn.PgConn) error {
		connected.Store(true)
		if after == nil {
			return nil
		}
		return after(ctx, conn)
	}
}

// warned is where a claim connection keeps the last warning, in its custom data.
const warned = "fenceproxy warning"

func keepWarning(conn *pgconn.PgConn, n *pgconn.Notice) {
	if n.SeverityUnlocalized == "WARNING" {
		conn.CustomData()[warned] = n.Message
	}
}

// claimsFull says whether every claim connection to database is in use.
func (s *Store) claimsFull(database string) (bool, int32) {
	p, err := s.of(database)
	if err != nil {
		return false, 0
	}
	stat := p.claim.Stat()
	return stat.AcquiredConns() >= stat.MaxConns(), stat.MaxConns()
}

// InitCommand returns the command line that installs schema fence in database,
// without a password.
func (s *Store) InitCommand(database string) string {
	c := s.config.ConnConfig
	u := url.URL{Scheme: "postgres", User: url.User(c.User), Path: "/" + database}
	if network, _ := pgconn.NetworkAddress(c.Host, c.Port); network == "unix" {
		u.RawQuery = url.Values{"host": {c.Host}, "port": {strconv.Itoa(int(c.Port))}}.Encode()
	} else {
		u.Host = net.JoinHostPort(c.Host, strconv.Itoa(int(c.Port)))
	}
	return "fenceproxy init --upstream '" + u.String() + "'"
}
