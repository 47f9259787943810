package fencing

import (
	"context"
	"io/fs"

	"github.com/jackc/pgx/v5"
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
