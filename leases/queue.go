package leases

import (
	"context"
	"sort"
	"strconv"
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fenceproxy/fenceproxy/fencing"
)

// A place is one client's key under a lock: the holder's or a waiter's.
type place struct {
	key      string // the whole etcd key
	name     string // its last part, a lease ID in hex
	lease    clientv3.LeaseID
	token    fencing.Token // create revision
	modified int64         // mod revision
}

// A queue is who stood in line for a lock at one revision of etcd.
type queue struct {
	dir      string  // what all keys of the lock start with
	places   []place // by create revision; the first is the holder's
	nested   int     // keys that belong to locks below this one
	revision int64
	cluster  string // cluster ID in hex
}

// readQueue reads the line for the lock at lockPrefix, in one linearizable
// range. Only direct children stand in line: a key further down belongs to a
// lock whose name was written without escaping its slash.
func readQueue(ctx context.Context, kv clientv3.KV, lockPrefix string) (*queue, error) {
	dir := lockPrefix + "/"
	// Not keys only: etcd 3.7 leaves the lease out of such an answer, and the
	// values of locks are empty anyway.
	resp, err := kv.Get(ctx, dir, clientv3.WithPrefix())
	if err != nil {
		return nil, err
	}
	q := &queue{
		dir:      dir,
		revision: resp.Header.Revision,
		cluster:  strconv.FormatUint(resp.Header.ClusterId, 16),
	}
	for _, kv := range resp.Kvs {
		name := strings.TrimPrefix(string(kv.Key), dir)
		if strings.Contains(name, "/") {
			q.nested++
			continue
		}
		q.places = append(q.places, newPlace(kv, name))
	}
	q.sort()
	return q, nil
}

func newPlace(kv *mvccpb.KeyValue, name string) place {
	return place{
		key:      string(kv.Key),
		name:     name,
		lease:    clientv3.LeaseID(kv.Lease),
		token:    fencing.Token(kv.CreateRevision),
		modified: kv.ModRevision,
	}
}

// sort puts the places in the order in which they get the lock.
func (q *queue) sort() {
	sort.Slice(q.places, func(i, j int) bool { return q.places[i].token < q.places[j].token })
}

// holder returns the place of the lock's holder, or nil if nobody holds it.
func (q *queue) holder() *place {
	if len(q.places) == 0 {
		return nil
	}
	return &q.places[0]
}

// find returns the place, counted from 0, whose create revision is token, or
// -1.
func (q *queue) find(token fencing.Token) int {
	for i := range q.places {
		if q.places[i].token == token {
			return i
		}
	}
	return -1
}

// findLease returns the place, counted from 0, whose lease ID is n, or -1. A
// client may have read the ID off its lease or off the name of its key.
func (q *queue) findLease(n int64) int {
	hex := strconv.FormatInt(n, 16)
	for i := range q.places {
		if int64(q.places[i].lease) == n || q.places[i].name == hex {
			return i
		}
	}
	return -1
}
