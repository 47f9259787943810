package proxy

import (
	"context"
	"fmt"
	"time"

	"github.com/fenceproxy/fenceproxy/fencing"
)

// Under FenceIssued and FenceLive a tag can go stale without a claim: the proxy
// has seen in etcd that the holder was followed by another, or that its key is
// gone. What it has seen is old news, and only ever adds refusals: the check in
// the database and the claim that it waits for stay what they are.

// Locks knows how locks stood in etcd when it looked last. *leases.Watch is one.
type Locks interface {
	// Follow has the lock of a key looked at whenever it may have changed hands.
	Follow(key string)
	// Unfollow takes one Follow back.
	Unfollow(key string)
	// Seen returns how the lock of a key was seen last, and whether it was. It
	// waits, until ctx ends, only where it is about to be seen for the first time.
	Seen(ctx context.Context, key string) (seen fencing.Sighting, known bool)
}

const (
	// firstSight bounds the wait for a lock that is looked at for the first time.
	firstSight = 2 * time.Second
	// maxFollowed is how many locks a session follows that are not of its tag.
	maxFollowed = 64
)

// watched reports whether the session's locks are followed.
func (s *session) watched() bool { return s.policy.Fencing != FenceAccepted && s.srv.Locks != nil }

// follow follows the locks of a tag, and gives up those of earlier ones if they
// are many: a rollback can bring a tag back.
func (s *session) follow(tag fencing.Tag) {
	if !s.watched() {
		return
	}
	if len(s.followed) > maxFollowed {
		for key := range s.followed {
			if tag.Token(key) == 0 {
				s.srv.Locks.Unfollow(key)
				delete(s.followed, key)
			}
		}
	}
	for _, p := range tag {
		if _, has := s.followed[p.Key]; has {
			continue
		}
		if s.followed == nil {
			s.followed = map[string]struct{}{}
		}
		s.followed[p.Key] = struct{}{}
		s.requesting.leave() // it will be waited for until it was seen
		s.srv.Locks.Follow(p.Key)
	}
}

// unfollow gives all up at the session's end.
func (s *session) unfollow() {
	for key := range s.followed {
		s.srv.Locks.Unfollow(key)
	}
	s.followed = nil
}

// foundStale returns why a token of the session's tag is stale by what was seen
// in etcd; nil if none is, as far as is known.
func (s *session) foundStale() *fencing.Error {
	if !s.watched() {
		return nil
	}
	s.mu.Lock()
	m := s.mirror
	s.mu.Unlock()
	if m.unsure {
		return nil
	}
	tag, _, err := m.tag()
	if err != nil || len(tag) == 0 {
		return nil
	}
	s.follow(tag)
	ctx, cancel := context.WithTimeout(s.srv.ctx, firstSight)
	defer cancel()
	for _, p := range tag {
		seen, known := s.srv.Locks.Seen(ctx, p.Key)
		switch {
		case !known:
		case seen.Newer(p.Token):
			return fencing.Refuse(fencing.CodeStale, "%s token %d was superseded in etcd by %d", p.Key, p.Token, seen.Holder).With(
				fmt.Sprintf("Key %s, presented token %d, held with token %d by lock key %s at revision %d; fencing is %v here.",
					p.Key, p.Token, seen.Holder, seen.LockKey, seen.Revision, s.policy.Fencing),
				"Stop: another holder has this lock. Acquire it again and use the new token.")
		case s.policy.Fencing == FenceLive && seen.Gone(p.Token):
			return fencing.Refuse(fencing.CodeStale, "%s token %d: its lock is gone from etcd", p.Key, p.Token).With(
				fmt.Sprintf("Key %s, presented token %d, held by nobody at revision %d; fencing is %v here.",
					p.Key, p.Token, seen.Revision, s.policy.Fencing),
				"Stop: the lock was released, or its lease ran out or was revoked. Acquire it again and use the new token.")
		}
	}
	return nil
}

// lookAgain looks whether the tag is stale by now. If it is, the checks of what
// follows fail, and a transaction that was checked has to be checked again: it
// must not commit what the proxy knows to be stale.
func (s *session) lookAgain() *fencing.Error {
	stale := s.foundStale()
	if (stale == nil) != (s.stale == nil) {
		s.own.generation++ // its statements are others now
	}
	s.stale = stale
	if t := &s.txn; stale != nil && t.checked {
		t.checked, t.uncovered, t.ran, t.guess = false, true, true, false
	}
	return stale
}
