package chaos

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/fenceproxy/fenceproxy/fencing"
	"github.com/fenceproxy/fenceproxy/testharness/history"
)

// batch is how many rows a pipeline or a COPY writes.
const batch = 10

// counted writes one row with the next number of its key.
const counted = `WITH c AS (UPDATE counter SET n = n + 1 WHERE key = $2 RETURNING n)
	INSERT INTO entry SELECT $1, $2, $3, c.n FROM c RETURNING n`

// A writer carries out one form of a write: it fills in the numbers that it is
// answered.
type writer func(ctx context.Context, s *session, op *history.Op) error

// A form is a way to write.
type form struct {
	name string
	rows int
	run  writer
}

// forms are the ways to write under one lock, in a session that is tagged.
func forms() []form {
	return []form{
		{"simple", 1, one(counted, pgx.QueryExecModeSimpleProtocol)},
		{"extended", 1, one(counted, pgx.QueryExecModeExec)},
		{"prepared", 1, one(counted, pgx.QueryExecModeCacheStatement)},
		{"function", 1, one("SELECT put($1, $2, $3)", pgx.QueryExecModeCacheStatement)},
		{"operator", 1, operator},
		{"plain", 1, plain},
		{"several statements", 2, several},
		{"block", 2, block},
		{"block, from a savepoint on", 1, fromSavepoint},
		{"repeatable read", 2, repeatable},
		{"pipeline", batch, pipeline},
		{"pipeline in a block", batch, pipelineBlock},
		{"copy", batch, copyIn},
	}
}

// write writes once, in a form that is drawn, and says whether it was told that
// the lock is lost. The session is nil if it was lost itself.
func (w *worker) write(ctx context.Context, s *session) (left *session, over bool) {
	ctx, cancel := finishing(ctx, requestTimeout)
	defer cancel()
	s.stall = w.stall
	if len(s.tag) == 1 && !s.local && w.chance(0.1) {
		return w.chain(ctx, s)
	}
	f := draw(w, forms()...)
	switch {
	case len(s.tag) > 1:
		f = draw(w, form{"transfer", 2, transfer}, form{"transfer of what was read", 2, transferRead})
	case s.local:
		f = form{"block with set local", 2, block}
	}
	op := &history.Op{Kind: history.KindWrite, Form: f.name, Tag: s.tag, Via: w.via(s.gate), Opened: s.open, Claimed: s.claimed}
	for i := range f.rows {
		p := s.tag[i*len(s.tag)/f.rows]
		op.Rows = append(op.Rows, history.Row{ID: w.id(), Key: p.Key, Token: p.Token})
	}
	switch {
	case len(s.tag) > 1:
		op.Move = &history.Move{From: s.tag[0].Key, To: s.tag[1].Key, Amount: int64(w.random.IntN(200) - 100)}
	case strings.HasPrefix(f.name, "block"):
		op.Undone = []int64{w.id()}
	}
	w.record.Begin(op)
	settle(op, f.run(ctx, s, op))
	w.end(op)
	w.doubt = w.doubt || op.Move != nil && op.Outcome == history.OutcomeUnknown
	return s.after(op), lostLock(op)
}

// lostLock reports whether an operation was answered that its lock is lost.
func lostLock(op *history.Op) bool {
	return op.Code == fencing.CodeStale || op.Code == fencing.CodeEvicted || op.Code == fencing.CodeNotHolder
}

// chain writes in two blocks, the second of which COMMIT AND CHAIN begins.
func (w *worker) chain(ctx context.Context, s *session) (left *session, over bool) {
	for i, end := range []string{"COMMIT AND CHAIN", "COMMIT"} {
		p := s.tag[0]
		op := &history.Op{Kind: history.KindWrite, Form: "chain, block " + string(rune('1'+i)), Tag: s.tag, Via: w.via(s.gate), Opened: s.open, Claimed: s.claimed,
			Rows: []history.Row{{ID: w.id(), Key: p.Key, Token: p.Token}}}
		w.record.Begin(op)
		var err error
		if i == 0 {
			err = s.exec(ctx, "BEGIN")
		}
		s.stall()
		if err == nil {
			err = s.put(ctx, &op.Rows[0])
		}
		settle(op, s.finishBy(ctx, end, err))
		w.end(op)
		if op.Outcome != history.OutcomeOK {
			return s.after(op), lostLock(op)
		}
		left = s
	}
	return left, false
}

// one writes a row in a statement of its own.
func one(sql string, mode pgx.QueryExecMode) writer {
	return func(ctx context.Context, s *session, op *history.Op) error {
		r := &op.Rows[0]
		return s.conn.QueryRow(ctx, sql, mode, r.ID, r.Key, int64(r.Token)).Scan(&r.N)
	}
}

// plain writes a row without the counter, whose row lock would keep two
// holders apart.
func plain(ctx context.Context, s *session, op *history.Op) error {
	r := op.Rows[0]
	_, err := s.conn.Exec(ctx, "INSERT INTO entry VALUES ($1, $2, $3)", r.ID, r.Key, int64(r.Token))
	return err
}

// several writes in one string of statements, which is one transaction.
func several(ctx context.Context, s *session, op *history.Op) error {
	var sql strings.Builder
	for _, r := range op.Rows {
		fmt.Fprintf(&sql, "UPDATE counter SET n = n + 1 WHERE key = '%s'; INSERT INTO entry SELECT %d, key, %d, n FROM counter WHERE key = '%[1]s';\n",
			r.Key, r.ID, r.Token)
	}
	return s.exec(ctx, sql.String())
}

// block writes in a transaction block, and takes one row back on the way.
func block(ctx context.Context, s *session, op *history.Op) error {
	undone := history.Row{ID: op.Undone[0], Key: op.Rows[0].Key, Token: op.Rows[0].Token}
	err := s.exec(ctx, "BEGIN")
	if err == nil && s.local {
		err = s.exec(ctx, setLocal(s.tag))
	}
	for _, step := range []func() error{
		func() error { return s.put(ctx, &op.Rows[0]) },
		func() error { return s.exec(ctx, "SAVEPOINT s") },
		func() error { return s.put(ctx, &undone) },
		func() error { s.stall(); return s.exec(ctx, "ROLLBACK TO s") },
		func() error { return s.put(ctx, &op.Rows[1]) },
	} {
		if err == nil {
			err = step()
		}
	}
	return s.finish(ctx, err)
}

// fromSavepoint writes behind a ROLLBACK TO that takes all back that the block
// has done so far.
func fromSavepoint(ctx context.Context, s *session, op *history.Op) error {
	undone := history.Row{ID: op.Undone[0], Key: op.Rows[0].Key, Token: op.Rows[0].Token}
	err := s.exec(ctx, "BEGIN; SAVEPOINT s")
	if err == nil {
		err = s.put(ctx, &undone)
	}
	if err == nil {
		err = s.exec(ctx, "ROLLBACK TO s")
	}
	s.stall()
	if err == nil {
		err = s.put(ctx, &op.Rows[0])
	}
	return s.finish(ctx, err)
}

// operator writes behind an operator, which looks like a read until it has run.
func operator(ctx context.Context, s *session, op *history.Op) error {
	r := &op.Rows[0]
	return s.conn.QueryRow(ctx, "SELECT $1::bigint <# $2::text", r.ID, r.Key+" "+r.Token.String()).Scan(&r.N)
}

// repeatable writes in a block whose snapshot is taken before it may be told
// that the lock is lost.
func repeatable(ctx context.Context, s *session, op *history.Op) error {
	err := s.exec(ctx, "BEGIN ISOLATION LEVEL REPEATABLE READ")
	if err == nil {
		err = s.exec(ctx, "SELECT")
	}
	s.stall()
	for i := range op.Rows {
		if err == nil {
			err = s.put(ctx, &op.Rows[i])
		}
	}
	return s.finish(ctx, err)
}

// put writes a counted row.
func (s *session) put(ctx context.Context, r *history.Row) error {
	return s.conn.QueryRow(ctx, counted, r.ID, r.Key, int64(r.Token)).Scan(&r.N)
}

// finish commits a block, or rolls it back after an error.
func (s *session) finish(ctx context.Context, err error) error { return s.finishBy(ctx, "COMMIT", err) }

// finishBy ends a block by a statement that commits it, or rolls it back after
// an error, which it returns. A block that can't be rolled back leaves the session
// to be closed.
func (s *session) finishBy(ctx context.Context, end string, err error) error {
	if err != nil {
		if s.conn.PgConn().TxStatus() != 'I' && !s.conn.IsClosed() {
			_ = s.exec(ctx, "ROLLBACK")
		}
		return err
	}
	tag, err := s.conn.Exec(ctx, end, pgx.QueryExecModeSimpleProtocol)
	if err == nil && tag.String() != "COMMIT" {
		err = fmt.Errorf("COMMIT was answered %s", tag)
	}
	return err
}

// pipeline writes all rows in one round trip, which is one transaction.
func pipeline(ctx context.Context, s *session, op *history.Op) error {
	b := &pgx.Batch{}
	queue(b, op.Rows)
	return s.conn.SendBatch(ctx, b).Close()
}

func queue(b *pgx.Batch, rows []history.Row) {
	for i := range rows {
		r := &rows[i]
		b.Queue(counted, r.ID, r.Key, int64(r.Token)).QueryRow(func(row pgx.Row) error { return row.Scan(&r.N) })
	}
}

// pipelineBlock is the same with BEGIN and COMMIT in the pipeline.
func pipelineBlock(ctx context.Context, s *session, op *history.Op) error {
	b := &pgx.Batch{}
	b.Queue("BEGIN")
	queue(b, op.Rows)
	b.Queue("COMMIT")
	err := s.conn.SendBatch(ctx, b).Close()
	if err != nil && !s.conn.IsClosed() && s.conn.PgConn().TxStatus() != 'I' {
		_ = s.exec(ctx, "ROLLBACK")
	}
	return err
}

// copyIn writes all rows without the counter.
func copyIn(ctx context.Context, s *session, op *history.Op) error {
	_, err := s.conn.CopyFrom(ctx, pgx.Identifier{"entry"}, []string{"id", "key", "token"},
		pgx.CopyFromSlice(len(op.Rows), func(i int) ([]any, error) {
			r := op.Rows[i]
			return []any{r.ID, r.Key, int64(r.Token)}, nil
		}))
	return err
}
