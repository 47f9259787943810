package main

import (
	"github.com/spf13/cobra"

	"github.com/fenceproxy/fenceproxy/leases"
	"github.com/fenceproxy/fenceproxy/testharness/scenario"
)

// actorName is the hidden subcommand that demo's workers are.
const actorName = "actor"

func newActor() *cobra.Command {
	etcd := etcdFlags{prefix: leases.DefaultPrefix}
	cmd := &cobra.Command{
		Use:    actorName,
		Short:  "Be a worker of a demo, on orders from standard input",
		Hidden: true,
		Args:   exactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return scenario.Work(cmd.Context(), etcd.endpoints, etcd.prefix, cmd.InOrStdin(), cmd.OutOrStdout())
		},
	}
	etcd.add(cmd.Flags())
	return cmd
}
