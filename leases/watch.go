package leases

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fenceproxy/fenceproxy/fencing"
)

// Times of a Watch.
const (
	// DefaultWatchPause is how long a Watch waits before it tries again what
	// failed.
	DefaultWatchPause = 250 * time.Millisecond
	// DefaultWatchQuiet is after how long without a word of etcd a watch is
	// given up and begun anew; it is asked for one before.
	DefaultWatchQuiet = 15 * time.Second
	// DefaultLookTimeout bounds one read.
	DefaultLookTimeout = 2 * time.Second
)

// errQuiet: etcd said nothing for too long, asked or not.
var errQuiet = errors.New("etcd says nothing to a watch")

// A Watch knows, of the locks that it is asked to follow, who held each when it
// was looked at last. One watch on the prefix of all locks tells which of them
// to look at again; what is known of a lock always comes from a linearizable
// read, so nothing is lost by a watch that is compacted away or breaks off: it
// begins anew and has every lock looked at. A Watch that lags or is cut off
// knows what was, never what wasn't.
//
// It keeps nothing of locks that nobody follows. Fields may be set before Run.
type Watch struct {
	Prefix      string
	Pause       time.Duration
	Quiet       time.Duration
	LookTimeout time.Duration
	// Broken hears why a watch or a read ended, which is tried again; nil for
	// nobody.
	Broken func(error)

	client *clientv3.Client
	wake   chan struct{} // holds a token when a lock is to be looked at

	mu    sync.Mutex
	locks map[string]*followed // by what their keys start with
	due   map[*followed]struct{}
	heard time.Time // when the watch said something last; zero while there is none
}

// followed is a lock that somebody follows.
type followed struct {
	lock  string // its etcd prefix
	by    int    // how many follow it
	seen  fencing.Sighting
	known bool
	// looking: it is being read, so that what the watch tells may be news to
	// what will be seen.
	looking bool
	looked  chan struct{} // closed when it was looked at, or could not be
	tried   bool
}

// NewWatch returns a Watch that asks over client, which stays the caller's to
// close. It knows nothing before Run.
func NewWatch(client *clientv3.Client) *Watch {
	return &Watch{
		Prefix: DefaultPrefix, Pause: DefaultWatchPause, Quiet: DefaultWatchQuiet, LookTimeout: DefaultLookTimeout,
		client: client, wake: make(chan struct{}, 1),
		locks: map[string]*followed{}, due: map[*followed]struct{}{},
	}
}

// Run watches until ctx ends.
func (w *Watch) Run(ctx context.Context) {
	var looking sync.WaitGroup
	looking.Go(func() { w.look(ctx) })
	for ctx.Err() == nil {
		err := w.watch(ctx)
		w.mu.Lock()
		w.heard = time.Time{}
		w.mu.Unlock()
		w.broken(ctx, fmt.Errorf("watch locks: %w", err))
	}
	looking.Wait()
}

// broken takes the failure of something that is tried again after a pause.
func (w *Watch) broken(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	if w.Broken != nil {
		w.Broken(err)
	}
	select {
	case <-ctx.Done():
	case <-time.After(w.Pause):
	}
}

// Age is how long ago the watch said something; false while there is none.
func (w *Watch) Age() (time.Duration, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return time.Since(w.heard), !w.heard.IsZero()
}

// Follow has the lock of a key looked at now, and whenever it may have another
// holder, until Unfollow was called as often.
func (w *Watch) Follow(key string) {
	lock := LockPrefix(w.Prefix, key)
	w.mu.Lock()
	defer w.mu.Unlock()
	f := w.locks[lineDir(lock)]
	if f == nil {
		f = &followed{lock: lock, looked: make(chan struct{})}
		w.locks[lineDir(lock)] = f
		w.dueLocked(f)
	}
	f.by++
}

// Unfollow takes one Follow back.
func (w *Watch) Unfollow(key string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f := w.locks[lineDir(LockPrefix(w.Prefix, key))]
	if f == nil {
		return
	}
	if f.by--; f.by == 0 {
		delete(w.locks, lineDir(f.lock))
		delete(w.due, f)
	}
}

// Seen returns how the lock of a key was seen last, and whether it was seen at
// all. It waits until ctx ends for a lock that has not been looked at yet; one
// that could not be is unknown.
func (w *Watch) Seen(ctx context.Context, key string) (fencing.Sighting, bool) {
	w.mu.Lock()
	f := w.locks[lineDir(LockPrefix(w.Prefix, key))]
	w.mu.Unlock()
	if f == nil {
		return fencing.Sighting{}, false
	}
	select {
	case <-f.looked:
	case <-ctx.Done():
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return f.seen, f.known
}

// Watchable returns nil if etcd lets the locks be watched, and otherwise why not.
func (a *Authority) Watchable(ctx context.Context) error {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	resp, ok := <-a.client.Watch(ctx, a.Prefix, clientv3.WithPrefix(), clientv3.WithCreatedNotify())
	switch {
	case ok && resp.Err() == nil:
		return nil
	case ok:
		return outage(a.client, resp.Err())
	}
	return outage(a.client, ctx.Err())
}

// watch runs one watch until it breaks off, and returns why.
func (w *Watch) watch(ctx context.Context) error {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	events := w.client.Watch(ctx, w.Prefix, clientv3.WithPrefix(), clientv3.WithCreatedNotify(), clientv3.WithFragment())
	ask := time.NewTicker(w.Quiet / 3)
	defer ask.Stop()
	heard := time.Now()
	for {
		select {
		case resp, ok := <-events:
			if !ok {
				return errors.Join(ctx.Err(), errors.New("it was ended"))
			}
			if err := resp.Err(); err != nil {
				return err
			}
			heard = time.Now()
			w.hear(resp, heard)
		case <-ask.C:
			if time.Since(heard) > w.Quiet {
				return errQuiet
			}
			if err := w.client.RequestProgress(ctx); err != nil {
				return err
			}
		}
	}
}

// hear takes what the watch says. At its beginning nothing is known of what
// came before, so every lock is looked at.
func (w *Watch) hear(resp clientv3.WatchResponse, now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.heard = now
	if resp.Created {
		for _, f := range w.locks {
			w.dueLocked(f)
		}
	}
	for _, e := range resp.Events {
		key := string(e.Kv.Key)
		f := w.locks[key[:strings.LastIndexByte(key, '/')+1]]
		// Who comes while another holds the lock waits, and changes nothing.
		if f != nil && (e.Type == clientv3.EventTypeDelete || f.seen.Holder == 0 || f.looking) {
			w.dueLocked(f)
		}
	}
}

// dueLocked has a lock looked at. The caller holds mu.
func (w *Watch) dueLocked(f *followed) {
	w.due[f] = struct{}{}
	select {
	case w.wake <- struct{}{}:
	default:
	}
}
