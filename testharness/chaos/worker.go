package chaos

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fenceproxy/fenceproxy/leases"
	"github.com/fenceproxy/fenceproxy/testharness/history"
)

// A worker takes locks, one or two at a time, and works under them. It keeps to
// no rule that a real one might break: it goes on when its lock is lost, doesn't
// notice that it is, or presents numbers that are no token.
type worker struct {
	Assignment
	random *rand.Rand
	etcd   *clientv3.Client
	locker *leases.Locker
	record *history.Recorder
	tally  Tally
	told   time.Time // when the tally was said last
	out    *json.Encoder
	nextID int64
	// starved says that a lock it holds now isn't renewed.
	starved bool
	// doubt says that a transfer under its locks got no answer. It may be carried
	// out still, and only a claim of new tokens tells that it won't be.
	doubt bool
}

// tellEvery is how often a worker says what it has done.
const tellEvery = 500 * time.Millisecond

// work is what the process of a worker does, until in ends.
func work(ctx context.Context, in io.Reader, out io.Writer) error {
	lines := bufio.NewReader(in)
	line, err := lines.ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("read the assignment: %w", err)
	}
	w := &worker{told: time.Now(), out: json.NewEncoder(out)}
	if err := json.Unmarshal(line, &w.Assignment); err != nil {
		return fmt.Errorf("read the assignment: %w", err)
	}
	file, err := os.OpenFile(w.History, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("open the history: %w", err)
	}
	defer file.Close()
	if w.etcd, err = leases.NewClient(w.Etcd, nil); err != nil {
		return err
	}
	defer w.etcd.Close()
	w.record = history.NewRecorder(w.Name, file)
	w.random = rand.New(rand.NewPCG(w.Seed, uint64(w.FirstID)))
	w.nextID = w.FirstID
	w.locker = leases.NewLocker(w.etcd)
	w.locker.Prefix, w.locker.RequestTimeout = w.Prefix, 3*time.Second
	working, stop := context.WithCancel(ctx)
	defer stop()
	go func() { // until the harness closes its end
		_, _ = io.Copy(io.Discard, lines)
		stop()
	}()
	w.loop(working)
	w.tell()
	return w.record.Err()
}

// loop ends with ctx. What has begun then is finished under its own time-outs.
func (w *worker) loop(ctx context.Context) {
	var s *session
	for ctx.Err() == nil {
		if s != nil && w.chance(0.3) {
			s.close()
			s = nil
		}
		switch n := w.random.Float64(); {
		case n < 0.06 && w.Lies:
			s = w.lieOnce(ctx, s)
		case n < 0.35:
			s = w.transferring(ctx, s)
		default:
			s = w.holding(ctx, s)
		}
	}
	if s != nil {
		s.close()
	}
}

// end records the end of an operation, and tells the harness from time to time.
func (w *worker) end(op *history.Op) {
	w.record.End(op)
	w.tally.count(op)
	if time.Since(w.told) >= tellEvery {
		w.tell()
	}
}

func (w *worker) tell() {
	_ = w.out.Encode(w.tally) // if the harness is gone, this process soon will be
	w.tally, w.told = Tally{}, time.Now()
}

func (w *worker) chance(p float64) bool { return w.random.Float64() < p }

// stall is what a worker does that doesn't get to run in the middle of its work:
// nothing, for up to twice as long as a lease lasts. One that doesn't renew its
// lease does so more often, for there it matters.
func (w *worker) stall() {
	if p := 0.002; w.chance(p) || w.starved && w.chance(20*p) {
		w.nap()
	}
}

func (w *worker) nap() { <-time.After(w.between(0, 2*w.MostTTL)) }

// between draws a duration.
func (w *worker) between(least, most time.Duration) time.Duration {
	return least + time.Duration(w.random.Int64N(int64(most-least)+1))
}

// draw draws one of several.
func draw[T any](w *worker, from ...T) T { return from[w.random.IntN(len(from))] }

// id is the id of a row that nobody else writes.
func (w *worker) id() int64 {
	w.nextID++
	return w.nextID
}
