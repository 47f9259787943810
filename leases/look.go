package leases

import (
	"context"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fenceproxy/fenceproxy/fencing"
)

// lookOps bounds the locks of one read; etcd takes 128 operations in a
// transaction by default, and each returns a lock's whole line.
const lookOps = 50

// look reads the locks that are due, one read at a time, so that what is known
// never goes backwards. It returns when ctx ends.
func (w *Watch) look(ctx context.Context) {
	for {
		batch := w.take()
		if len(batch) == 0 {
			select {
			case <-w.wake:
				continue
			case <-ctx.Done():
				return
			}
		}
		if err := w.read(ctx, batch); err != nil {
			w.putBack(batch)
			w.broken(ctx, err)
			if ctx.Err() != nil {
				return
			}
		}
	}
}

// take returns some of the locks that are due.
func (w *Watch) take() []*followed {
	w.mu.Lock()
	defer w.mu.Unlock()
	var batch []*followed
	for f := range w.due {
		if len(batch) == lookOps {
			break
		}
		batch = append(batch, f)
		f.looking = true
		delete(w.due, f)
	}
	return batch
}

// putBack has locks that could not be read looked at again. Nobody waits for
// that, nor for others that are due: what isn't known doesn't hold anybody up.
func (w *Watch) putBack(batch []*followed) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, f := range batch {
		f.looking = false
		f.try()
		if f.by > 0 {
			w.dueLocked(f)
		}
	}
	for f := range w.due {
		f.try()
	}
}

// try takes note that a lock was looked at, or could not be. The caller holds mu.
func (f *followed) try() {
	if !f.tried {
		f.tried = true
		close(f.looked)
	}
}

// read looks at locks, with one linearizable transaction.
func (w *Watch) read(ctx context.Context, batch []*followed) error {
	ctx, cancel := context.WithTimeout(clientv3.WithRequireLeader(ctx), w.LookTimeout)
	defer cancel()
	locks := make([]string, len(batch))
	for i, f := range batch {
		locks[i] = f.lock
	}
	queues, err := readQueues(ctx, w.client, locks)
	if err != nil {
		return fmt.Errorf("look at locks: %w", outage(w.client, err))
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, q := range queues {
		seen := fencing.Sighting{Revision: q.revision}
		if holder := q.holder(); holder != nil {
			seen.Holder, seen.LockKey = holder.token, holder.key
		}
		batch[i].seen, batch[i].known, batch[i].looking = seen, true, false
		batch[i].try()
	}
	return nil
}
