package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"

	"github.com/fenceproxy/fenceproxy/fencing"
	"github.com/fenceproxy/fenceproxy/leases"
	"github.com/fenceproxy/fenceproxy/leases/embedded"
	"github.com/fenceproxy/fenceproxy/proxy"
)

// defaultDrainTimeout is how long sessions may take to end their transaction
// when the proxy is asked to stop.
const defaultDrainTimeout = 30 * time.Second

// serveCommand is the proxy itself.
type serveCommand struct {
	upstream upstreamFlags
	etcd     etcdFlags
	tls      clientTLSFlags
	life     lifetimeFlags
	policy   policyFlags
	console  consoleFlags
	lending  lendingFlags
	admin    adminFlags
	authFile string
	config   string
	verify   bool                     // the settings, and nothing else
	origin   func(flag string) string // what set a flag

	listen         address
	insecureListen toggle
	etcdListen     loopback

	embedDir      string
	evictAfter    span
	claimTimeout  span
	verifyTimeout span
	drainTimeout  span
	markRetention wait
	cancelPeers   peers
	otlpEndpoint  collectorURL
	logLevel      choice
	logFormat     choice
}

func newServeCommand() *serveCommand {
	return &serveCommand{
		etcd:          etcdFlags{prefix: leases.DefaultPrefix},
		tls:           newClientTLSFlags(),
		life:          newLifetimeFlags(),
		policy:        newPolicyFlags(),
		console:       newConsoleFlags(),
		lending:       newLendingFlags(),
		admin:         newAdminFlags(),
		listen:        defaultListen,
		etcdListen:    loopback{embedded.DefaultAddr},
		evictAfter:    span(fencing.DefaultEvictAfter),
		claimTimeout:  span(fencing.DefaultClaimTimeout),
		verifyTimeout: span(fencing.DefaultVerifyTimeout),
		drainTimeout:  span(defaultDrainTimeout),
		markRetention: wait(fencing.DefaultMarkRetention),
		logLevel:      choice{"info", []string{"debug", "info", "warn", "error"}},
		logFormat:     choice{"text", []string{"text", "json"}},
	}
}

func newServe(env environment) *cobra.Command {
	c := newServeCommand()
	cmd := &cobra.Command{
		Use:        "serve --upstream DSN (--etcd URL,… | --embed-etcd DIR)",
		SuggestFor: []string{"run", "start", "server", "proxy"},
		Short:      "Run the proxy",
		Long: `Run the proxy until SIGTERM or SIGINT. It then takes no more sessions, lets each
session end its transaction within --drain-timeout, and cuts off the rest; a second
SIGTERM or SIGINT cuts them off at once. At SIGHUP it reads the settings anew; no
session ends by that.

Each flag can also be set by a variable (FENCEPROXY_CLAIM_TIMEOUT for --claim-timeout) or
in the file that --config names (claim_timeout: 5s). A flag wins over a variable, a
variable over the file.`,
		Args: exactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c.origin = func(flag string) string { return origin(cmd.Flags(), flag) }
			if err := configure(cmd, env); err != nil {
				return c.andTogether(cmd.Flags(), err)
			}
			if c.verify {
				return c.checkConfig(cmd.Flags(), cmd.OutOrStdout())
			}
			hangups, stop := catchHangups()
			defer stop()
			r := &reloader{
				read:  func() (*serveCommand, *pflag.FlagSet, error) { return c.reread(cmd, env) },
				serve: c, written: writtenSettings(cmd.Flags()), serving: newServing(cmd.Flags()),
			}
			return c.run(cmd.Context(), cmd.ErrOrStderr(), r, hangups)
		},
	}
	c.addFlags(cmd.Flags())
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return c.badFlags(cmd, env, err) })
	return cmd
}

func (c *serveCommand) addFlags(flags *pflag.FlagSet) {
	addConfig(flags, &c.config)
	flags.BoolVar(&c.verify, checkConfigFlag, false, "look at the settings and the files that they name, print them without secrets, and end: exit status 0, or 2 if one is wrong")
	c.upstream.add(flags)
	c.etcd.add(flags)
	c.tls.add(flags)
	c.life.add(flags)
	c.policy.add(flags)
	c.console.add(flags)
	c.lending.add(flags)
	c.admin.add(flags)
	flags.StringVar(&c.authFile, "auth-file", "", "a `FILE` in the format of PgBouncer's userlist.txt, to verify SCRAM passwords over TLS by, read again when it changes; PostgreSQL's roles are asked without one")
	flags.Var(&c.listen, "listen", "where PostgreSQL clients connect")
	flags.VarPF(&c.insecureListen, "insecure-listen", "", "listen where other machines reach it, although clients can't encrypt").NoOptDefVal = "true"
	flags.StringVar(&c.embedDir, "embed-etcd", "", "run a single-node etcd in this process, with its data in `DIR`, instead of --etcd")
	flags.Var(&c.etcdListen, "etcd-listen", "where the embedded etcd listens (loopback only)")
	flags.Var(&c.evictAfter, "evict-after", "how long a claim waits for stale transactions before it ends them")
	flags.Var(&c.claimTimeout, "claim-timeout", "the longest that a claim may take")
	flags.Var(&c.verifyTimeout, "verify-timeout", "how long etcd may take to verify a token")
	flags.Var(&c.drainTimeout, "drain-timeout", "how long sessions may take to end when the proxy is stopped")
	flags.Var(&c.markRetention, "mark-retention", "how long the mark of a lock that is gone is kept; 0 is for ever")
	flags.Var(&c.cancelPeers, "cancel-peers", "other proxies behind the same address, asked about cancel requests for sessions that this one doesn't have; a name may stand for several")
	flags.Var(&c.otlpEndpoint, "otlp-endpoint", "a collector of OpenTelemetry's that takes traces of claims and fenced transactions (OTLP over HTTP)")
	flags.Var(&c.logLevel, "log-level", "the least that is logged")
	flags.Var(&c.logFormat, "log-format", "how it is logged")
}

// check refuses what no single flag can know to be wrong.
func (c *serveCommand) check() error {
	var found faults
	found.add(c.upstream.check())
	switch external, own := len(c.etcd.endpoints) > 0, c.embedDir != ""; {
	case external && own:
		found.add(usagef("%s and %s exclude each other", c.origin("etcd"), c.origin("embed-etcd")))
	case !external && !own:
		found.add(usagef("--etcd is missing: the URLs of etcd, such as http://127.0.0.1:2379; or --embed-etcd DIR"))
	}
	if c.evictAfter >= c.claimTimeout {
		found.add(usagef("%s (%v) must be below %s (%v)", c.origin("evict-after"), &c.evictAfter, c.origin("claim-timeout"), &c.claimTimeout))
	}
	if c.authFile != "" && c.tls.mode.value == proxy.TLSDisable.String() {
		found.add(authFileUnused(c.origin("auth-file")))
	}
	if c.loopbackOnly() && c.listen.exposed() {
		found.add(exposed(c.origin("listen"), c.listen.String()))
	}
	found.add(c.etcd.check())
	found.add(c.admin.check(c.origin))
	return found.err()
}

// run looks at all that it is given before it starts an etcd, which leaves
// traces: files, ports, PostgreSQL.
func (c *serveCommand) run(ctx context.Context, stderr io.Writer, r *reloader, hangups <-chan os.Signal) error {
	logger, level, flush := c.logger(stderr)
	defer flush()
	clientTLS, err := c.validate(logger)
	if err != nil {
		return err
	}
	policies, err := c.policy.policies()
	if err != nil {
		return err
	}
	var ports listeners
	if err := ports.open(c.listen, &c.admin, c.loopbackOnly()); err != nil {
		return err
	}
	defer ports.close()
	var etcd openedEtcd
	defer etcd.close() // behind the upstream, whose claims use it
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	upstream := openUpstream(c.upstream.dsn, c.claimer)
	defer upstream.close()
	server := upstream.server
	server.Logger, server.Metrics, server.TLS, server.Peers = logger, proxy.NewMetrics(registry), clientTLS, c.cancelPeers
	c.life.set(&server.Settings)
	server.Policies, server.Settings.Console, server.Lending = policies, c.console.settings(), c.lending.lending()
	registry.MustRegister(server)
	r.serving.gatherer = registry
	observer, timed := newClaimObserver(logger, registry, server.Journal), newTimedAuthority(registry)
	upstream.observe(observer)
	if r.passwords, err = c.preflight(ctx, upstream, logger); err != nil {
		return err
	}
	upstream.warnShadowed(ctx, c.console.database.String(), logger)
	if err := c.openEtcd(ctx, &etcd, logger); err != nil {
		return err
	}
	if c.otlpEndpoint != "" {
		traces, err := openTraces(ctx, c.otlpEndpoint, logger, registry)
		if err != nil {
			return err
		}
		defer traces.close()
		server.Tracer = traces
	}
	authority := leases.NewAuthority(etcd.client)
	authority.Prefix = c.etcd.prefix
	if err := pingEtcd(ctx, authority); err != nil {
		return err
	}
	server.Lender, server.Console = c.lender(etcd.client, registry), newConsole(server, upstream, authority, r.serving)
	timed.Authority = authority
	upstream.verifyBy(timed)
	if len(policies.Rules) > 0 || policies.Default != (proxy.Policy{}) {
		logger.Info("policies", "untagged_writes", policies.Default.UntaggedWrites.String(), "fencing", policies.Default.Fencing.String(), "rules", len(policies.Rules))
	}
	r.locks = newLockWatching(&etcd, c.etcd.prefix, logger, registry)
	defer r.locks.end()
	server.Locks = r.locks.watch
	if policies.Follow() {
		r.locks.begin()
	}
	boss, err := newSupervisor(server, logger)
	if err != nil {
		return err
	}
	defer runUntil(boss.watch)()
	keeper := newKeeper(upstream, authority, observer.alarm, logger, registry)
	keeper.retention = time.Duration(c.markRetention)
	defer runUntil(keeper.run)()
	r.logger, r.level, r.upstream, r.tls, r.boss = logger, level, upstream, clientTLS, boss
	admin, err := c.newAdmin(registry, upstream, authority, logger)
	if err != nil {
		return err
	}
	return c.serve(ctx, r, hangups, ports, admin)
}

// lender takes locks for the sessions that may.
func (c *serveCommand) lender(client *clientv3.Client, registry prometheus.Registerer) *leases.Lender {
	lender := leases.NewLender(client)
	lender.Prefix, lender.Metrics = c.etcd.prefix, leases.NewMetrics()
	registry.MustRegister(lender.Metrics)
	return lender
}

// claimer is one that knows no authority yet.
func (c *serveCommand) claimer(store *fencing.Store) *fencing.Claimer {
	claimer := fencing.NewClaimer(store, nil, nil)
	claimer.Times = c.times()
	return claimer
}

// logger returns the log, the least that it takes, and what is to be called when
// all has been logged.
func (c *serveCommand) logger(stderr io.Writer) (logger *slog.Logger, level *slog.LevelVar, flush func()) {
	level = &slog.LevelVar{}
	level.Set(c.level())
	limited := newThrottle(newLogHandler(stderr, c.logFormat.value, level))
	return slog.New(limited), level, limited.shown.flush
}

func (c *serveCommand) level() (level slog.Level) {
	if err := level.UnmarshalText([]byte(c.logLevel.value)); err != nil {
		return slog.LevelInfo // not reached: the flag knows its words
	}
	return level
}

// openedEtcd is a client, and the server if it is in this process.
type openedEtcd struct {
	client *clientv3.Client
	server *embedded.Etcd
}

func (e *openedEtcd) close() {
	if e.client != nil {
		e.client.Close()
	}
	if e.server != nil {
		e.server.Close()
	}
}

// openEtcd opens the cluster that was named, or one that it starts in this
// process.
func (c *serveCommand) openEtcd(ctx context.Context, etcd *openedEtcd, logger *slog.Logger) (err error) {
	if c.embedDir != "" {
		server := embedded.New(c.embedDir)
		server.Addr = c.etcdListen.String()
		if err := server.Start(ctx); err != nil {
			flag := "--embed-etcd"
			if errors.Is(err, embedded.ErrAddrInUse) {
				flag = "--etcd-listen"
			}
			return fmt.Errorf("%s: %w", flag, err)
		}
		go watchEtcd(server.Err(), logger)
		logger.Info("embedded etcd serves", "url", server.Endpoint(), "dir", c.embedDir)
		etcd.server = server
		etcd.client, err = leases.NewClient([]string{server.Endpoint()}, nil)
		return err
	}
	etcd.client, err = c.etcd.client()
	return err
}

// watchEtcd logs that the embedded etcd gave up; /readyz shows it too. It ends
// when the etcd is closed.
func watchEtcd(failed <-chan error, logger *slog.Logger) {
	for err := range failed {
		logger.Error("embedded etcd", "error", err)
	}
}

// preflight looks at everything in PostgreSQL that a first claim and a first
// login would need, so that what is missing is said at start and not to some
// client at night.
func (c *serveCommand) preflight(ctx context.Context, upstream *upstream, logger *slog.Logger) (*credentials, error) {
	conn, err := c.upstream.connect(ctx)
	if err != nil {
		return nil, err
	}
	_ = conn.Close(context.WithoutCancel(ctx))
	if err := upstream.preflight(ctx); err != nil {
		return nil, err
	}
	if upstream.server.TLS.Mode == proxy.TLSDisable {
		return nil, nil
	}
	return openSecrets(ctx, upstream.server, c.authFile, upstream, logger)
}

// pingEtcd looks whether a first claim could be verified.
func pingEtcd(ctx context.Context, authority *leases.Authority) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if err := authority.Ping(ctx); err != nil {
		return fmt.Errorf("%w; start it or mend --etcd", err)
	}
	return nil
}

// serve runs the listeners until ctx ends, and then drains.
func (c *serveCommand) serve(ctx context.Context, r *reloader, hangups <-chan os.Signal, ports listeners, admin *admin) error {
	logger, server := r.logger, r.upstream.server
	r.boss.ready() // clients can connect: they wait in the sockets' queues
	group, ctx := errgroup.WithContext(ctx)
	for _, ln := range ports.clients {
		group.Go(func() error { return server.Serve(ln) })
	}
	group.Go(func() error { return admin.serve(ports.admin) })
	group.Go(func() error {
		r.run(ctx, hangups)
		admin.draining.Store(true)
		r.boss.stopping(time.Duration(c.drainTimeout))
		defer admin.close()
		return c.drain(logger, server)
	})
	logger.Info("ready", "listen", ports.where(), "admin", ports.admin.Addr().String(), "upstream", c.upstream.where(),
		"version", buildVersion())
	if err := group.Wait(); err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	logger.Info("stopped")
	return nil
}

// Why sessions are cut off.
var (
	errDrainTimeout = errors.New("--drain-timeout was over")
	errSecondSignal = errors.New("a second signal came")
)

// drain lets the sessions end. Cutting some off is no failure of the proxy:
// it was asked to stop.
func (c *serveCommand) drain(logger *slog.Logger, server *proxy.Server) error {
	logger.Info("draining", "timeout", time.Duration(c.drainTimeout))
	again, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	defer context.AfterFunc(again, func() { cancel(errSecondSignal) })()
	defer time.AfterFunc(time.Duration(c.drainTimeout), func() { cancel(errDrainTimeout) }).Stop()
	var cut *proxy.CutOffError
	if err := server.Shutdown(ctx); errors.As(err, &cut) {
		logger.Warn("sessions were cut off", "sessions", cut.Sessions, "cause", cut.Cause)
	}
	return nil
}

// runUntil runs work until the function that it returns is called, which waits
// for its end.
func runUntil(work func(context.Context)) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		work(ctx)
	}()
	return func() {
		cancel()
		<-done
	}
}
