package main

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/spf13/cobra"
)

// healthCommand asks a running proxy how it is, for those that would run curl
// where there is none: containers with nothing but this program in them.
type healthCommand struct {
	adminListen address
	cert        string // of the admin port
	ready       bool
	config      string
}

func newHealth(env environment) *cobra.Command {
	c := &healthCommand{adminListen: defaultAdminListen}
	cmd := &cobra.Command{
		Use:   "health [--ready] [--admin-listen host:port]",
		Short: "Say by the exit status whether the proxy on this machine is alive, or ready",
		Long: `Ask the admin port of the proxy on this machine whether it is alive (/healthz) or, with
--ready, whether it takes sessions and reaches PostgreSQL and etcd (/readyz). The exit
status is 0 if so and 1 if not. It reads the settings that "fenceproxy serve" reads.

Start a proxy anew only if it isn't alive: one that isn't ready still serves the sessions
that it has.`,
		Args: exactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := configure(cmd, env); err != nil {
				return err
			}
			// Where the proxy listens on all addresses, Go connects to this machine.
			asked, err := newAdminClient(string(c.adminListen), c.cert, &passwordFlags{})
			if err != nil {
				return err
			}
			return c.ask(cmd.Context(), asked)
		},
	}
	flags := cmd.Flags()
	addConfig(flags, &c.config)
	flags.Var(&c.adminListen, "admin-listen", "where the proxy's admin port is")
	addAdminCert(flags, &c.cert)
	flags.BoolVar(&c.ready, "ready", false, "ask whether it is ready")
	return cmd
}

// ask puts the question, and gives up after startTimeout.
func (c *healthCommand) ask(ctx context.Context, p *adminClient) error {
	path := "/healthz"
	if c.ready {
		path = "/readyz"
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	status, why, err := p.get(ctx, path)
	if err != nil {
		return err
	}
	if status != http.StatusOK {
		return fmt.Errorf("%s%s: %s", p.at, path, strings.TrimSpace(string(why)))
	}
	return nil
}
