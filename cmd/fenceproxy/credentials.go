package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fenceproxy/fenceproxy/proxy"
	"github.com/fenceproxy/fenceproxy/proxy/scram"
)

// credentials is what the proxy verifies clients by where TLS ends at it: a
// file in the format of PgBouncer's userlist.txt if there is one, and
// otherwise PostgreSQL's own table of roles.
type credentials struct {
	roles  roles
	mock   *scram.Mock
	logger *slog.Logger

	mu       sync.Mutex
	file     string                      // "": there is none
	users    map[string]proxy.Credential // of the file
	seen     time.Time                   // when the file was changed last
	askAfter time.Time                   // while the table may not be read; zero: it may
}

// askEvery bounds how often PostgreSQL is asked for what it has denied.
const askEvery = time.Second

// roles knows what PostgreSQL does of its roles' passwords: what it stores of one,
// "" if nothing, and what salts of roles that don't exist are made up from.
// *fencing.Store is one.
type roles interface {
	RoleSecret(ctx context.Context, role string) (string, error)
	MockKey(ctx context.Context) (key []byte, iterations int, err error)
}

// openSecrets has the server verify clients over TLS, if that need not be left
// to PostgreSQL.
func openSecrets(ctx context.Context, server *proxy.Server, file string, roles roles, logger *slog.Logger) (*credentials, error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	key, iterations, err := roles.MockKey(ctx)
	if err != nil {
		logger.Warn("unknown users can be told from others at a restart: GRANT EXECUTE ON FUNCTION fence.mock_key() TO the role of --upstream", "error", err)
	}
	server.Mock = scram.NewMock(key, iterations)
	c := &credentials{roles: roles, mock: server.Mock, logger: logger}
	if file != "" {
		if err := c.use(file); err != nil {
			return nil, err
		}
	} else if _, err := c.ofTable(ctx, "postgres"); err != nil && !errors.Is(err, proxy.ErrNoSecrets) {
		logger.Warn("look for roles' secrets", "error", err)
	}
	server.Secrets = c
	return c, nil
}

// use has users verified by a file, "" by PostgreSQL's table. One that can't be
// used leaves what was there before.
func (c *credentials) use(file string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	was := c.file
	if c.file = file; file == "" {
		return nil
	}
	err := c.loadLocked()
	if err != nil {
		c.file = was
	}
	return err
}

// loadLocked reads the file. A password that is in the file in clear text costs
// thousands of hashes, so those that were there before are kept.
func (c *credentials) loadLocked() error {
	seen := c.changed()
	list, err := readUserlist(c.file)
	if err != nil {
		return err
	}
	users := map[string]proxy.Credential{}
	for entry := range list.All() {
		if known, ok := c.users[entry.User]; ok && entry.Kind == scram.KindPlain && known.Password == entry.Password {
			users[entry.User] = known
			continue
		}
		secret, err := entry.Resolve(c.mock)
		if err != nil {
			return fmt.Errorf("--auth-file %s: %w", c.file, err)
		}
		users[entry.User] = proxy.Credential{Secret: &secret, Password: entry.Password}
	}
	c.users, c.seen = users, seen
	return nil
}

// readUserlist reads a file in the format of PgBouncer's; "" is an empty one.
func readUserlist(path string) (list *scram.Userlist, err error) {
	var text []byte
	if path != "" {
		if text, err = os.ReadFile(path); err != nil {
			return nil, fmt.Errorf("--auth-file: %w", err)
		}
	}
	if list, err = scram.ParseUserlist(string(text)); err != nil {
		return nil, fmt.Errorf("--auth-file %s: %w", path, err)
	}
	return list, nil
}

// changed returns when the file was changed; zero if it isn't there. The caller
// holds mu.
func (c *credentials) changed() time.Time {
	info, err := os.Stat(c.file)
	if err != nil {
		return time.Time{}
	}
	return info.ModTime()
}

// Credential is proxy.Secrets'. A changed password works at once: the table, or
// the file, is asked at each login.
func (c *credentials) Credential(ctx context.Context, user string) (proxy.Credential, error) {
	if known, ok := c.ofFile(user); ok {
		return known, nil
	}
	known := proxy.Credential{Source: "pg_authid"}
	text, err := c.ofTable(ctx, user)
	if err != nil || text == "" {
		return known, err
	}
	secret, err := scram.ParseSecret(text)
	if err != nil {
		c.logger.Warn("the secret of a role is of no use for SCRAM", "user", user, "error", err)
		return known, nil
	}
	known.Secret = &secret
	return known, nil
}

// deniedClass is the class of SQLSTATEs of a table that may not be read, or that
// a service doesn't have (errcodes.txt).
const deniedClass = "42"

// ofTable returns what PostgreSQL stores of a user's password. While that is
// denied it is asked again at a login, for a GRANT may have come, and the log
// tells of every change.
func (c *credentials) ofTable(ctx context.Context, user string) (string, error) {
	c.mu.Lock()
	denied, now := !c.askAfter.IsZero(), time.Now()
	if denied && now.Before(c.askAfter) {
		c.mu.Unlock()
		return "", proxy.ErrNoSecrets
	}
	if denied {
		c.askAfter = now.Add(askEvery) // whoever logs in meanwhile doesn't ask
	}
	c.mu.Unlock()
	text, err := c.roles.RoleSecret(ctx, user)
	var refused *pgconn.PgError
	isDenied := errors.As(err, &refused) && strings.HasPrefix(refused.Code, deniedClass)
	if err != nil && !isDenied {
		return "", err
	}
	c.mu.Lock()
	changed := isDenied == c.askAfter.IsZero()
	c.askAfter = time.Time{}
	if isDenied {
		c.askAfter = time.Now().Add(askEvery)
	}
	c.mu.Unlock()
	switch {
	case isDenied && changed:
		c.logger.Warn("SCRAM over TLS is relayed, without channel binding: roles' secrets can't be read; "+
			"as a superuser: GRANT SELECT (rolname, rolpassword) ON pg_authid TO the role of --upstream, or name an --auth-file",
			"error", err)
	case changed:
		c.logger.Info("SCRAM over TLS is verified here: roles' secrets can be read")
	}
	if isDenied {
		return "", proxy.ErrNoSecrets
	}
	return text, nil
}

// ofFile returns what the file says of a user, if there is one. A file that can't
// be used leaves what it said before.
func (c *credentials) ofFile(user string) (proxy.Credential, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.file == "" {
		return proxy.Credential{}, false
	}
	if changed := c.changed(); !changed.Equal(c.seen) {
		if err := c.loadLocked(); err != nil {
			c.logger.Error("passwords not reloaded", "error", err)
			c.seen = changed // said once for each change
		} else {
			c.logger.Info("passwords reloaded", "file", c.file)
		}
	}
	known := c.users[user]
	known.Source = "--auth-file " + c.file + ": is it as PostgreSQL has it?"
	return known, true
}

// authFileUnused says that what set --auth-file does nothing.
func authFileUnused(origin string) error {
	return usagef("%s needs --client-tls allow or require: without TLS PostgreSQL verifies passwords itself", origin)
}
