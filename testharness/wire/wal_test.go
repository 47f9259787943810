package wire_test

import (
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/fenceproxy/fenceproxy/testharness/wire"
)

const (
	walSetup = "CREATE EXTENSION pg_walinspect"
	// All that was committed is flushed by a commit that comes later.
	walFlushSQL = "SELECT pg_logical_emit_message(true, 'harness', '')"
	// Of each transaction what it wrote, by PostgreSQL's write-ahead log: locks and
	// commits are no writes, nor is what a look at a page changes on it: a reader may
	// prune what is dead there (Heap2 PRUNE, from 17 on PRUNE_ON_ACCESS).
	walWrittenSQL = `SELECT format('transaction %s: %s %s %s', xid, resource_manager, record_type, block_ref)
		FROM pg_get_wal_records_info($1, pg_current_wal_flush_lsn())
		WHERE xid::text = ANY($2) AND resource_manager NOT IN ('Transaction', 'Standby', 'XLOG')
			AND NOT (resource_manager = 'Heap2' AND record_type IN ('PRUNE', 'PRUNE_ON_ACCESS'))
			AND NOT ($3 AND resource_manager = 'Heap' AND record_type = 'DELETE'
				AND (SELECT every(m[1]::bigint < 16384) FROM regexp_matches(block_ref, 'rel \d+/\d+/(\d+)', 'g') AS m))
		ORDER BY start_lsn`
)

// wrote returns what transactions wrote that were committed behind the claim, as
// far as the script's sessions did that: one that ends takes its temporary tables
// out of the catalogs, in a transaction of PostgreSQL's own.
func (r *raiser) wrote(start string, transactions []string, s *wire.Script) ([]string, error) {
	if len(transactions) == 0 {
		return nil, nil
	}
	ctx := r.t.Context()
	if err := r.lane.Exec(ctx, walFlushSQL); err != nil {
		return nil, err
	}
	rows, err := r.lane.conn.Query(ctx, walWrittenSQL, start, transactions, temporary(s))
	if err != nil {
		return nil, fmt.Errorf("read the write-ahead log: %w", err)
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

// temporary reports whether a script makes temporary tables.
func temporary(s *wire.Script) bool {
	for _, step := range s.Steps {
		for _, m := range step.Messages {
			if strings.Contains(m.Text, "CREATE TEMP") {
				return true
			}
		}
	}
	return false
}
