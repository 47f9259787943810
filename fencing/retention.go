package fencing

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// DefaultMarkRetention is how long a mark is kept at least, counted from its
// claim, when nobody holds or awaits its lock any more.
const DefaultMarkRetention = 30 * 24 * time.Hour

// A page of marks is read with one query; the keys of one question to etcd are
// removed with one transaction. The pause after each keeps the work from being
// felt, and the floor from moving under every claim.
const (
	retentionPage  = 1000
	retentionBatch = 100
	retentionPause = 100 * time.Millisecond
)

// Vacancies says which locks nobody holds or awaits. (implemented by leases.Authority)
type Vacancies interface {
	// Vacant asks with one linearizable read of at most 100 keys, and returns
	// those that nobody holds or awaits, the etcd cluster's id, and the
	// revision of the read.
	Vacant(ctx context.Context, keys []string) (vacant []string, cluster string, revision int64, err error)
}

// A Retention removes marks of locks that are gone. A token whose mark was
// removed is refused until it is claimed again, and no etcd confirms it.
type Retention struct {
	Store     *Store
	Vacancies Vacancies
	Age       time.Duration // of a mark, before it may be removed
	Pause     time.Duration // between two batches, 100ms
}

// NewRetention returns a Retention with the default times.
func NewRetention(store *Store, vacancies Vacancies) *Retention {
	return &Retention{Store: store, Vacancies: vacancies, Age: DefaultMarkRetention, Pause: retentionPause}
}

// Sweep goes through the marks of database once, and returns how many it has
// removed. It is safe to run in several proxies at once, and to break off.
func (r *Retention) Sweep(ctx context.Context, database string) (removed int, err error) {
	p, err := r.Store.of(database)
	if err != nil {
		return 0, err
	}
	for after := ""; ; {
		old, last, err := r.page(ctx, p, after)
		if err != nil {
			return removed, fmt.Errorf("read marks: %w", err)
		}
		for len(old) > 0 {
			n := min(len(old), retentionBatch)
			gone, err := r.batch(ctx, p, old[:n])
			removed += gone
			if err != nil {
				return removed, err
			}
			old = old[n:]
			if err := pause(ctx, r.Pause); err != nil {
				return removed, err
			}
		}
		if last == "" {
			return removed, nil
		}
		after = last
	}
}

// page returns the old marks among the next ones, and the last key of the page,
// "" when there was none.
func (r *Retention) page(ctx context.Context, p *pools, after string) (old []Pair, last string, err error) {
	rows, err := p.watch.Query(ctx, "SELECT resource_key, token FROM fence.old_marks($1, $2, $3)", r.Age, after, retentionPage)
	if err != nil {
		return nil, "", err
	}
	var key string
	var token *int64
	_, err = pgx.ForEachRow(rows, []any{&key, &token}, func() error {
		last = key
		if token != nil {
			old = append(old, Pair{Key: key, Token: Token(*token)})
		}
		return nil
	})
	return old, last, err
}

// batch removes those of a few marks whose locks are gone.
func (r *Retention) batch(ctx context.Context, p *pools, old []Pair) (int, error) {
	tokens := map[string]Token{}
	keys := make([]string, len(old))
	for i, o := range old {
		keys[i], tokens[o.Key] = o.Key, o.Token
	}
	// Before etcd is asked: its revision is above what the marks say by then.
	lineage, err := currentLineage(ctx, p.watch)
	if err != nil {
		return 0, fmt.Errorf("read the lineage: %w", err)
	}
	vacant, cluster, revision, err := r.Vacancies.Vacant(ctx, keys)
	if err != nil {
		return 0, fmt.Errorf("ask etcd for holders: %w", err)
	}
	if ok, why := lineage.Fits(cluster, revision); !ok {
		return 0, fmt.Errorf("no mark is removed: %s", why)
	}
	if len(vacant) == 0 {
		return 0, nil
	}
	values := make([]int64, len(vacant))
	for i, key := range vacant {
		values[i] = int64(tokens[key])
	}
	var gone int
	const query = "SELECT fence.forget($1, $2, $3, $4, $5)"
	if err := p.watch.QueryRow(ctx, query, vacant, values, lineage.Epoch, revision, r.Age).Scan(&gone); err != nil {
		return 0, fmt.Errorf("remove marks: %w", err)
	}
	return gone, nil
}

// pause waits for d, or until ctx ends.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
