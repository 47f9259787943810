package chaos

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fenceproxy/fenceproxy/fencing"
	"github.com/fenceproxy/fenceproxy/leases"
	"github.com/fenceproxy/fenceproxy/testharness/history"
)

const (
	// glanceEvery is how often etcd's revision is looked at.
	glanceEvery = 25 * time.Millisecond
	// lastKey is written when all is over.
	lastKey = "/fenceproxy/chaos/last"
)

// A Watcher takes down etcd's side of a history: who got in line for which lock
// and went away, in which order, and between which times.
type Watcher struct {
	etcd   *clientv3.Client
	record *history.Recorder
	tokens map[string]fencing.Token // of the places in line that are there
	next   int64                    // the revision to go on with

	last    chan int64 // the last revision there will be, once it is known
	end     int64      // the same, 0 until then
	watched chan error
	stop    context.CancelFunc
	running sync.WaitGroup // follow and glance, which return once ctx has ended
}

// Watch records all changes of locks below the default prefix, from the
// cluster's beginning on, until Finish or Stop. A watch that breaks goes on where
// it was.
func Watch(ctx context.Context, etcd *clientv3.Client, record *history.Recorder) *Watcher {
	w := &Watcher{etcd: etcd, record: record, tokens: map[string]fencing.Token{}, next: 1,
		last: make(chan int64, 1), watched: make(chan error, 1)}
	ctx, w.stop = context.WithCancel(ctx)
	w.running.Add(2)
	go func() {
		defer w.running.Done()
		w.watched <- w.follow(ctx)
	}()
	go func() {
		defer w.running.Done()
		w.glance(ctx)
	}()
	return w
}

// Finish returns when all that has happened is recorded.
func (w *Watcher) Finish(ctx context.Context) error {
	defer w.Stop()
	revision, err := w.lastWord(ctx)
	if err != nil {
		return err
	}
	w.last <- revision
	return <-w.watched
}

// Stop breaks the watch off.
func (w *Watcher) Stop() {
	w.stop()
	w.running.Wait()
}

// follow ends with ctx, or with the last revision.
func (w *Watcher) follow(ctx context.Context) error {
	for {
		watching, stop := context.WithCancel(clientv3.WithRequireLeader(ctx))
		events := w.etcd.Watch(watching, "/fenceproxy/", clientv3.WithPrefix(), clientv3.WithRev(w.next))
		err := w.take(ctx, events)
		stop()
		switch {
		case err != nil:
			return err
		case w.end > 0 && w.next > w.end:
			return nil
		case !pause(ctx):
			return fmt.Errorf("watch the locks: %w", context.Cause(ctx))
		}
	}
}

// take records events until the watch breaks, or the last one.
func (w *Watcher) take(ctx context.Context, events clientv3.WatchChan) error {
	for w.end == 0 || w.next <= w.end {
		select {
		case <-ctx.Done():
			return nil
		case w.end = <-w.last:
		case resp, ok := <-events:
			if !ok {
				return nil
			}
			if resp.CompactRevision > 0 {
				return fmt.Errorf("watch the locks: etcd has forgotten revisions below %d", resp.CompactRevision)
			}
			if resp.Canceled {
				return nil
			}
			now := history.Now()
			for _, event := range resp.Events {
				w.event(event, now)
				w.next = event.Kv.ModRevision + 1 // all of a revision is in one answer
			}
		}
	}
	return nil
}

func (w *Watcher) event(event *clientv3.Event, now history.Moment) {
	place := string(event.Kv.Key)
	key, direct := lockOf(place)
	if !direct {
		return
	}
	e := &history.LockEvent{Key: key, Place: place, Revision: event.Kv.ModRevision, When: history.Span{Hi: now}}
	switch {
	case event.IsCreate():
		w.tokens[place] = fencing.Token(event.Kv.CreateRevision)
	case event.Type == clientv3.EventTypeDelete:
		e.Gone = true
	default:
		return // a change of its value
	}
	if e.Token = w.tokens[place]; e.Token == 0 {
		return
	}
	if e.Gone {
		delete(w.tokens, place)
	}
	w.record.Add(history.Record{Lock: e})
}

// lockOf is the resource key of a place in line: the first part behind the
// prefix, which is escaped, if the place stands directly below it.
func lockOf(place string) (key string, direct bool) {
	escaped, name, ok := strings.Cut(strings.TrimPrefix(place, leases.DefaultPrefix), "/")
	if !ok || !strings.HasPrefix(place, leases.DefaultPrefix) || strings.Contains(name, "/") {
		return "", false
	}
	key, err := url.PathUnescape(escaped)
	return key, err == nil
}

// glance records etcd's revision again and again, until ctx ends.
func (w *Watcher) glance(ctx context.Context) {
	tick := time.NewTicker(glanceEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		asking, cancel := context.WithTimeout(ctx, etcdTimeout)
		asked := history.Now()
		resp, err := w.etcd.Get(asking, lastKey, clientv3.WithCountOnly())
		cancel()
		if err == nil {
			w.record.Add(history.Record{Glance: &history.Glance{Revision: resp.Header.Revision, Asked: asked, Answered: history.Now()}})
		}
	}
}

// lastWord writes a key, and returns its revision.
func (w *Watcher) lastWord(ctx context.Context) (revision int64, err error) {
	err = persist(ctx, func(ctx context.Context) error {
		resp, err := w.etcd.Put(ctx, lastKey, "")
		if err == nil {
			revision = resp.Header.Revision
		}
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("write the last word to etcd: %w", err)
	}
	return revision, nil
}
