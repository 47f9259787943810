package scenario

import (
	"errors"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fenceproxy/fenceproxy/fencing"
	"github.com/fenceproxy/fenceproxy/leases"
)

// Revoke has an operator revoke the lease of a lock that the actor holds.
func (s *Stage) Revoke(a *Actor, key string) {
	if s.err != nil {
		return
	}
	got, err := s.Etcd.Get(s.ctx, leases.LockPrefix(s.Prefix, key)+"/", clientv3.WithFirstCreate()...)
	if err == nil && len(got.Kvs) == 0 {
		err = errors.New("nobody holds the lock")
	}
	if err == nil {
		_, err = s.Etcd.Revoke(s.ctx, clientv3.LeaseID(got.Kvs[0].Lease))
	}
	if err != nil {
		s.fail(fmt.Errorf("revoke the lease of %s: %w", a.Name, err))
		return
	}
	s.record(Event{Actor: LaneEtcd, Kind: KindExpired, Key: key, Token: fencing.Token(got.Kvs[0].CreateRevision),
		Text: "the lease of " + a.Name + "'s lock " + key + " is revoked: the lock is taken from it"})
}

// ReplaceEtcd puts an empty etcd in the place of the one there is. All locks
// are gone, and its numbers begin at the beginning.
func (s *Stage) ReplaceEtcd() {
	if s.err != nil {
		return
	}
	client, err := s.Backstage.ReplaceEtcd(s.ctx)
	if err != nil {
		s.fail(fmt.Errorf("replace etcd: %w", err))
		return
	}
	s.Etcd = client
	s.record(Event{Actor: LaneEtcd, Kind: KindRenewed, Text: "is replaced by an empty one: all locks are gone, and numbers begin again"})
}

// AdoptEtcd has an operator take the new etcd for good.
func (s *Stage) AdoptEtcd() {
	if s.err != nil {
		return
	}
	if err := s.Backstage.AdoptEtcd(s.ctx); err != nil {
		s.fail(fmt.Errorf("adopt etcd: %w", err))
		return
	}
	s.record(Event{Actor: LanePostgres, Kind: KindHeal, Text: "an operator runs fenceproxy adopt-lineage: all sessions are ended, all marks removed"})
	s.reconnect() // our session was ended too
}

// Revision is how far etcd has come: what a program sees that takes the
// revision of an answer for its token.
func (s *Stage) Revision() fencing.Token {
	if s.err != nil {
		return 0
	}
	got, err := s.Etcd.Get(s.ctx, s.Prefix, clientv3.WithCountOnly())
	if err != nil {
		s.fail(fmt.Errorf("ask etcd how far it is: %w", err))
		return 0
	}
	return fencing.Token(got.Header.Revision)
}

// inLine waits until n clients stand in line for a lock in etcd, its holder
// among them.
func (s *Stage) inLine(n int64, key string) {
	s.Await(fmt.Sprintf("%d clients in line for %s", n, key), func() (bool, error) {
		got, err := s.Etcd.Get(s.ctx, leases.LockPrefix(s.Prefix, key)+"/", clientv3.WithPrefix(), clientv3.WithCountOnly())
		return err == nil && got.Count == n, err
	})
}

// gone says whether nobody stands in line with a number any more.
func (s *Stage) gone(h Hold) (bool, error) {
	got, err := s.Etcd.Get(s.ctx, leases.LockPrefix(s.Prefix, h.Key)+"/", clientv3.WithPrefix(), clientv3.WithKeysOnly(),
		clientv3.WithMinCreateRev(int64(h.Token)), clientv3.WithMaxCreateRev(int64(h.Token)))
	return err == nil && len(got.Kvs) == 0, err
}

// busy has etcd come n revisions further, by other clients' work.
func (s *Stage) busy(n int) {
	for range n {
		if s.err != nil {
			return
		}
		if _, err := s.Etcd.Put(s.ctx, s.Prefix+"other", ""); err != nil {
			s.fail(fmt.Errorf("be another client of etcd: %w", err))
		}
	}
}
