package main

import (
	"context"
	"errors"
	"fmt"
	"io"
)

// sharedBuffers hold all of pgbench's tables.
const sharedBuffers = "shared_buffers = 1GB"

// play plays the workloads. Rows that failed are there too; the error tells of
// all of them.
func play(ctx context.Context, workloads []*workload, o options, progress io.Writer) ([]row, error) {
	var rows []row
	var errs []error
	for _, crowded := range []bool{false, true} {
		var some []*workload
		for _, w := range workloads {
			if w.crowded == crowded {
				some = append(some, w)
			}
		}
		if len(some) == 0 {
			continue
		}
		more, err := playOn(ctx, crowded, some, o, progress)
		rows, errs = append(rows, more...), append(errs, err)
	}
	return rows, errors.Join(errs...)
}

// playOn plays workloads that share a rig.
func playOn(ctx context.Context, crowded bool, workloads []*workload, o options, progress io.Writer) (rows []row, err error) {
	settings := []string{sharedBuffers}
	if crowded {
		settings = idleSettings(o.sessions)
	}
	fmt.Fprintln(progress, "starting PostgreSQL and etcd")
	r, err := newRig(ctx, o.program, settings...)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.close()) }()
	if !crowded {
		fmt.Fprintln(progress, "filling the tables")
		if err := r.fill(ctx, o); err != nil {
			return nil, err
		}
	}
	var errs []error
	for _, w := range workloads {
		if err := r.makeDurable(ctx, w.durable); err != nil {
			return rows, errors.Join(append(errs, err)...)
		}
		for _, row := range playOne(ctx, r, w, o, progress) {
			rows = append(rows, row)
			if row.err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", w.id(row.contender), row.err))
			}
		}
	}
	return rows, errors.Join(errs...)
}

// fill makes the tables of all workloads.
func (r *rig) fill(ctx context.Context, o options) error {
	return errors.Join(r.fillPgbench(ctx, o.scale), r.fillCopied(ctx, o.megabytes), r.fillClaims(ctx))
}

// playOne plays a workload: each contender once a round, in turn. One that
// fails is left out from there.
func playOne(ctx context.Context, r *rig, w *workload, o options, progress io.Writer) []row {
	rows := make([]row, len(w.contenders))
	for i, c := range w.contenders {
		rows[i] = row{workload: w, contender: c}
	}
	rounds := o.rounds
	if w.crowded && o.quick {
		rounds = 1 // opening that many sessions takes long
	}
	for round := range rounds {
		fmt.Fprintf(progress, "%s, %d clients: round %d of %d\n", w.name, w.clients, round+1, rounds)
		for i := range rows {
			if rows[i].err != nil || ctx.Err() != nil {
				continue
			}
			s, err := w.play(ctx, r, o, rows[i].contender)
			if err != nil {
				rows[i].err = err
				continue
			}
			rows[i].rounds = append(rows[i].rounds, s)
		}
	}
	return rows
}
