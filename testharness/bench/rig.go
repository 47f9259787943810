package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"
	"syscall"

	"github.com/jackc/pgx/v5"

	"github.com/fenceproxy/fenceproxy/fencing"
	"github.com/fenceproxy/fenceproxy/leases"
	"github.com/fenceproxy/fenceproxy/testharness/certs"
	"github.com/fenceproxy/fenceproxy/testharness/postgres"
	"github.com/fenceproxy/fenceproxy/testharness/stack"
)

const (
	// database is what all workloads run in.
	database = "app"
	// lockKey is what tagged sessions hold.
	lockKey = "bench"
)

// A rig is what workloads are played on: PostgreSQL, etcd, and the servers of
// the routes, each started when it is first wanted.
type rig struct {
	program   string // fenceproxy
	etcd      *stack.Member
	etcdDir   string // its data
	stack     *stack.Stack
	dir       string // configurations, scripts and logs
	cert, key string
	passwords string // the password file of PgBouncer and fenceproxy
	peers     map[route]*peer
	lease     *leases.Lease
	durable   bool // PostgreSQL's fsync is on
	filled    map[tables]bool
	cleanups  []func()
}

// Helper, Cleanup and Fatal make the rig a certs.TB.

// Helper does nothing.
func (r *rig) Helper() {}

// Cleanup has f called at the end.
func (r *rig) Cleanup(f func()) { r.cleanups = append(r.cleanups, f) }

// Fatal ends the program: there is no key, or no room for it.
func (r *rig) Fatal(args ...any) { panic(fmt.Sprint(args...)) }

// newRig starts PostgreSQL with settings of its own and etcd, and takes the
// lock that tagged sessions present.
func newRig(ctx context.Context, program string, settings ...string) (*rig, error) {
	r := &rig{program: program, peers: map[route]*peer{}, filled: map[tables]bool{}}
	if err := r.start(ctx, settings); err != nil {
		return nil, errors.Join(err, r.close())
	}
	return r, nil
}

func (r *rig) start(ctx context.Context, settings []string) (err error) {
	if err := raiseFileLimit(); err != nil {
		return err
	}
	ca := certs.New(r)
	r.cert, r.key = ca.Files(ca.Leaf("postgres"))
	settings = append([]string{
		"ssl = on", "ssl_cert_file = '" + r.cert + "'", "ssl_key_file = '" + r.key + "'",
		"autovacuum = off", "jit = off", "max_wal_size = 4GB", "checkpoint_timeout = 1h",
	}, settings...)
	if err := r.startEtcd(); err != nil {
		return err
	}
	options := stack.Options{Postgres: postgres.Options{Config: settings}, Endpoints: []string{"http://" + r.etcd.Client}}
	if r.stack, err = stack.Start(ctx, options); err != nil {
		return err
	}
	if err := errors.Join(r.stack.CreateDatabase(ctx, database), r.stack.Install(ctx, database)); err != nil {
		return err
	}
	if r.dir, err = os.MkdirTemp("", "fenceproxy-bench-"); err != nil {
		return fmt.Errorf("make a folder: %w", err)
	}
	if err := r.give(r.dir); err != nil {
		return err
	}
	if err := r.writePasswords(ctx); err != nil {
		return err
	}
	r.lease, err = leases.NewLocker(r.stack.Client).Acquire(ctx, lockKey)
	return err
}

// claim has the lock's token accepted, for contenders that come round the
// proxy with it.
func (r *rig) claim(ctx context.Context) error {
	conn, err := r.connect(ctx, contender{name: "the lock's holder", route: fenceproxy, tag: true})
	if err != nil {
		return err
	}
	return conn.Close(ctx)
}

// writePasswords writes PostgreSQL's own SCRAM secret: with the password itself
// a login would cost its server thousands of hashes more.
func (r *rig) writePasswords(ctx context.Context) error {
	conn, err := pgx.Connect(ctx, r.stack.DSN(postgres.Superuser, database))
	if err != nil {
		return fmt.Errorf("connect for the secret of %s: %w", stack.RoleApp, err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	var secret string
	if err := conn.QueryRow(ctx, "SELECT rolpassword FROM pg_authid WHERE rolname = $1", stack.RoleApp).Scan(&secret); err != nil {
		return fmt.Errorf("read the secret of %s: %w", stack.RoleApp, err)
	}
	r.passwords, err = r.write("userlist.txt", fmt.Sprintf("%q %q\n", stack.RoleApp, secret))
	return err
}

// raiseFileLimit raises it for us and, because we did it, for what we start.
func raiseFileLimit() error {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return fmt.Errorf("read the limit of open files: %w", err)
	}
	limit.Cur = limit.Max
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return fmt.Errorf("raise the limit of open files: %w", err)
	}
	return nil
}

func (r *rig) close() error {
	var errs []error
	if r.lease != nil {
		errs = append(errs, r.lease.Release(context.Background()))
	}
	for _, p := range r.peers {
		p.stop()
	}
	if r.stack != nil {
		errs = append(errs, r.stack.Close())
	}
	if r.etcd != nil {
		errs = append(errs, r.etcd.Kill())
	}
	for _, dir := range []string{r.etcdDir, r.dir} {
		if dir != "" {
			errs = append(errs, os.RemoveAll(dir))
		}
	}
	for _, f := range r.cleanups {
		f()
	}
	return errors.Join(errs...)
}

// password is that of the applications' role.
func (r *rig) password() string {
	u, err := url.Parse(r.stack.DSN(stack.RoleApp, database))
	if err != nil {
		panic(err) // the stack makes URLs
	}
	password, _ := u.User.Password()
	return password
}

// environment is how a program of PostgreSQL's connects as a contender.
func (r *rig) environment(p *peer, c contender) []string {
	host, port, _ := net.SplitHostPort(p.addr)
	mode := "disable"
	if c.tls {
		mode = "require"
	}
	env := []string{
		"PGHOST=" + host, "PGPORT=" + port, "PGUSER=" + stack.RoleApp, "PGPASSWORD=" + r.password(), "PGDATABASE=" + database,
		"PGSSLMODE=" + mode, "PGGSSENCMODE=disable",
	}
	if c.tag {
		env = append(env, fmt.Sprintf("PGOPTIONS=-c %s=%s -c %s=%v", fencing.SettingKey, lockKey, fencing.SettingToken, r.lease.Token()))
	}
	for _, entry := range os.Environ() {
		if !strings.HasPrefix(entry, "PG") {
			env = append(env, entry)
		}
	}
	return env
}

// config is how our own client connects as a contender.
func (r *rig) config(p *peer, c contender) (*pgx.ConnConfig, error) {
	config, err := pgx.ParseConfig(r.stack.ProxyDSN(p.addr, stack.RoleApp, database))
	if err != nil {
		return nil, fmt.Errorf("make the DSN of %s: %w", c.name, err)
	}
	if c.tls {
		config.TLSConfig = &tls.Config{InsecureSkipVerify: true} // as sslmode=require has it
	}
	if c.tag {
		config.RuntimeParams[fencing.SettingKey] = lockKey
		config.RuntimeParams[fencing.SettingToken] = r.lease.Token().String()
	}
	return config, nil
}

// connect opens a session of a contender.
func (r *rig) connect(ctx context.Context, c contender) (*pgx.Conn, error) {
	p, err := r.peer(ctx, c.route)
	if err != nil {
		return nil, err
	}
	config, err := r.config(p, c)
	if err != nil {
		return nil, err
	}
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("connect as %s: %w", c.name, err)
	}
	return conn, nil
}

// admin runs statements straight in the database, each on its own.
func (r *rig) admin(ctx context.Context, role string, statements ...string) error {
	conn, err := pgx.Connect(ctx, r.stack.DSN(role, database))
	if err != nil {
		return fmt.Errorf("connect to set up: %w", err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	for _, sql := range statements {
		if _, err := conn.Exec(ctx, sql); err != nil {
			return fmt.Errorf("set up: %w", err)
		}
	}
	return nil
}

// makeDurable has PostgreSQL write through to the disk, or not.
func (r *rig) makeDurable(ctx context.Context, durable bool) error {
	if r.durable == durable {
		return nil
	}
	state := "off"
	if durable {
		state = "on"
	}
	err := r.admin(ctx, postgres.Superuser, "ALTER SYSTEM SET fsync = "+state, "ALTER SYSTEM SET full_page_writes = "+state,
		"SELECT pg_reload_conf()", "CHECKPOINT")
	if err == nil {
		r.durable = durable
	}
	return err
}
