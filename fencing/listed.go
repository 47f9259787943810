package fencing

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// A ListedMark is a mark as people look at it.
type ListedMark struct {
	Database  string
	Key       string
	Token     Token
	LockKey   string
	Epoch     int32 // of its lineage
	Current   bool  // the lineage is the current one, so that the token counts
	ClaimedAt time.Time
	ClaimedBy string
}

// A Listing says which marks of a database are listed.
type Listing struct {
	Prefix string // of their keys
	After  string // only keys that follow this one, bytewise; "" is all
	Most   int    // how many, 1 at least
}

// ErrMayNotList says that the Store's role may not read fence.status.
var ErrMayNotList = errors.New("the proxy's role may not list marks")

// ListMarks returns marks of a database in the bytewise order of their keys, and
// whether there are more of them. It reads as many rows as it returns, and one. It
// is ErrMayNotList where the role lacks a right that claims don't need.
func (s *Store) ListMarks(ctx context.Context, database string, what Listing) (marks []ListedMark, more bool, err error) {
	p, err := s.of(database)
	if err != nil {
		return nil, false, err
	}
	// What has the prefix stands together, behind the prefix itself.
	const which = markColumns + " WHERE resource_key >= $1 AND resource_key > $2 ORDER BY resource_key LIMIT $3"
	marks, err = scanMarks(ctx, p, database, which, what.Prefix, what.After, what.Most+1)
	if err != nil {
		return nil, false, err
	}
	for i, m := range marks {
		if !strings.HasPrefix(m.Key, what.Prefix) {
			return marks[:i], false, nil
		}
	}
	if len(marks) > what.Most {
		return marks[:what.Most], true, nil
	}
	return marks, false, nil
}

// MarksOf returns the marks of some keys of a database, of those that have one. Its
// errors are those of ListMarks.
func (s *Store) MarksOf(ctx context.Context, database string, keys []string) ([]ListedMark, error) {
	p, err := s.of(database)
	if err != nil {
		return nil, err
	}
	return scanMarks(ctx, p, database, markColumns+" WHERE resource_key = ANY ($1)", keys)
}

// markColumns is what a ListedMark is scanned from.
const markColumns = `SELECT resource_key, token, lock_key, epoch, coalesce(current, false), claimed_at, claimed_by FROM fence.status`

func scanMarks(ctx context.Context, p *pools, database, query string, args ...any) (marks []ListedMark, err error) {
	rows, err := p.watch.Query(ctx, query, args...)
	if err != nil {
		return nil, listError(database, err)
	}
	defer rows.Close()
	for rows.Next() {
		m := ListedMark{Database: database}
		if err := rows.Scan(&m.Key, &m.Token, &m.LockKey, &m.Epoch, &m.Current, &m.ClaimedAt, &m.ClaimedBy); err != nil {
			return nil, listError(database, err)
		}
		marks = append(marks, m)
	}
	if err := rows.Err(); err != nil {
		return nil, listError(database, err)
	}
	return marks, nil
}

func listError(database string, err error) error {
	if hasCode(err, codeDenied) {
		return fmt.Errorf("list marks of database %s: %w: %w", database, ErrMayNotList, err)
	}
	return fmt.Errorf("list marks of database %s: %w", database, err)
}

// HasDatabase reports whether the server has a database of that name.
func (s *Store) HasDatabase(ctx context.Context, name string) (bool, error) {
	var has bool
	if err := s.reader(s.Database()).QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)", name).Scan(&has); err != nil {
		return false, fmt.Errorf("look for database %q: %w", name, err)
	}
	return has, nil
}

// GrantListing is what a superuser runs in each database to let the Store's role
// list marks.
func (s *Store) GrantListing() string {
	return "GRANT SELECT ON fence.status TO " + pgx.Identifier{s.config.ConnConfig.User}.Sanitize()
}

// HasPrivilegesOf reports whether a role is one of the named ones, or a member of
// one with its privileges, as a superuser is of every role. Names that no role has
// count for nothing.
func (s *Store) HasPrivilegesOf(ctx context.Context, role string, names []string) (bool, error) {
	const query = `SELECT EXISTS (SELECT FROM pg_roles AS r, pg_roles AS m
		WHERE m.rolname = $1 AND r.rolname = ANY ($2::name[]) AND pg_has_role(m.oid, r.oid, 'USAGE'))`
	var has bool
	if err := s.reader(s.Database()).QueryRow(ctx, query, role, names).Scan(&has); err != nil {
		return false, fmt.Errorf("look whose privileges role %q has: %w", role, err)
	}
	return has, nil
}
