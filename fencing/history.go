package fencing

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

// A history remembers of which lineage the marks of each database are, and
// which etcd cluster, and how high a token, the last of them came from, as far
// as this proxy has raised them. A verification that can't be of the same etcd
// history will be refused by fence.claim, so no session is ended for its sake.
type history struct {
	mu   sync.Mutex
	last map[string]lastClaim // by database
}

type lastClaim struct {
	epoch   int32
	cluster string // "" if nothing was raised in this lineage
	highest Token
}

// epoch returns the lineage that was seen last, 0 for none.
func (h *history) epoch(database string) int32 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.last[database].epoch
}

// knows says whether a lineage of database was seen.
func (h *history) knows(database string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	_, ok := h.last[database]
	return ok
}

// saw takes the lineage that an answer of PostgreSQL's names.
func (h *history) saw(database string, epoch int32) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if last, ok := h.last[database]; ok && last.epoch == epoch {
		return
	}
	if h.last == nil {
		h.last = map[string]lastClaim{}
	}
	h.last[database] = lastClaim{epoch: epoch}
}

// fits reports whether a verification may be of the history that is known.
func (h *history) fits(database string, v Verification) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	last := h.last[database]
	return last.cluster == "" || last.cluster == v.Cluster && int64(last.highest) <= v.Revision
}

// add takes a token that was accepted.
func (h *history) add(database string, t Token, v Verification) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.last == nil {
		h.last = map[string]lastClaim{}
	}
	last := h.last[database]
	if last.cluster == v.Cluster {
		t = max(t, last.highest)
	}
	h.last[database] = lastClaim{last.epoch, v.Cluster, t}
}

// A Lineage is one etcd history that tokens are comparable within.
type Lineage struct {
	Epoch     int32  // 0: none yet, nothing was ever claimed
	Cluster   string // etcd cluster id, hex
	Highest   int64  // how far etcd is known to have come, a revision
	AdoptedAt time.Time
	AdoptedBy string
}

// Fits says whether what etcd answers now can be of l, and if not, why.
func (l Lineage) Fits(cluster string, revision int64) (bool, string) {
	switch {
	case l.Epoch == 0:
		return true, ""
	case l.Cluster != cluster:
		return false, fmt.Sprintf("etcd is cluster %s, and the marks came from cluster %s", cluster, l.Cluster)
	case revision < l.Highest:
		return false, fmt.Sprintf("etcd is at revision %d, and was at %d before", revision, l.Highest)
	}
	return true, ""
}

// A row is a connection, a transaction or a pool.
type row interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// currentLineage reads the lineage of a database with schema fence.
func currentLineage(ctx context.Context, conn row) (l Lineage, err error) {
	const query = "SELECT epoch, cluster, coalesce(highest, 0), adopted_at, adopted_by FROM fence.current_lineage()"
	err = conn.QueryRow(ctx, query).Scan(&l.Epoch, &l.Cluster, &l.Highest, &l.AdoptedAt, &l.AdoptedBy)
	if errors.Is(err, pgx.ErrNoRows) {
		return Lineage{}, nil
	}
	return l, err
}

// Lineage returns the current lineage of the marks in database.
func (s *Store) Lineage(ctx context.Context, database string) (Lineage, error) {
	l, err := currentLineage(ctx, s.reader(database))
	if err != nil {
		return Lineage{}, fmt.Errorf("read the lineage of database %s: %w", database, err)
	}
	return l, nil
}

// learnLineage asks for the lineage once, before etcd is asked for the first
// time. An answer of etcd's counts only in the lineage that was known before.
func (c *Claimer) learnLineage(database string, p Pair) *Error {
	if c.history.knows(database) {
		return nil
	}
	ctx, cancel := context.WithTimeout(c.ctx, c.times().VerifyTimeout)
	defer cancel()
	l, err := c.Store.Lineage(ctx, database)
	if err != nil {
		return c.Store.refusal(database, p, err)
	}
	c.history.saw(database, l.Epoch)
	return nil
}
