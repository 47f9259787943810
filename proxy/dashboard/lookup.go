package dashboard

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/fenceproxy/fenceproxy/fencing"
	"github.com/fenceproxy/fenceproxy/proxy/live"
)

// Marks and holders are looked up for the keys that are shown, whoever looks: in one
// question to etcd and one to each database, no more often than lookFor, and one at a
// time. A page that comes meanwhile is told what was known before.
const (
	lookFor    = 3 * time.Second
	lookWithin = 1500 * time.Millisecond
	// mostKnown bounds what is remembered between two looks.
	mostKnown = 10 * MostKeys
)

type lookups struct {
	asking sync.Mutex // held over I/O: whoever can't have it doesn't wait

	mu    sync.Mutex
	known known
}

// known is what the last looks have found.
type known struct {
	keys                   map[markKey]found
	marksFault, locksFault string // why the last look failed, for people; "" if it didn't
}

type markKey struct{ database, key string }

// found is what there was at a time.
type found struct {
	at     time.Time
	marked bool // the mark could be read
	mark   fencing.ListedMark
	looked bool // etcd could be asked
	held   bool
	lock   live.Lock
}

// lookUp returns what is known of keys, after a look at those that are due.
func (d *Dashboard) lookUp(ctx context.Context, keys []live.Key) known {
	l := &d.look
	if l.asking.TryLock() {
		defer l.asking.Unlock()
		if due := l.due(keys); len(due) > 0 {
			// All will be told what it finds, also when the one who asks has gone.
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookWithin)
			defer cancel()
			l.learn(d.ask(ctx, due))
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	seen := known{keys: map[markKey]found{}, marksFault: l.known.marksFault, locksFault: l.known.locksFault}
	for _, k := range keys {
		at := markKey{k.Database, k.Key}
		seen.keys[at] = l.known.keys[at]
	}
	return seen
}

// due are the keys, each once, that weren't looked up for a while.
func (l *lookups) due(keys []live.Key) (due []markKey) {
	l.mu.Lock()
	defer l.mu.Unlock()
	seen := map[markKey]bool{}
	for _, k := range keys {
		at := markKey{k.Database, k.Key}
		if !seen[at] && time.Since(l.known.keys[at].at) > lookFor {
			due = append(due, at)
		}
		seen[at] = true
	}
	return due
}

func (l *lookups) learn(now known) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.known.keys == nil || len(l.known.keys)+len(now.keys) > mostKnown {
		l.known.keys = map[markKey]found{}
	}
	for k, f := range now.keys {
		l.known.keys[k] = f
	}
	l.known.marksFault, l.known.locksFault = now.marksFault, now.locksFault
}

// ask asks PostgreSQL and etcd at the same time.
func (d *Dashboard) ask(ctx context.Context, due []markKey) known {
	now := known{keys: map[markKey]found{}}
	at := time.Now()
	var marks map[markKey]fencing.ListedMark
	var locks map[string]live.Lock
	var both sync.WaitGroup
	both.Go(func() { marks, now.marksFault = d.askMarks(ctx, due) })
	both.Go(func() { locks, now.locksFault = d.askLocks(ctx, due) })
	both.Wait()
	for _, k := range due {
		f := found{at: at, marked: now.marksFault == "", looked: now.locksFault == ""}
		f.mark = marks[k]
		f.lock, f.held = locks[k.key]
		now.keys[k] = f
	}
	return now
}

func (d *Dashboard) askMarks(ctx context.Context, due []markKey) (map[markKey]fencing.ListedMark, string) {
	if d.Marks == nil {
		return nil, "this proxy can't read marks"
	}
	byDatabase := map[string][]string{}
	for _, k := range due {
		byDatabase[k.database] = append(byDatabase[k.database], k.key)
	}
	all := map[markKey]fencing.ListedMark{}
	for database, keys := range byDatabase {
		marks, err := d.Marks.MarksOf(ctx, database, keys)
		switch {
		case fencing.NotInstalled(err):
			continue // and so there are none
		case errors.Is(err, fencing.ErrMayNotList):
			return nil, fmt.Sprintf("the proxy's role may not read marks; as the owner of schema fence: %s", d.Marks.GrantListing())
		case err != nil:
			return nil, err.Error()
		}
		for _, m := range marks {
			all[markKey{database, m.Key}] = m
		}
	}
	return all, ""
}

func (d *Dashboard) askLocks(ctx context.Context, due []markKey) (map[string]live.Lock, string) {
	if d.Locks == nil {
		return nil, "this proxy can't ask etcd for holders"
	}
	var keys []string
	asked := map[string]bool{}
	for _, k := range due {
		if !asked[k.key] {
			keys = append(keys, k.key)
		}
		asked[k.key] = true
	}
	held, err := d.Locks.HeldLocks(ctx, keys)
	if err != nil {
		return nil, err.Error()
	}
	all := map[string]live.Lock{}
	for _, l := range held {
		all[l.Key] = l
	}
	return all, ""
}

// answer is a key with what is known of it.
func (k known) answer(of live.Key) keyAnswer {
	f := k.keys[markKey{of.Database, of.Key}]
	a := keyAnswer{
		Database: of.Database, Key: of.Key, Token: of.Token.String(), Asked: milliseconds(f.at),
		Sessions: of.Sessions, Transactions: of.Transactions, Claimed: milliseconds(of.Claimed), State: of.State.String(),
	}
	if f.mark.Current {
		a.Mark = number(f.mark.Token)
	}
	if f.held {
		a.Holder, a.Waiting, a.Left = number(f.lock.Token), f.lock.Waiting, f.lock.Left.Milliseconds()
	}
	a.Standing = f.standing(of)
	a.Words = f.words(a.Standing)
	return a
}
