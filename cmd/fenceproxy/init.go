package main

import (
	"context"
	"fmt"
	"io"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"github.com/fenceproxy/fenceproxy/fencing"
)

func newInit(env environment) *cobra.Command {
	var upstream upstreamFlags
	var config string
	cmd := &cobra.Command{
		Use:        "init --upstream DSN",
		SuggestFor: []string{"install", "setup", "migrate", "upgrade"},
		Short:      "Install or upgrade schema fence in the protected database",
		Long: `Install schema fence in the DSN's database, or upgrade it: the marks, the check that
fenced transactions run, and the function that claims call. The DSN's role becomes
the owner and must be the one that serve is given. Safe to run again.`,
		Example: `  fenceproxy init --upstream postgres://fence@127.0.0.1:5432/app`,
		Args:    exactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := settle(cmd, env, &upstream); err != nil {
				return err
			}
			return install(cmd.Context(), upstream, cmd.OutOrStdout())
		},
	}
	upstream.add(cmd.Flags())
	addConfig(cmd.Flags(), &config)
	return cmd
}

// install brings schema fence to this program's version and says what it did.
func install(ctx context.Context, upstream upstreamFlags, stdout io.Writer) error {
	return upstream.with(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		from, to, err := fencing.Install(ctx, conn)
		if err != nil {
			return fmt.Errorf("PostgreSQL at %s: %w", upstream.where(), err)
		}
		done := fmt.Sprintf("upgraded schema fence from version %d to %d", from, to)
		switch from {
		case 0:
			done = fmt.Sprintf("installed schema fence, version %d", to)
		case to:
			done = fmt.Sprintf("schema fence is there, version %d; nothing to do", to)
		}
		_, err = fmt.Fprintf(stdout, "%s: %s\n", upstream.where(), done)
		return err
	})
}
