package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/user"
	"strings"
	"text/tabwriter"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"github.com/fenceproxy/fenceproxy/fencing"
	"github.com/fenceproxy/fenceproxy/leases"
)

// adoptCommand makes the etcd of now the one that a database's marks come from.
type adoptCommand struct {
	upstream upstreamFlags
	etcd     etcdFlags
	config   string
	yes      bool
	force    bool

	stdin  io.Reader
	stdout io.Writer
}

func newAdoptLineage(env environment) *cobra.Command {
	c := &adoptCommand{etcd: etcdFlags{prefix: leases.DefaultPrefix}}
	cmd := &cobra.Command{
		Use:        "adopt-lineage --upstream DSN --etcd URL,…",
		SuggestFor: []string{"adopt"},
		Short:      "Take tokens from an etcd that was replaced or restored",
		Long: `Take tokens from the etcd that --etcd names, in the DSN's database, after etcd was
replaced or restored from a backup and new claims are refused with LF006.

Shows the old and the new lineage and asks before it does anything. It then ends all
sessions of the database, those of other proxies and those round every proxy
included, and removes all marks, so that no session of the old etcd can write under
a number that the new one gives out again. Who did it and when is recorded in
fence.lineage. Run it for each database, and only when nothing reaches the old etcd
any more.`,
		Example: `  fenceproxy adopt-lineage --upstream postgres://fence@127.0.0.1:5432/app --etcd http://127.0.0.1:2379`,
		Args:    exactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := configure(cmd, env); err != nil {
				return err
			}
			c.stdin, c.stdout = cmd.InOrStdin(), cmd.OutOrStdout()
			return c.run(cmd.Context())
		},
	}
	c.upstream.add(cmd.Flags())
	c.etcd.addBeside(cmd.Flags())
	addConfig(cmd.Flags(), &c.config)
	cmd.Flags().BoolVar(&c.yes, "yes", false, "don't ask")
	cmd.Flags().BoolVar(&c.force, "force", false, "also if nothing shows that etcd was replaced")
	return cmd
}

func (c *adoptCommand) run(ctx context.Context) error {
	if err := c.upstream.check(); err != nil {
		return err
	}
	client, err := c.etcd.open()
	if err != nil {
		return err
	}
	defer client.Close()
	authority := leases.NewAuthority(client)
	authority.Prefix = c.etcd.prefix
	asking, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	cluster, revision, err := authority.Position(asking)
	if err != nil {
		return fmt.Errorf("%w; start it or mend --etcd", err)
	}
	conn, err := c.upstream.connect(ctx)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if err := c.adopt(ctx, conn, cluster, revision); err != nil {
		return fmt.Errorf("PostgreSQL at %s: %w", c.upstream.where(), err)
	}
	return nil
}

// adopt looks, asks and acts.
func (c *adoptCommand) adopt(ctx context.Context, conn *pgx.Conn, cluster string, revision int64) error {
	old, err := fencing.LineageOf(ctx, conn)
	if err != nil {
		return fmt.Errorf("%w; is schema fence of this version? fenceproxy init", err)
	}
	if old.Epoch == 0 {
		_, err := fmt.Fprintln(c.stdout, "nothing was ever claimed in this database: there is no lineage to replace")
		return err
	}
	fits, why := old.Fits(cluster, revision)
	sessions, err := fencing.SessionsOf(ctx, conn)
	if err != nil {
		return err
	}
	if err := c.show(old, cluster, revision, why); err != nil {
		return err
	}
	if fits && !c.force {
		_, err := fmt.Fprintln(c.stdout, "\nnothing to adopt: as far as can be seen, this is the etcd that the marks came from (--force adopts it all the same)")
		return err
	}
	if !c.yes {
		fmt.Fprintf(c.stdout, "\nAll marks are removed, and all sessions of the database (%d now) are ended, whatever they do.\n"+
			"Nothing may reach the old etcd any more. Adopt? Type yes: ", sessions)
		answer, err := bufio.NewReader(c.stdin).ReadString('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			return fmt.Errorf("read the answer: %w", err)
		}
		if strings.TrimSpace(answer) != "yes" {
			return errors.New("not adopted: the answer was not yes; nothing was changed")
		}
	}
	done, err := fencing.Adopt(ctx, conn, old, cluster, revision, operator())
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(c.stdout, "adopted: epoch %d, cluster %s; %s ended, %s removed\n", done.Epoch, cluster,
		counted(done.Sessions, "session"), counted(int(done.Marks), "mark"))
	return err
}

func (c *adoptCommand) show(old fencing.Lineage, cluster string, revision int64, why string) error {
	table := tabwriter.NewWriter(c.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintf(table, "PostgreSQL\t%s\n", c.upstream.where())
	fmt.Fprintf(table, "marks came from\tcluster %s, known to have reached revision %d\n", old.Cluster, old.Highest)
	fmt.Fprintf(table, "\tepoch %d, adopted %s by %s\n", old.Epoch, old.AdoptedAt.UTC().Format("2006-01-02T15:04:05Z"), old.AdoptedBy)
	fmt.Fprintf(table, "etcd is\tcluster %s, at revision %d\n", cluster, revision)
	if why != "" {
		fmt.Fprintf(table, "so\t%s\n", why)
	}
	return table.Flush()
}

// operator says who runs this, for the record.
func operator() string {
	name := "unknown user"
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	host, err := os.Hostname()
	if err != nil {
		host = "unknown host"
	}
	return name + "@" + host
}
