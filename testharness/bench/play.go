package main

import (
	"context"
	"errors"
	"fmt"
)

// sharedBuffers hold all of pgbench's tables.
const sharedBuffers = "shared_buffers = 1GB"

// play plays the workloads. Rows that failed are there too; the error tells of
// all of them. Once ctx is done, the rows are what there was time for.
func play(ctx context.Context, workloads []*workload, o options, watch *progress) ([]row, error) {
	var rows []row
	var errs []error
	for _, crowded := range []bool{false, true} {
		some := sharing(workloads, crowded)
		if len(some) == 0 || ctx.Err() != nil {
			continue
		}
		more, err := playOn(ctx, crowded, some, o, watch)
		rows, errs = append(rows, more...), append(errs, err)
	}
	return rows, errors.Join(errs...)
}

// sharing are the workloads that share a rig.
func sharing(workloads []*workload, crowded bool) (some []*workload) {
	for _, w := range workloads {
		if w.crowded == crowded {
			some = append(some, w)
		}
	}
	return some
}

// playOn plays workloads that share a rig.
func playOn(ctx context.Context, crowded bool, workloads []*workload, o options, watch *progress) (rows []row, err error) {
	settings := []string{sharedBuffers}
	if crowded {
		settings = idleSettings(o.sessions)
	}
	watch.tell("starting PostgreSQL and etcd")
	r, err := newRig(ctx, o.program, settings...)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.close()) }()
	watch.did(rigTakes)
	var errs []error
	for _, w := range workloads {
		err := errors.Join(r.fill(ctx, w.tables, o, watch), r.makeDurable(ctx, w.durable))
		if ctx.Err() != nil {
			break
		}
		if err != nil {
			return rows, errors.Join(append(errs, err)...)
		}
		for _, row := range playOne(ctx, r, w, o, watch) {
			rows = append(rows, row)
			if row.err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", w.id(row.contender), row.err))
			}
		}
	}
	return rows, errors.Join(errs...)
}

// tables are what a workload needs to find in the database.
type tables int

const (
	noTables      tables = iota
	pgbenchTables        // pgbench's, and those of its scripts
	copiedTables         // what COPY reads and writes
	claimTables          // what is written under a claim, and who claims by hand
)

// fill makes tables that are not there yet.
func (r *rig) fill(ctx context.Context, t tables, o options, watch *progress) (err error) {
	if t == noTables || r.filled[t] {
		return nil
	}
	watch.tell("filling tables")
	switch t {
	case pgbenchTables:
		err = r.fillPgbench(ctx, o.scale)
	case copiedTables:
		err = r.fillCopied(ctx, o.megabytes)
	case claimTables:
		err = r.fillClaims(ctx)
	default:
		err = fmt.Errorf("there are no tables %d", t)
	}
	r.filled[t] = err == nil
	watch.did(fillTakes(t, o))
	return err
}

// playOne plays a workload: each contender once a round, in turn. One that
// fails is left out from there; one that ctx ended hasn't failed.
func playOne(ctx context.Context, r *rig, w *workload, o options, watch *progress) []row {
	rows := make([]row, len(w.contenders))
	for i, c := range w.contenders {
		rows[i] = row{workload: w, contender: c}
	}
	for round := range w.rounds(o) {
		if ctx.Err() != nil {
			break
		}
		watch.tell("%s, %d clients: round %d of %d", w.name, w.clients, round+1, w.rounds(o))
		for i := range rows {
			if rows[i].err != nil || ctx.Err() != nil {
				continue
			}
			s, err := w.play(ctx, r, o, rows[i].contender)
			if err == nil {
				rows[i].rounds = append(rows[i].rounds, s)
			} else if ctx.Err() == nil {
				rows[i].err = err
			}
			watch.did(w.takes(o, rows[i].contender))
		}
	}
	return rows
}

// rounds is how often the workload is played. Opening very many sessions takes
// long, and what they cost differs little.
func (w *workload) rounds(o options) int {
	if w.crowded && o.quick {
		return 1
	}
	return o.rounds
}
