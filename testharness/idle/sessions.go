package idle

import (
	"context"
	"fmt"
	"runtime"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/procfs"
	"golang.org/x/sync/errgroup"
)

// A Growth is what sessions made of a process's resident memory, in bytes.
type Growth struct {
	Before  float64 // with one session, which shows what any at all need
	AtOnce  float64 // for each session, right after the last query
	Settled float64 // for each session, the least while all were idle
}

// Measure opens n sessions through the process pid, has each of them work, and
// watches the process for a while once all are idle: what was freed goes back
// to the system little by little. It closes the sessions.
func Measure(ctx context.Context, pid int, config *pgx.ConnConfig, n int, settle time.Duration) (Growth, error) {
	first, err := open(ctx, config, 0)
	if err != nil {
		return Growth{}, err
	}
	defer first.Close(context.WithoutCancel(ctx))
	before, err := resident(pid)
	if err != nil {
		return Growth{}, err
	}
	conns := make([]*pgx.Conn, n)
	defer func() {
		for _, c := range conns {
			if c != nil {
				c.Close(context.WithoutCancel(ctx))
			}
		}
	}()
	if err := fill(ctx, conns, config); err != nil {
		return Growth{}, err
	}
	at, err := resident(pid)
	if err != nil {
		return Growth{}, err
	}
	settled, err := watch(ctx, pid, at, settle)
	return Growth{Before: before, AtOnce: (at - before) / float64(n), Settled: (settled - before) / float64(n)}, err
}

// fill opens a session for each place of conns.
func fill(ctx context.Context, conns []*pgx.Conn, config *pgx.ConnConfig) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(2 * runtime.NumCPU())
	for i := range conns {
		group.Go(func() (err error) {
			conns[i], err = open(ctx, config, i)
			return err
		})
	}
	return group.Wait()
}

// watch returns the least memory seen, at or below what it was.
func watch(ctx context.Context, pid int, least float64, settle time.Duration) (float64, error) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for end := time.Now().Add(settle); time.Now().Before(end); {
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-tick.C:
		}
		now, err := resident(pid)
		if err != nil {
			return 0, err
		}
		least = min(least, now)
	}
	return least, nil
}

// open opens a session and has it work: simple and prepared statements, a
// transaction, and in one of ten a result of 1 MB.
func open(ctx context.Context, config *pgx.ConnConfig, i int) (*pgx.Conn, error) {
	c, err := pgx.ConnectConfig(ctx, config.Copy())
	if err != nil {
		return nil, fmt.Errorf("connect session %d: %w", i, err)
	}
	err = work(ctx, c, i)
	if err != nil {
		c.Close(ctx)
		return nil, fmt.Errorf("session %d: %w", i, err)
	}
	return c, nil
}

func work(ctx context.Context, c *pgx.Conn, i int) error {
	for _, sql := range []string{"SELECT 1", "BEGIN", "SELECT 2", "COMMIT"} {
		if _, err := c.Exec(ctx, sql); err != nil {
			return err
		}
	}
	for _, sql := range []string{"SELECT $1::int", "SELECT $1::text"} {
		var got string
		if err := c.QueryRow(ctx, sql, strconv.Itoa(i)).Scan(&got); err != nil {
			return err
		}
	}
	if i%10 != 0 {
		return nil
	}
	var long string
	return c.QueryRow(ctx, "SELECT repeat('x', $1)", 1<<20).Scan(&long)
}

// resident is a process's resident memory in bytes.
func resident(pid int) (float64, error) {
	process, err := procfs.NewProc(pid)
	if err != nil {
		return 0, fmt.Errorf("find process %d: %w", pid, err)
	}
	status, err := process.NewStatus()
	if err != nil {
		return 0, fmt.Errorf("read the memory of process %d: %w", pid, err)
	}
	return float64(status.VmRSS), nil
}
