package fencing

import (
	"context"
	"fmt"
	"time"
)

// Superseded returns an *Error with CodeStale if a token of pairs is below the
// mark of its key in database, also if a claim that is under way raises the mark
// above it before ctx ends, one with CodeLineage if this Claimer claimed it in a
// lineage that is over, and nil if neither is so. Any other error means that it
// can't be told.
func (c *Claimer) Superseded(ctx context.Context, database string, pairs []Pair) error {
	for {
		// In this order: a claim that isn't under way any more has its mark.
		claiming, err := c.Store.claiming(ctx, database)
		if err != nil {
			return fmt.Errorf("look for claims: %w", err)
		}
		for _, p := range pairs {
			then, known := c.known.get(database, p)
			m, now, err := c.Store.mark(ctx, database, p.Key)
			if err != nil {
				return fmt.Errorf("look at the mark of %s: %w", p.Key, err)
			}
			if m.Comparable && m.Token > p.Token {
				return stale(p, m)
			}
			if known && then.Epoch != now.Epoch {
				return Refuse(CodeLineage, "%s token %d is of an etcd history that an operator has replaced", p.Key, p.Token).With(
					"All sessions that were open then have been ended.", "Stop this work. Acquire the lock again, and connect again with its token.")
			}
		}
		if !claiming {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(watchEvery):
		}
	}
}

// claiming reports whether a claim of any proxy is under way in database.
func (s *Store) claiming(ctx context.Context, database string) (busy bool, err error) {
	const query = `
		SELECT EXISTS (SELECT FROM pg_stat_activity
			WHERE datname = current_database() AND application_name = $1 AND state <> 'idle'
				AND has_function_privilege(usesysid, $2, 'EXECUTE'))`
	err = s.reader(database).QueryRow(ctx, query, ClaimApplication, claimSignature).Scan(&busy)
	return busy, err
}
