package main

import (
	"context"
	"io"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"github.com/fenceproxy/fenceproxy/fencing"
	"github.com/fenceproxy/fenceproxy/leases"
	"github.com/fenceproxy/fenceproxy/proxy"
)

// doctorTimeout bounds all that doctor asks one side.
const doctorTimeout = 15 * time.Second

// doctorCommand looks whether all is in place, and who can get round it.
type doctorCommand struct {
	upstream  upstreamFlags
	etcd      etcdFlags
	policy    policyFlags
	clientTLS choice
	authFile  string
	config    string
	json      bool
}

func newDoctor(env environment) *cobra.Command {
	c := &doctorCommand{etcd: etcdFlags{prefix: leases.DefaultPrefix}, clientTLS: newClientTLSFlags().mode, policy: newPolicyFlags()}
	cmd := &cobra.Command{
		Use:        "doctor --upstream DSN --etcd URL,…",
		SuggestFor: []string{"check", "verify", "diagnose"},
		Short:      "Look whether everything is in place, and who can get round the proxy",
		Long: `Look at PostgreSQL and etcd as the proxy would use them: schema, rights, settings that can
lose a mark, guards, roles that can move marks or get round the proxy, etcd's members,
and whether its history is the one that the marks came from. Nothing is changed, and no
clock is compared with another.

Each finding is ok, warn or fail, and says what to do. The exit status is 1 if one is fail.`,
		Example: `  fenceproxy doctor --upstream postgres://fence@127.0.0.1:5432/app --etcd http://127.0.0.1:2379`,
		Args:    exactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := settle(cmd, env, &c.upstream); err != nil {
				return err
			}
			if c.authFile != "" && c.clientTLS.value == proxy.TLSDisable.String() {
				return authFileUnused(origin(cmd.Flags(), "auth-file"))
			}
			out := cmd.OutOrStdout()
			return c.run(cmd.Context(), out, wantsColour(out, env))
		},
	}
	flags := cmd.Flags()
	c.upstream.add(flags)
	c.etcd.addBeside(flags)
	c.policy.add(flags)
	flags.Var(&c.clientTLS, "client-tls", "as serve has it")
	flags.StringVar(&c.authFile, "auth-file", "", "as serve has it, a `FILE`")
	addConfig(flags, &c.config)
	flags.BoolVar(&c.json, "json", false, "print one JSON object instead of text")
	return cmd
}

func (c *doctorCommand) run(ctx context.Context, out io.Writer, colour bool) error {
	client, err := c.etcd.open()
	if err != nil {
		return err
	}
	defer client.Close()
	authority := leases.NewAuthority(client)
	authority.Prefix = c.etcd.prefix
	var d diagnosis
	// PostgreSQL first: etcd's revision only grows, so one that is read later
	// and is lower shows a history that went backwards.
	lineage := c.lookAtPostgres(ctx, &d)
	lookAtEtcd(ctx, &d, authority, lineage)
	if err := c.lookAtWatch(ctx, &d, authority); err != nil {
		return err
	}
	print := func() error { return d.print(out, colour) }
	if c.json {
		print = func() error { return d.json(out) }
	}
	if err := print(); err != nil {
		return err
	}
	if d.count(levelFail) > 0 {
		return exitStatus(1)
	}
	return nil
}

// lookAtPostgres returns the lineage of the marks, or nil where that isn't known.
func (c *doctorCommand) lookAtPostgres(ctx context.Context, d *diagnosis) *fencing.Lineage {
	ctx, cancel := context.WithTimeout(ctx, doctorTimeout)
	defer cancel()
	d.area = "PostgreSQL " + c.upstream.where()
	c.lookAtServers(ctx, d)
	conn, err := c.upstream.connect(ctx)
	if err != nil {
		d.fail("", "%v", err)
		return nil
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if !c.lookAtInstallation(ctx, d, conn) {
		return nil
	}
	c.lookAtSecrets(ctx, d, conn)
	for _, look := range []struct {
		area, what string
		at         func(context.Context, *diagnosis, *pgx.Conn) error
	}{
		{"Durability", "the settings", lookAtDurability},
		{"Durability", "the standbys", lookAtStandbys},
		{"Durability", "prepared transactions", lookAtPrepared},
		{"Who can move marks", "the rights on schema fence", lookAtRights},
		{"Who can move marks", "the roles", lookAtRoles},
		{"Who can get round the proxy", "the addresses", lookAtAddresses},
		{"Who can get round the proxy", "settings of roles and databases", lookAtTagSettings},
		{"Who can get round the proxy", "the guards", lookAtGuards},
		{"Policies", "the names in the rules", c.lookAtPolicies},
	} {
		d.area = look.area
		if err := look.at(ctx, d, conn); err != nil {
			d.unseen(look.what, err)
		}
	}
	lineage, err := fencing.LineageOf(ctx, conn)
	if err != nil {
		d.unseen("the lineage of the marks", err)
		return nil
	}
	return &lineage
}

// lookAtServers looks at each of several servers.
func (c *doctorCommand) lookAtServers(ctx context.Context, d *diagnosis) {
	if len(c.upstream.dsn.hosts) < 2 {
		return
	}
	for _, h := range c.upstream.dsn.hosts {
		a := newAsker(h, c.upstream.dsn.target)
		standing, err := a.timed(ctx)
		a.close()
		switch {
		case err != nil:
			d.warn("Start it, or take it out of --upstream.", "server %s: %v", h.name, err)
		case standing.Standby:
			d.ok("server %s is a standby", h.name)
		default:
			d.ok("server %s is the primary, timeline %d", h.name, standing.Timeline)
		}
	}
}

// lookAtInstallation makes the looks that serve makes when it starts. It reports
// whether there is a schema to look further at.
func (c *doctorCommand) lookAtInstallation(ctx context.Context, d *diagnosis, conn *pgx.Conn) bool {
	store := fencing.NewStoreOf(c.upstream.dsn.hosts[0].config)
	defer store.Close()
	a := &asker{conn: conn}
	var version string
	if standing, err := a.standing(ctx); err == nil && conn.QueryRow(ctx, "SELECT current_setting('server_version')").Scan(&version) == nil {
		d.ok("version %s, timeline %d", version, standing.Timeline)
	}
	for i, look := range store.Looks() {
		err := look.At(ctx, conn)
		if err == nil {
			d.ok("%s", look.Right)
			continue
		}
		text, do, _ := strings.Cut(err.Error(), "; run: ")
		d.fail(do, "%s", text)
		if i < 3 { // what follows would say the same again, or make no sense
			return false
		}
	}
	return true
}

// lookAtSecrets looks for what a proxy needs where TLS ends at it.
func (c *doctorCommand) lookAtSecrets(ctx context.Context, d *diagnosis, conn *pgx.Conn) {
	const query = `SELECT has_column_privilege('pg_authid', 'rolname', 'SELECT') AND has_column_privilege('pg_authid', 'rolpassword', 'SELECT'), quote_ident(current_user)`
	var may bool
	var role string
	if err := conn.QueryRow(ctx, query).Scan(&may, &role); err != nil {
		d.unseen("the right to read pg_authid", err)
		return
	}
	needed := c.clientTLS.value != proxy.TLSDisable.String() && c.authFile == ""
	switch {
	case may:
		d.ok("the proxies' role may read the secrets of SCRAM logins over TLS (pg_authid)")
	case needed:
		d.warn("GRANT SELECT (rolname, rolpassword) ON pg_authid TO "+role+", as a superuser; or set --auth-file.",
			"role %s may not read pg_authid, so SCRAM over TLS is relayed without channel binding", role)
	default:
		d.ok("pg_authid need not be read: --client-tls is off, or --auth-file is set")
	}
}
