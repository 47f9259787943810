package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"

	"github.com/fenceproxy/fenceproxy/fencing"
	"github.com/fenceproxy/fenceproxy/proxy"
	"github.com/fenceproxy/fenceproxy/proxy/scram"
)

// credentials is what the proxy verifies clients by where TLS ends at it: a
// file in the format of PgBouncer's userlist.txt if there is one, and
// otherwise PostgreSQL's own table of roles.
type credentials struct {
	users  map[string]proxy.Credential // of the file; nil: there is none
	store  *fencing.Store
	logger *slog.Logger
}

// openSecrets returns what verifies clients over TLS, nil if that can only be
// PostgreSQL itself.
func openSecrets(ctx context.Context, file string, store *fencing.Store, logger *slog.Logger) (proxy.Secrets, error) {
	c, err := newCredentials(file, store, logger)
	if err != nil {
		return nil, err
	}
	if c.users == nil {
		ctx, cancel := context.WithTimeout(ctx, startTimeout)
		defer cancel()
		if _, err := store.RoleSecret(ctx, "postgres"); err != nil {
			logger.Warn("SCRAM over TLS is relayed, without channel binding: roles' secrets can't be read; "+
				"as a superuser: GRANT SELECT (rolname, rolpassword) ON pg_authid TO the role of --upstream, or name an --auth-file",
				"error", err)
			return nil, nil
		}
	}
	return c, nil
}

// newCredentials reads the file, if one is named.
func newCredentials(file string, store *fencing.Store, logger *slog.Logger) (*credentials, error) {
	c := &credentials{store: store, logger: logger}
	if file == "" {
		return c, nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("--auth-file: %w", err)
	}
	list, err := scram.ParseUserlist(string(text))
	if err != nil {
		return nil, fmt.Errorf("--auth-file %s: %w", file, err)
	}
	c.users = map[string]proxy.Credential{}
	salts := scram.NewMock(nil, 0)
	for entry := range list.All() {
		secret, err := entry.Resolve(salts)
		if err != nil {
			return nil, fmt.Errorf("--auth-file %s: %w", file, err)
		}
		c.users[entry.User] = proxy.Credential{Secret: &secret, Password: entry.Password}
	}
	return c, nil
}

// Credential is proxy.Secrets'. A changed password works at once: the table is
// asked at each login.
func (c *credentials) Credential(ctx context.Context, user string) (proxy.Credential, error) {
	if c.users != nil {
		return c.users[user], nil
	}
	text, err := c.store.RoleSecret(ctx, user)
	if err != nil || text == "" {
		return proxy.Credential{}, err
	}
	secret, err := scram.ParseSecret(text)
	if err != nil {
		c.logger.Warn("the secret of a role is of no use for SCRAM", "user", user, "error", err)
		return proxy.Credential{}, nil
	}
	return proxy.Credential{Secret: &secret}, nil
}
