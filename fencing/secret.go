package fencing

import (
	"context"
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
)

// RoleSecret returns what PostgreSQL stores of the role's password
// (pg_authid.rolpassword), "" if there is no such role or it has none. The
// Store's role needs SELECT on those columns, which managed services don't
// give; then it is an error.
func (s *Store) RoleSecret(ctx context.Context, role string) (string, error) {
	if !utf8.ValidString(role) {
		return "", nil // PostgreSQL would call the question an error, which any stranger could cause
	}
	var secret *string
	err := s.reader(s.Database()).QueryRow(ctx, "SELECT rolpassword FROM pg_authid WHERE rolname = $1", role).Scan(&secret)
	switch {
	case errors.Is(err, pgx.ErrNoRows) || err == nil && secret == nil:
		return "", nil
	case err != nil:
		return "", fmt.Errorf("read the secret of role %q: %w", role, err)
	}
	return *secret, nil
}

// MockKey returns what the proxies of a database make up salts from for roles
// that don't exist, and the iteration count of the secrets that PostgreSQL
// makes (scram_iterations, 0 before PostgreSQL 16: its default). It is the same
// for all of them and over restarts.
func (s *Store) MockKey(ctx context.Context) (key []byte, iterations int, err error) {
	const query = "SELECT fence.mock_key(), coalesce(current_setting('scram_iterations', true), '0')::int"
	if err := s.reader(s.Database()).QueryRow(ctx, query).Scan(&key, &iterations); err != nil {
		return nil, 0, fmt.Errorf("read the key of mock salts: %w", err)
	}
	return key, iterations, nil
}
