package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fenceproxy/fenceproxy/testharness/stack"
)

// A megabyte is 10^6 bytes here, and about a thousand rows of COPY.
const (
	megabyte = 1_000_000
	rowsInMB = 1000
)

// fillCopied makes the table that COPY reads, and the one that it writes.
func (r *rig) fillCopied(ctx context.Context, mb int) error {
	return r.admin(ctx, stack.RoleApp,
		"CREATE UNLOGGED TABLE copied AS SELECT 100000000 + i AS id, rpad(repeat(md5(i::text), 31), 989, 'x') AS text "+
			fmt.Sprintf("FROM generate_series(1, %d) AS i", mb*rowsInMB),
		"VACUUM (ANALYZE) copied",
		"CREATE UNLOGGED TABLE copied_in (id int, text text)")
}

// copyOut reads the whole table.
func copyOut(ctx context.Context, r *rig, _ options, c contender) (sample, error) {
	return r.copied(ctx, c, func(ctx context.Context, s *pgconn.PgConn) (int64, error) {
		var n counter
		_, err := s.CopyTo(ctx, &n, "COPY copied TO STDOUT")
		return int64(n), err
	})
}

// copyIn sends as much as copyOut reads. PostgreSQL parses every row and keeps
// none, so the disk has no part in it.
func copyIn(ctx context.Context, r *rig, o options, c contender) (sample, error) {
	return r.copied(ctx, c, func(ctx context.Context, s *pgconn.PgConn) (int64, error) {
		row := "100000001\t" + strings.Repeat("x", 989) + "\n"
		block := bytes.Repeat([]byte(row), 64)
		total := int64(o.megabytes) * megabyte / int64(len(row)) * int64(len(row))
		_, err := s.CopyFrom(ctx, io.LimitReader(&endless{block: block}, total), "COPY copied_in FROM STDIN WHERE id = 0")
		return total, err
	})
}

// copied measures a COPY that tells how many bytes it moved.
func (r *rig) copied(ctx context.Context, c contender, run func(context.Context, *pgconn.PgConn) (int64, error)) (sample, error) {
	s := nothing()
	conn, err := r.connect(ctx, c)
	if err != nil {
		return s, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	m, err := r.peers[c.route].meter()
	if err != nil {
		return s, err
	}
	began := time.Now()
	n, err := run(ctx, conn.PgConn())
	if err != nil {
		return s, fmt.Errorf("copy: %w", err)
	}
	moved := float64(n) / megabyte
	s[rate] = moved / time.Since(began).Seconds()
	return s, m.read(&s, moved)
}

// A counter counts what is written to it.
type counter int64

func (c *counter) Write(p []byte) (int, error) {
	*c += counter(len(p))
	return len(p), nil
}

// endless gives a block again and again.
type endless struct {
	block []byte
	at    int
}

func (e *endless) Read(p []byte) (int, error) {
	n := 0
	for n < len(p) {
		m := copy(p[n:], e.block[e.at:])
		n += m
		e.at = (e.at + m) % len(e.block)
	}
	return n, nil
}
