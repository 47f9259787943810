package proxy

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fenceproxy/fenceproxy/fencing"
	"github.com/fenceproxy/fenceproxy/sqlrewrite"
)

// becomeTagged turns the session into one that is looked at, for good.
func (s *session) becomeTagged() error {
	if !s.segment.open {
		answered := func() bool { return s.lost || s.queue.Len() == 0 || s.queue.Starving() }
		if err := s.awaitEarlier(answered); err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lost {
		return errLost
	}
	s.tagged, s.guarded = true, true
	s.measured.began = time.Now()
	s.txn.held = true       // what ran in an open transaction was not looked at,
	s.portals.forgot = true // nor which portals it has
	if s.segment.open {
		// Nor was what ran in the segment that is half sent.
		s.txn = txn{block: blockUnknown, uncovered: true, ran: true, held: true}
		s.segment.executed, s.segment.unknown = true, true
	}
	return nil
}

// options returns how texts are to be read at this point.
func (s *session) options() sqlrewrite.Options {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.params
}

// claimMirror claims the tag that the backend has, and remembers the refusal
// if that fails.
func (s *session) claimMirror() *fencing.Error {
	s.mu.Lock()
	m := s.mirror
	s.mu.Unlock()
	tag, incomplete, err := m.tag()
	if incomplete {
		tag = nil
	}
	refused := s.claimAs(tag, err)
	s.claimEnded()
	if refused != nil {
		if s.refused == nil || s.refused.retry {
			s.refused = &refusal{err: refused, retry: true, names: allSettings}
		}
		return refused
	}
	s.mu.Lock()
	s.sectionLocked(tag)
	s.mu.Unlock()
	if s.refused != nil && s.refused.retry {
		s.refused = nil
	}
	return nil
}

// claimAs claims the pairs of a tag in order, also those that the session had
// before: a token that was superseded meanwhile is told at once. The session is
// listed under the new tag first, so that a claim doesn't evict its own session.
func (s *session) claimAs(tag fencing.Tag, malformed error) *fencing.Error {
	if malformed != nil {
		return asRefusal(malformed)
	}
	s.mu.Lock()
	s.coming = tag
	former := s.leaveLocked()
	s.mu.Unlock()
	s.srv.retag(s, tag, former)
	if len(tag) == 0 {
		return nil
	}
	s.follow(tag)
	if !s.presented {
		s.presented = true
		s.srv.Metrics.Tagged.Inc()
	}
	ctx, done := s.beginClaim()
	defer done()
	if other := s.srv.elsewhere(ctx, s.host); other != "" {
		return movedAway(s.host.Name, other)
	}
	for _, p := range tag {
		if refused := s.claim(ctx, p); refused != nil {
			return refused
		}
	}
	if !s.installed {
		s.installed = true
		s.own.generation++ // its statements are others now
	}
	return nil
}

// claim claims one pair.
func (s *session) claim(ctx context.Context, p fencing.Pair) (refused *fencing.Error) {
	begin := time.Now()
	err := s.claims().Claim(ctx, s.database, p)
	switch {
	case errors.Is(context.Cause(ctx), errCanceled):
		refused = errCanceled
	case err != nil:
		refused = asRefusal(err)
	}
	s.traceClaim(begin, p, refused)
	return refused
}

// leaveLocked remembers the tag that another one is to take the place of: the open
// transaction may have locked its marks, and a rollback may bring it back.
func (s *session) leaveLocked() []fencing.Pair {
	tag, _, _ := s.mirror.tag()
	if !s.mirror.open && !s.mirror.unsure && !s.txn.held {
		s.former = nil
	}
	s.former = union(s.former, tag)
	return s.former
}

// movedAway refuses a claim on a server that sessions no longer go to: what it
// says doesn't bind those that go to the other one.
func movedAway(from, to string) *fencing.Error {
	return fencing.Refuse(fencing.CodeUnverified, "the session is connected to %s, and PostgreSQL has moved to %s", from, to).
		With("", "Connect again.")
}

// asRefusal makes a refusal of any error.
func asRefusal(err error) *fencing.Error {
	var refused *fencing.Error
	if errors.As(err, &refused) {
		return refused
	}
	return fencing.Refuse(fencing.CodeUnverified, "the claim could not be carried out").
		With(err.Error(), "Retry; if it persists, look at the log of fenceproxy.").Because(err)
}

// retag takes the settings that are about to be sent: it claims what they
// make of the tag, and only then lets the mirror follow.
func (s *session) retag(settings []sqlrewrite.Setting, lends sqlrewrite.Verb) *fencing.Error {
	s.mu.Lock()
	m := s.mirror
	pending := s.queue.ReadyDue() > 0
	s.mu.Unlock()
	before, _, _ := m.tag()
	m.apply(settings, pending)
	tag, incomplete, err := m.tag()
	if incomplete {
		tag = nil
	}
	refused := raisesOwn(&s.txn, before, tag)
	if refused == nil {
		_ = s.flush() // a backend that is gone answers through the push that follows
		refused = s.claimAs(tag, err)
	}
	switch {
	case refused == nil:
	case onlyResets(settings), lends == sqlrewrite.ReleaseLock:
		// What RESET gives back is the startup packet's tag, which the backend
		// will have: refused until it can be claimed, but not the RESET. So it
		// is with the locks that are left when one is released.
		s.refused = &refusal{err: refused, retry: true, names: allSettings}
		s.settleOn(m, nil)
		return nil
	case lends == sqlrewrite.AcquireLock:
		s.stay(before) // the lock is given back, and the session is as it was
		return refused
	default:
		s.stay(before)
		s.refuse(refused, settings)
		return refused
	}
	if s.refused != nil && (len(tag) > 0 || s.refused.takenBack(settings)) {
		s.refused = nil
	}
	s.settleOn(m, tag)
	return nil
}

// settleOn lets the mirror be what the settings are about to be, and the tag what
// was claimed of it.
func (s *session) settleOn(m mirror, tag fencing.Tag) {
	s.mu.Lock()
	s.mirror = m
	s.coming = nil
	s.sectionLocked(tag)
	s.mu.Unlock()
}

// stay lists the session under the tag that it had before a claim was refused.
func (s *session) stay(before fencing.Tag) {
	s.mu.Lock()
	former := s.former
	s.coming = nil
	s.mu.Unlock()
	s.srv.retag(s, before, former)
}

// claimEnded takes the end of a claim after which the mirror stays as it is.
func (s *session) claimEnded() {
	s.mu.Lock()
	s.coming = nil
	s.mu.Unlock()
}

// raisesOwn refuses a higher token for a key whose mark this very transaction
// may have locked: the claim would wait for its own session.
func raisesOwn(t *txn, before, after fencing.Tag) *fencing.Error {
	if !t.held {
		return nil
	}
	for _, p := range after {
		if had := before.Token(p.Key); had != 0 && had < p.Token {
			return fencing.Refuse(fencing.CodeMalformedTag, "token %d for %s inside a transaction that runs under token %d", p.Token, p.Key, had).
				With("The open transaction was checked under the lower token.",
					"Finish the transaction first, then set the new token.")
		}
	}
	return nil
}

// settle brings what the request side knows up to date before the first
// message of a segment. It returns a refusal only of the session's state, not
// of a message.
func (s *session) settle() error {
	s.unread = nil
	s.mu.Lock()
	if s.queue.Len() == 0 {
		if s.implicitLocked() {
			s.txn, s.segment.unknown = txn{block: blockUnknown, uncovered: true, ran: true, held: true}, true
		} else {
			s.txn.settled(blockOf(s.status), s.checked, s.ran)
			if s.txn.block == blockNone {
				s.measured.began = time.Now()
			}
		}
		switch {
		case s.txn.block == blockNone:
			s.portals.end()
		case s.failed, s.queue.Skipping():
			s.portals.endBefore(s.segment.number)
		default:
			s.portals.carriedOut(s.segment.number)
		}
		s.failed = false
	} else {
		s.txn = txn{block: blockUnknown, uncovered: true, ran: true, guess: true, held: s.txn.held}
	}
	s.own.confirmed = max(s.own.confirmed, s.confirm)
	if s.forgotten {
		s.own.generation++
		s.forgotten = false
	}
	unsure := s.mirror.unsure && s.txn.block != blockFailed && s.queue.Len() == 0 && !s.implicitLocked()
	s.mu.Unlock()
	if unsure {
		return s.readback()
	}
	return nil
}

// admit decides whether statements may go to the backend, and claims what
// they make of the tag.
func (s *session) admit(what meaning) *fencing.Error {
	stale := s.lookAgain()
	if len(what.settings) > 0 {
		if refused := s.retag(what.settings, what.lends); refused != nil {
			return refused
		}
		// In a block the tag that was there before counts on, for its writes.
		if again := s.foundStale(); again != nil || s.txn.block == blockNone {
			stale = s.lookAgain()
		}
	}
	if stale != nil && !what.harmless {
		return stale
	}
	if s.unread != nil && !what.harmless {
		return s.unread
	}
	if s.refused != nil && !what.harmless {
		if !s.refused.retry || s.claimMirror() != nil {
			return s.refused.again()
		}
	}
	if !what.mayWrite {
		return nil
	}
	s.mu.Lock()
	now := s.mirror.now
	s.mu.Unlock()
	if now.incomplete() {
		return incompleteTag(now)
	}
	return nil
}

func incompleteTag(v values) *fencing.Error {
	have, want := fencing.SettingKey, fencing.SettingToken
	if v.key == "" {
		have, want = want, have
	}
	return fencing.Refuse(fencing.CodeMalformedTag, "%s is set but %s is not", have, want).With(
		"An incomplete tag lets reads through and refuses writes. A token that was set for the key before does not count for the new one.",
		fmt.Sprintf("SET %s too, or RESET %s.", want, have))
}

// oversized refuses a tag that is too long to be read.
func oversized() *fencing.Error {
	return fencing.Refuse(fencing.CodeMalformedTag, "the fence settings of the session have over %d bytes", maxReport).With(
		fmt.Sprintf("A key may have %d bytes.", fencing.MaxKeyLen), "RESET fence.key, fence.token and fence.tokens.")
}

// evictedBy is what a session hears that a higher claim has ended.
func evictedBy(key string, had, by fencing.Token) *fencing.Error {
	return fencing.Refuse(fencing.CodeEvicted, "%s token %d was superseded by %d and the session was ended", key, had, by).With(
		"The open transaction, if there was one, was rolled back by the claim of the higher token.",
		"Stop this work: another holder has the lock. Connect again after acquiring it anew.")
}
