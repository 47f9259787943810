package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/fenceproxy/fenceproxy/leases"
	"github.com/fenceproxy/fenceproxy/leases/embedded"
	"github.com/fenceproxy/fenceproxy/proxy"
	"github.com/fenceproxy/fenceproxy/proxy/console"
	"github.com/fenceproxy/fenceproxy/proxy/live"
	harness "github.com/fenceproxy/fenceproxy/testharness/command"
	"github.com/fenceproxy/fenceproxy/testharness/postgres"
	"github.com/fenceproxy/fenceproxy/testharness/stack"
)

// devCommand is a playground: PostgreSQL, etcd and a proxy that are gone when
// it ends.
type devCommand struct {
	listen       loopback
	adminListen  loopback
	etcdListen   loopback
	postgresPort port
}

// devDatabase is the database that dev makes.
const devDatabase = "app"

func newDev() *cobra.Command {
	c := &devCommand{listen: loopback{"127.0.0.1:0"}, adminListen: loopback{"127.0.0.1:0"}, etcdListen: loopback{"127.0.0.1:0"}}
	cmd := &cobra.Command{
		Use:        "dev",
		SuggestFor: []string{"playground", "sandbox"},
		Short:      "Run a throw-away PostgreSQL, etcd and proxy to try things with",
		Long: `Run a throw-away PostgreSQL with schema fence, an etcd and a proxy, and print what to type
next. Ctrl-C, or a terminal that closes, ends and removes all of it.`,
		Args: exactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stdout, stop := harness.Audience(cmd.Context(), cmd.OutOrStdout())
			defer stop()
			return c.run(ctx, stdout, cmd.Flags())
		},
	}
	flags := cmd.Flags()
	flags.Var(&c.listen, "listen", "where PostgreSQL clients connect (loopback only); port 0 takes a free one")
	flags.Var(&c.adminListen, "admin-listen", "where the dashboard is (loopback only); port 0 takes a free one")
	flags.Var(&c.etcdListen, "etcd-listen", "where etcd listens (loopback only); port 0 takes a free one")
	flags.Var(&c.postgresPort, "postgres-port", "port of the PostgreSQL behind the proxy; 0 takes a free one")
	return cmd
}

func (c *devCommand) run(ctx context.Context, stdout io.Writer, flags *pflag.FlagSet) (err error) {
	s, err := stack.Start(ctx, stack.Options{
		Postgres: postgres.Options{Port: int(c.postgresPort)},
		EtcdAddr: c.etcdListen.String(),
	})
	switch {
	case errors.Is(err, postgres.ErrPortTaken):
		return listenError("--postgres-port", c.postgresPort.String(), err)
	case errors.Is(err, embedded.ErrAddrInUse):
		return fmt.Errorf("--etcd-listen: %w", err)
	case err != nil:
		return err
	}
	defer func() {
		if closed := s.Close(); err == nil {
			err = closed
		}
	}()
	if err := furnish(ctx, s); err != nil {
		return err
	}
	p, err := s.OpenProxy(devDatabase, c.listen.String(), nil)
	var taken *net.OpError
	switch {
	case errors.As(err, &taken) && taken.Op == "listen":
		return listenError("--listen", c.listen.String(), err)
	case err != nil:
		return err
	}
	adminPort, err := listen("--admin-listen", c.adminListen.address)
	if err != nil {
		return err
	}
	stop := c.show(s, p, adminPort, flags)
	defer func() { err = errors.Join(err, stop()) }()
	p.Serve()
	if _, err := io.WriteString(stdout, c.guide(s, p, adminPort)); err != nil {
		return err
	}
	<-ctx.Done()
	fmt.Fprintln(stdout, "\nRemoved.")
	return nil
}

// furnish makes a database with something in it to write to.
func furnish(ctx context.Context, s *stack.Stack) error {
	if err := s.CreateDatabase(ctx, devDatabase); err != nil {
		return err
	}
	if err := s.Install(ctx, devDatabase); err != nil {
		return err
	}
	conn, err := pgx.Connect(ctx, s.DSN(stack.RoleApp, devDatabase))
	if err != nil {
		return fmt.Errorf("connect for the first table: %w", err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	_, err = conn.Exec(ctx, `CREATE TABLE orders (id int PRIMARY KEY, status text); INSERT INTO orders VALUES (8472, 'new')`)
	return err
}

// show answers on the admin port until the function that it returns is called, and
// has the proxy answer on its console, as serve does.
func (c *devCommand) show(s *stack.Stack, p *stack.Proxy, ln net.Listener, flags *pflag.FlagSet) (stop func() error) {
	registry := prometheus.NewRegistry()
	logger := slog.New(slog.DiscardHandler)
	p.Claimer.Observer = newClaimObserver(logger, registry, p.Server.Journal)
	p.Server.Metrics = proxy.NewMetrics(registry)
	registry.MustRegister(p.Server)
	authority := leases.NewAuthority(s.Client)
	program := devProgram{newServing(flags)}
	program.gatherer = registry
	p.Server.Console = newConsole(p.Server, p.Store, authority, program)
	p.Server.Settings.Console = console.Settings{Database: console.DefaultDatabase, Admins: []string{stack.RoleApp}}
	open := newAdminFlags()
	admin := newAdmin(registry, open.newPage(p.Server, p.Store, authority, logger), nil, newProbe("etcd", authority.Ping))
	admin.count(registry)
	served := make(chan error, 1)
	go func() { served <- admin.serve(ln) }()
	return func() error {
		admin.close()
		return <-served
	}
}

// A devProgram is what dev tells on its console.
type devProgram struct{ *serving }

// errNoSettings: serve reads settings anew.
var errNoSettings = errors.New("fenceproxy dev has its flags and no settings to read")

// Reload has nothing to read.
func (devProgram) Reload(context.Context) (live.Reloaded, error) {
	return live.Reloaded{}, errNoSettings
}

// guide is what to paste into another terminal.
func (c *devCommand) guide(s *stack.Stack, p *stack.Proxy, admin net.Listener) string {
	return strings.NewReplacer(
		"{fenceproxy}", shellQuote(ownCommand(os.Args[0])),
		"{etcd}", s.Etcd.Endpoint(),
		"{psql}", "psql "+shellQuote(s.ProxyDSN(p.Addr(), stack.RoleApp, devDatabase)),
		"{console}", "psql "+shellQuote(s.ProxyDSN(p.Addr(), stack.RoleApp, console.DefaultDatabase)),
		"{proxy}", p.Addr(),
		"{admin}", admin.Addr().String(),
		"{postgres}", s.Postgres.Addr(),
	).Replace(`proxy       {proxy}
dashboard   http://{admin}/
PostgreSQL  {postgres} (behind it)
etcd        {etcd}

Paste into another terminal. Without a tag, everything is as ever:

  {psql} -c "TABLE orders"

Hold a lock while psql runs; its session carries the lock's token:

  {fenceproxy} lock order:8472 --etcd {etcd} -- {psql} -c "SHOW fence.token" -c "UPDATE orders SET status = 'paid'"

Be a holder of long ago, with token 1. This write is refused (LF001):

  PGOPTIONS='-c fence.key=order:8472 -c fence.token=1' {psql} -v VERBOSITY=verbose -c "UPDATE orders SET status = 'lost'"

Take a lock with nothing but SQL. It is given back when the session ends:

  {psql} -c "SELECT * FROM fence.acquire('order:8472', '30s')" -c "UPDATE orders SET status = 'sent'"

Ask the proxy's console what was refused, and why (SHOW HELP tells the rest):

  {console} -x -c "SHOW REJECTIONS"

See a holder that is really paused: {fenceproxy} demo

Ctrl-C here ends and removes all of it.
`)
}

// ownCommand is what calls this program, which was called so, from whatever
// folder: its name if PATH leads to it, else where it is.
func ownCommand(called string) string {
	self, err := os.Executable()
	if err != nil {
		return called
	}
	name := filepath.Base(called)
	found, err := exec.LookPath(name)
	if err != nil || !sameFile(found, self) {
		return self
	}
	return name
}

func sameFile(a, b string) bool {
	one, err := os.Stat(a)
	if err != nil {
		return false
	}
	other, err := os.Stat(b)
	return err == nil && os.SameFile(one, other)
}

// shellQuote makes a word of s for a POSIX shell.
func shellQuote(s string) string {
	const safe = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:@%+="
	if s != "" && strings.Trim(s, safe) == "" {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
