package leases

import (
	"context"
	"sort"
	"strconv"
	"strings"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
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
// range.
func readQueue(ctx context.Context, kv clientv3.KV, lockPrefix string) (*queue, error) {
	resp, err := kv.Get(ctx, lineDir(lockPrefix), clientv3.WithPrefix())
	if err != nil {
		return nil, err
	}
	return newQueue(lineDir(lockPrefix), resp.Header, resp.Kvs), nil
}

// readQueues reads several lines in one linearizable request, all at the same
// revision.
func readQueues(ctx context.Context, kv clientv3.KV, lockPrefixes []string) ([]*queue, error) {
	ranges := make([]clientv3.Op, len(lockPrefixes))
	for i, lockPrefix := range lockPrefixes {
		ranges[i] = clientv3.OpGet(lineDir(lockPrefix), clientv3.WithPrefix())
	}
	resp, err := kv.Txn(ctx).Then(ranges...).Commit()
	if err != nil {
		return nil, err
	}
	if len(resp.Responses) != len(ranges) {
		return nil, errIncomplete
	}
	queues := make([]*queue, len(ranges))
	for i, lockPrefix := range lockPrefixes {
		queues[i] = newQueue(lineDir(lockPrefix), resp.Header, resp.Responses[i].GetResponseRange().GetKvs())
	}
	return queues, nil
}

// lineDir returns what all keys of a lock start with.
func lineDir(lockPrefix string) string { return lockPrefix + "/" }

// newQueue takes the keys of a lock, with their values: etcd 3.7 leaves the
// lease out of an answer without, and the values of locks are empty anyway.
// Only direct children stand in line: a key further down belongs to a lock
// whose name was written without escaping its slash.
func newQueue(dir string, header *etcdserverpb.ResponseHeader, kvs []*mvccpb.KeyValue) *queue {
	q := &queue{
		dir:      dir,
		revision: header.Revision,
		cluster:  strconv.FormatUint(header.ClusterId, 16),
	}
	for _, kv := range kvs {
		name := strings.TrimPrefix(string(kv.Key), dir)
		if strings.Contains(name, "/") {
			q.nested++
			continue
		}
		q.places = append(q.places, newPlace(kv, name))
	}
	q.sort()
	return q
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
