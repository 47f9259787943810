package fencing

import (
	"context"
	"fmt"
)

// Superseded returns an *Error with CodeStale if a token of tag is below the
// mark of its key in database, and nil if none is. Any other error means that
// it can't be told.
func (c *Claimer) Superseded(ctx context.Context, database string, tag Tag) error {
	for _, p := range tag {
		m, _, err := c.Store.mark(ctx, database, p.Key)
		if err != nil {
			return fmt.Errorf("look at the mark of %s: %w", p.Key, err)
		}
		if m.Comparable && m.Token > p.Token {
			return stale(p, m)
		}
	}
	return nil
}
