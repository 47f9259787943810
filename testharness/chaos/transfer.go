package chaos

import (
	"context"

	"github.com/fenceproxy/fenceproxy/testharness/history"
)

// transfer moves money between the accounts of two locks, and counts in both.
func transfer(ctx context.Context, s *session, op *history.Op) error {
	err := s.exec(ctx, "BEGIN")
	for i := range op.Rows {
		if err == nil {
			_, err = s.conn.Exec(ctx, "UPDATE account SET balance = balance + $2 WHERE key = $1", op.Rows[i].Key, gain(op, i))
		}
		if i > 0 {
			s.stall() // with one of two locks in use
		}
		if err == nil {
			err = s.put(ctx, &op.Rows[i])
		}
	}
	return s.finish(ctx, err)
}

// transferRead is the same by whoever relies on the locks: the balances are read
// first, and what they are to be is written.
func transferRead(ctx context.Context, s *session, op *history.Op) error {
	balances := make([]int64, len(op.Rows))
	err := s.exec(ctx, "BEGIN")
	for i := range op.Rows {
		if err == nil {
			err = s.conn.QueryRow(ctx, "SELECT balance FROM account WHERE key = $1", op.Rows[i].Key).Scan(&balances[i])
		}
	}
	s.stall()
	for i := range op.Rows {
		if err == nil {
			_, err = s.conn.Exec(ctx, "UPDATE account SET balance = $2 WHERE key = $1", op.Rows[i].Key, balances[i]+gain(op, i))
		}
		if err == nil {
			err = s.put(ctx, &op.Rows[i])
		}
	}
	return s.finish(ctx, err)
}

// gain is what a transfer brings the account of its i-th row.
func gain(op *history.Op, i int) int64 {
	if op.Rows[i].Key == op.Move.From {
		return -op.Move.Amount
	}
	return op.Move.Amount
}
