package fencing

import (
	"context"
	"io/fs"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// InstallFrom is Install with other files and another version than this
// program's own, as an older or newer program has them.
func InstallFrom(ctx context.Context, conn *pgx.Conn, files fs.FS, version int) (from int, err error) {
	err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		from, err = install(ctx, tx, files, version)
		return err
	})
	return from, err
}

// SchemaFiles are the files that Install runs.
func SchemaFiles() fs.FS { return schemaFiles }

// AsksIdle reports whether a claim asks a connection that was idle for long
// whether it is there still.
func (s *Store) AsksIdle(database string) bool {
	p, err := s.of(database)
	if err != nil {
		return false
	}
	asks := p.claim.Config().ShouldPing
	return asks == nil || asks(context.Background(), pgxpool.ShouldPingParams{IdleDuration: time.Hour})
}

// Hands are the goroutines of a Claimer.
type Hands struct{ *hands }

func NewHands(ctx context.Context) Hands { return Hands{newHands(ctx)} }

func (h Hands) Do(f func()) { h.do(f) }

func (h Hands) Wait() { h.wait() }
