package fencing

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// RoleSecret returns what PostgreSQL stores of the role's password
// (pg_authid.rolpassword), "" if there is no such role or it has none. The
// Store's role needs SELECT on those columns, which managed services don't
// give; then it is an error.
func (s *Store) RoleSecret(ctx context.Context, role string) (string, error) {
	p, err := s.of(s.Database())
	if err != nil {
		return "", err
	}
	var secret *string
	err = p.watch.QueryRow(ctx, "SELECT rolpassword FROM pg_authid WHERE rolname = $1", role).Scan(&secret)
	switch {
	case errors.Is(err, pgx.ErrNoRows) || err == nil && secret == nil:
		return "", nil
	case err != nil:
		return "", fmt.Errorf("read the secret of role %q: %w", role, err)
	}
	return *secret, nil
}
