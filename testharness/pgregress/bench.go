package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fenceproxy/fenceproxy/leases"
	"github.com/fenceproxy/fenceproxy/testharness/postgres"
	"github.com/fenceproxy/fenceproxy/testharness/stack"
)

// lockKey is what the tagged leg's sessions hold.
const lockKey = "pg-regress"

// proxyDatabase is what the proxy's own DSN names.
const proxyDatabase = "fenceproxy"

// startTimeout bounds the start of a proxy.
const startTimeout = 30 * time.Second

// settings are what the suites want of a server: those of pg_regress's own
// temporary server, where they matter, and memory as a server comes, which
// plans depend on.
var settings = []string{
	"max_prepared_transactions = 10",
	"shared_buffers = 128MB",
	"max_connections = 100",
	"track_commit_timestamp = on",
	"log_lock_waits = on",
}

// A bench is what a suite is run on: a server, and on the legs that have one,
// a proxy before it.
type bench struct {
	leg     leg
	suite   string // the suite's name
	files   string // what fetch-regress.sh made
	base    string // where the output of all legs goes
	out     string // where this one's goes
	results string // the part of it that the server may write to

	addr  string // host:port of the leg
	tag   string // PGOPTIONS of the tagged leg
	stack *stack.Stack
}

// openBench starts a bench. The caller closes it.
func openBench(ctx context.Context, o options, suite string, l leg, database string) (*bench, error) {
	b := &bench{leg: l, suite: suite, files: o.files, base: o.out}
	b.out = b.beside(l)
	if err := b.start(ctx, o, database); err != nil {
		return nil, errors.Join(fmt.Errorf("%s, %v: %w", suite, l, err), b.close())
	}
	return b, nil
}

func (b *bench) start(ctx context.Context, o options, database string) (err error) {
	if err := errors.Join(os.RemoveAll(b.out), os.MkdirAll(b.out, 0o755)); err != nil {
		return fmt.Errorf("make the folder of the output: %w", err)
	}
	// The suites log in as roles of their own, which have no passwords.
	hba := filepath.Join(b.out, "pg_hba.conf")
	if err := os.WriteFile(hba, []byte("host all all 127.0.0.1/32 trust\n"), 0o644); err != nil {
		return fmt.Errorf("write pg_hba.conf: %w", err)
	}
	config := append([]string{"hba_file = '" + hba + "'"}, settings...)
	if b.leg.hasSchema() {
		// Without VACUUM plans would depend on when it comes.
		config = append(config, "autovacuum = off")
	}
	if b.stack, err = stack.Start(ctx, stack.Options{Postgres: postgres.Options{Config: config}}); err != nil {
		return err
	}
	if err := b.makeResults(); err != nil {
		return fmt.Errorf("make the folder of results: %w", err)
	}
	if err := b.stack.CreateDatabase(ctx, proxyDatabase); err != nil {
		return err
	}
	if err := b.stack.Install(ctx, proxyDatabase); err != nil {
		return err
	}
	if err := b.makeDatabase(ctx, database); err != nil {
		return err
	}
	b.addr = b.stack.Postgres.Addr()
	if !b.leg.throughProxy() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	process, err := b.stack.StartProcess(ctx, proxyDatabase, []string{o.program})
	if err != nil {
		return err
	}
	b.addr = process.Addr
	if b.leg != tagged {
		return nil
	}
	lease, err := leases.NewLocker(b.stack.Client).TryAcquire(ctx, lockKey)
	if err != nil {
		return err
	}
	b.tag = fmt.Sprintf("-c fence.key=%s -c fence.token=%v", lockKey, lease.Token())
	return nil
}

// beside is where a leg of this suite has its output.
func (b *bench) beside(l leg) string { return filepath.Join(b.base, b.suite+"-"+l.String()) }

// makeResults makes a folder that the server may write to, whoever it runs as.
func (b *bench) makeResults() error {
	b.results = filepath.Join(b.out, "results")
	if err := os.MkdirAll(b.results, 0o755); err != nil {
		return err
	}
	info, err := os.Stat(b.stack.Postgres.DataDir())
	if err != nil {
		return err
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	if !ok || int(owner.Uid) == os.Geteuid() {
		return nil
	}
	return os.Lchown(b.results, int(owner.Uid), int(owner.Gid))
}

// databaseSettings are those that pg_regress gives a database that it creates.
var databaseSettings = []string{
	"lc_messages TO 'C'", "lc_monetary TO 'C'", "lc_numeric TO 'C'", "lc_time TO 'C'",
	"bytea_output TO 'hex'", "timezone_abbreviations TO 'Default'",
}

// makeDatabase makes the suite's database with schema fence on the legs that
// have it: a tagged session couldn't create one.
func (b *bench) makeDatabase(ctx context.Context, name string) error {
	if !b.leg.hasSchema() {
		return nil
	}
	conn, err := pgx.Connect(ctx, b.stack.DSN(postgres.Superuser, postgres.Superuser))
	if err != nil {
		return fmt.Errorf("connect to make the database: %w", err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	statements := []string{"CREATE DATABASE " + name + " TEMPLATE template0", "GRANT CREATE ON DATABASE " + name + " TO " + stack.RoleFence}
	for _, setting := range databaseSettings {
		statements = append(statements, "ALTER DATABASE "+name+" SET "+setting)
	}
	for _, sql := range statements {
		if _, err := conn.Exec(ctx, sql); err != nil {
			return fmt.Errorf("make the database: %w", err)
		}
	}
	return b.stack.Install(ctx, name)
}

// close ends the servers; what the suite wrote stays.
func (b *bench) close() error {
	if b.stack == nil {
		return nil
	}
	return b.stack.Close()
}

// bin is the folder of PostgreSQL's programs.
func (b *bench) bin() string { return filepath.Dir(b.stack.Postgres.Program("postgres")) }

// pgxs is a program that PostgreSQL's package keeps for the tests of others.
func (b *bench) pgxs(name string) string {
	return filepath.Join(filepath.Dir(b.bin()), "lib", "pgxs", "src", "test", name)
}

// source is a folder of PostgreSQL's source below src/test.
func (b *bench) source(name string) string { return filepath.Join(b.files, "src", name) }

// command is a program that finds the leg in its environment.
func (b *bench) command(ctx context.Context, program string, args ...string) *exec.Cmd {
	host, port, _ := net.SplitHostPort(b.addr) // both of our own making
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = b.out
	for _, entry := range os.Environ() {
		if !strings.HasPrefix(entry, "PG") && !strings.HasPrefix(entry, "LC_") && !strings.HasPrefix(entry, "LANG") {
			cmd.Env = append(cmd.Env, entry)
		}
	}
	cmd.Env = append(cmd.Env, "LC_ALL=C", "TZ=UTC", "PGHOST="+host, "PGPORT="+port, "PGUSER="+postgres.Superuser, "PGOPTIONS="+b.tag)
	return cmd
}
