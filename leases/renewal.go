package leases

import (
	"context"
	"fmt"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// retryPause is how long to wait after a renewal or a watch that failed,
// unless the time to live asks for less.
const retryPause = 500 * time.Millisecond

// renew keeps the lease alive, three times per time to live. It returns once
// the Lease has ended.
func (s *Lease) renew() {
	defer s.running.Done()
	for pause := s.interval(); s.wait(pause); {
		sent, ttl, err := s.renewOnce()
		if err == nil || s.ctx.Err() == nil {
			s.metrics.renewed(err == nil && ttl > 0)
		}
		switch {
		case err != nil:
			pause = min(retryPause, s.interval()/4)
		case ttl <= 0:
			s.end(fmt.Errorf("lock %s: %w: its lease %x ran out or was revoked", show(s.key), ErrLost, int64(s.id)))
		default:
			s.extend(sent, ttl)
			pause = s.interval()
		}
	}
}

// wait returns true after d, false once the Lease has ended. It looks at the
// clock afterwards: d may have been far longer for the rest of the world.
func (s *Lease) wait(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return s.Err() == nil
	case <-s.ctx.Done():
		return false
	}
}

// renewOnce asks etcd for one renewal. It returns when the request was sent
// and for how long etcd has granted it; 0 means that the lease is no more.
func (s *Lease) renewOnce() (sent time.Time, ttl time.Duration, err error) {
	ctx, cancel := context.WithTimeout(s.ctx, s.interval())
	defer cancel()
	sent = s.now()
	ttl, err = keepAlive(ctx, s.client, s.id)
	return sent, ttl, err
}

// keepAlive is one renewal of a lease, under a ctx that ends.
func keepAlive(ctx context.Context, client *clientv3.Client, id clientv3.LeaseID) (ttl time.Duration, err error) {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	// Not Client.KeepAliveOnce, which tries again inside: its answer may be
	// to a request sent at any time, and it doesn't pause between tries.
	stream, err := clientv3.RetryLeaseClient(client).LeaseKeepAlive(ctx)
	if err != nil {
		return 0, err
	}
	if err := stream.Send(&pb.LeaseKeepAliveRequest{ID: int64(id)}); err != nil {
		return 0, err
	}
	resp, err := stream.Recv()
	if err != nil {
		return 0, err
	}
	return seconds(resp.TTL), nil
}

// extend moves the deadline after a renewal that was sent at sent.
func (s *Lease) extend(sent time.Time, ttl time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ttl, s.deadline = ttl, sent.Add(ttl)
	s.expiry.Reset(s.deadline.Sub(s.now()))
}

// expire is called by the timer at the deadline, in a goroutine of its own so
// that no request under way can delay it.
func (s *Lease) expire() {
	if s.Err() != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expiry.Reset(s.deadline.Sub(s.now()))
}

func (s *Lease) overdue() error {
	return fmt.Errorf("lock %s: %w: its lease %x was not renewed in time", show(s.key), ErrLost, int64(s.id))
}

func (s *Lease) interval() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ttl / 3
}

// watch ends the Lease when the lock's key is deleted, by a revoked lease or
// by hand; etcd has given the lock to somebody else then, though renewals
// may go on to succeed. It reports events from revision on, and returns once
// the Lease has ended.
func (s *Lease) watch(revision int64) {
	defer s.running.Done()
	for s.ctx.Err() == nil {
		for resp := range s.client.Watch(s.ctx, s.lockKey, clientv3.WithRev(revision), clientv3.WithFilterPut()) {
			for _, event := range resp.Events {
				if event.Type == mvccpb.Event_DELETE {
					s.end(s.deleted(event.Kv.ModRevision))
				}
			}
		}
		// etcd ended the watch, most likely because it has compacted
		// revision away while it could not be reached.
		if !s.wait(retryPause) {
			return
		}
		revision = s.reread(revision)
	}
}

// reread looks at the lock's key itself, ends the Lease if it isn't this
// holder's any more, and returns the revision to watch from.
func (s *Lease) reread(revision int64) int64 {
	ctx, cancel := context.WithTimeout(s.ctx, s.requestTimeout)
	defer cancel()
	resp, err := s.client.Get(ctx, s.lockKey)
	switch {
	case err != nil:
		return revision
	case len(resp.Kvs) == 0 || resp.Kvs[0].CreateRevision != int64(s.token):
		s.end(s.deleted(resp.Header.Revision))
	}
	return resp.Header.Revision + 1
}

func (s *Lease) deleted(revision int64) error {
	return fmt.Errorf("lock %s: %w: its key %s was gone at etcd revision %d", show(s.key), ErrLost, s.lockKey, revision)
}
