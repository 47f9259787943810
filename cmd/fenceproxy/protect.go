package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"github.com/fenceproxy/fenceproxy/fencing"
)

func newProtect(env environment) *cobra.Command {
	var upstream upstreamFlags
	var config string
	var key keyTemplate
	var apply replicaApply
	cmd := &cobra.Command{
		Use:        "protect TABLE --key TEMPLATE --upstream DSN",
		SuggestFor: []string{"guard"},
		Short:      "Let a table refuse what its rows' locks don't cover, whichever way it comes",
		Long: `Guard a table with triggers that run the check inside PostgreSQL for the key of each
row that is written: a write that comes round the proxy, carries another key's token, or
has no tag is refused by the table itself. The key is made from the template, text with
columns in braces; without a column it is one key for the whole table. Waits for the
table's running transactions. Safe to run again; docs/guards.md tells the rest.

The DSN's role must be a superuser, or a member of the roles that own the table and
schema fence.`,
		Example: `  fenceproxy protect public.orders --key 'order:{id}'
  fenceproxy protect public.invoice --key 'invoice:{year}-{month}'
  fenceproxy protect public.settings --key settings`,
		Args: exactArgs("TABLE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := settle(cmd, env, &upstream); err != nil {
				return err
			}
			if key.String() == "" {
				return usagef("--key is missing: the lock that each row needs, such as 'order:{id}'")
			}
			return upstream.with(cmd.Context(), func(ctx context.Context, conn *pgx.Conn) error {
				done, err := fencing.Protect(ctx, conn, args[0], key.Template, fencing.ReplicaApply(apply))
				if err != nil {
					return err
				}
				return tellProtection(cmd.OutOrStdout(), upstream.where(), done, key.String())
			})
		},
	}
	upstream.add(cmd.Flags())
	addConfig(cmd.Flags(), &config)
	cmd.Flags().Var(&key, "key", "`TEMPLATE` of the lock's key: text with {column}; {{ and }} are braces")
	cmd.Flags().Var(&apply, "replica-apply", "what a subscription applies without a tag: refuse is the default")
	return cmd
}

func newUnprotect(env environment) *cobra.Command {
	var upstream upstreamFlags
	var config string
	cmd := &cobra.Command{
		Use:        "unprotect TABLE --upstream DSN",
		SuggestFor: []string{"unguard"},
		Short:      "Take a table's guard away",
		Long:       `Drop what protect made, from the table and from its partitions and inheritance children.`,
		Example:    `  fenceproxy unprotect public.orders`,
		Args:       exactArgs("TABLE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := settle(cmd, env, &upstream); err != nil {
				return err
			}
			return upstream.with(cmd.Context(), func(ctx context.Context, conn *pgx.Conn) error {
				name, err := fencing.Unprotect(ctx, conn, args[0])
				if err != nil {
					return err
				}
				_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s: %s is no longer guarded\n", upstream.where(), name)
				return err
			})
		},
	}
	upstream.add(cmd.Flags())
	addConfig(cmd.Flags(), &config)
	return cmd
}

// settle reads a command's settings, the upstream's among them.
func settle(cmd *cobra.Command, env environment, upstream *upstreamFlags) error {
	if err := configure(cmd, env); err != nil {
		return err
	}
	return upstream.check()
}

func tellProtection(stdout io.Writer, where string, p fencing.Protection, key string) error {
	was := ""
	if p.Was != "" && p.Was != key {
		was = fmt.Sprintf(", no longer %s", p.Was)
	}
	also := ""
	if len(p.Also) > 0 {
		also = " and its parts " + strings.Join(p.Also, ", ")
	}
	_, err := fmt.Fprintf(stdout, "%s: writes to %s%s need the lock %s%s\n", where, p.Table, also, key, was)
	return err
}

// keyTemplate is a flag's value: a template of fencing.
type keyTemplate struct{ fencing.Template }

func (k *keyTemplate) Set(text string) (err error) {
	k.Template, err = fencing.ParseTemplate(text)
	return err
}
func (*keyTemplate) Type() string { return "template" }

// replicaApply is a flag's value, unset by default.
type replicaApply fencing.ReplicaApply

func (r *replicaApply) Set(text string) error {
	switch apply := fencing.ReplicaApply(text); apply {
	case fencing.ReplicaRefuse, fencing.ReplicaAllow:
		*r = replicaApply(apply)
		return nil
	default:
		return fmt.Errorf("refuse or allow is expected")
	}
}
func (r *replicaApply) String() string { return string(*r) }
func (*replicaApply) Type() string     { return "refuse|allow" }
