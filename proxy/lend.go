package proxy

import (
	"context"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/fenceproxy/fenceproxy/fencing"
	"github.com/fenceproxy/fenceproxy/sqlrewrite"
)

// A grant is what the proxy did for a call, which the function is to find.
type grant struct {
	key  string
	text string // a JSON object; "" is no grant
}

// lend does what the call among the settings of a statement asks for, and puts in
// its place what that makes of the tag. alone says that nothing else may share the
// statement's transaction. Where the call can't be served so it stays unknown what
// becomes of the tag, and the function, which finds no grant, raises the error.
func (s *session) lend(m meaning, alone bool) (meaning, grant, *fencing.Error) {
	call := callAmong(m.settings)
	if call == nil || s.txn.block == blockFailed {
		return m, grant{}, nil
	}
	if len(m.settings) != 1 || !alone {
		m.settings = []sqlrewrite.Setting{{Kind: sqlrewrite.Unknown}}
		return m, grant{}, nil
	}
	m.settings = nil // they are the statement's, which may run again
	key, refused := s.lockable(call)
	if refused != nil {
		return m, grant{}, refused
	}
	m.lends = call.Verb
	var g grant
	switch call.Verb {
	case sqlrewrite.AcquireLock:
		m.settings, g, refused = s.acquire(key, call)
	case sqlrewrite.RenewLock:
		g, refused = s.renew(key)
	default:
		m.harmless = true
		m.settings, g, refused = s.release(key)
	}
	return m, g, refused
}

// callAmong returns the call that is one of the settings; nil if none is.
func callAmong(settings []sqlrewrite.Setting) *sqlrewrite.LockCall {
	for i := range settings {
		if settings[i].Kind == sqlrewrite.Lock {
			return settings[i].Call
		}
	}
	return nil
}

// lendInSegment is lend for an Execute that wasn't refused before.
func (s *session) lendInSegment(m meaning, refused *fencing.Error) (meaning, grant, *fencing.Error) {
	if refused != nil {
		return m, grant{}, refused
	}
	if s.segment.lent {
		return m, grant{}, besideLock()
	}
	m, g, refused := s.lend(m, !s.segment.executed && !s.segment.unknown && !s.midway || s.txn.block == blockOpen)
	s.segment.lent = m.lends != sqlrewrite.NoVerb && m.lends != sqlrewrite.RenewLock
	return m, g, refused
}

// besideLock refuses what would share a transaction with the taking or giving
// back of a lock.
func besideLock() *fencing.Error {
	return fencing.Refuse(fencing.CodeNotFenceable, "a statement in one pipeline with fence.acquire or fence.release").With(
		"If it failed, the lock would be given back, or kept.", "Send fence.acquire and fence.release alone, with a Sync behind each.")
}

// admitLent is admit. If it refuses a lock that was taken is given back.
func (s *session) admitLent(g grant, m meaning) *fencing.Error {
	refused := s.admit(m)
	if refused != nil && m.lends == sqlrewrite.AcquireLock {
		s.takeBack(g.key)
	}
	return refused
}

// lockable looks whether a call can be served at all, and returns its key.
func (s *session) lockable(call *sqlrewrite.LockCall) (string, *fencing.Error) {
	key := call.Key.Text
	_, malformed := fencing.ParseTag(key, "1", "")
	var why *fencing.Error
	switch {
	case s.srv.Lender == nil, !s.srv.settings().Lending.Allow:
		return "", &fencing.Error{
			Code: fencing.CodeNotAllowed, Message: fmt.Sprintf("fence.%v: this proxy takes no locks for its sessions", call.Verb),
			Hint: "Start fenceproxy with --sql-locks allow, or take the lock with a client of etcd and tag the session.",
		}
	case call.Verb != sqlrewrite.RenewLock && s.txn.block != blockNone:
		return "", &fencing.Error{
			Code: fencing.CodeInBlock, Message: fmt.Sprintf("fence.%v cannot run inside a transaction block", call.Verb),
			Detail: "A ROLLBACK would take the tag back, and a lock that was given back would be so before the COMMIT.",
			Hint:   "Acquire the lock before BEGIN, with autocommit on, and release it after COMMIT.",
		}
	case call.Key.Null, key == "", !utf8.ValidString(key):
		return "", badArgument("fence.%v: the key is null, empty or not valid UTF-8", call.Verb)
	case errors.As(malformed, &why):
		return "", badArgument("fence.%v: the key is too long or has a zero byte", call.Verb)
	}
	return key, nil
}

func badArgument(format string, args ...any) *fencing.Error {
	return &fencing.Error{Code: fencing.CodeBadArgument, Message: fmt.Sprintf(format, args...)}
}

// acquire takes a lock, and has the tag say so.
func (s *session) acquire(key string, call *sqlrewrite.LockCall) ([]sqlrewrite.Setting, grant, *fencing.Error) {
	ttl, wait, refused := s.spans(call)
	if refused == nil {
		refused = s.mayHold(key)
	}
	if refused != nil {
		return nil, grant{}, refused
	}
	began := time.Now()
	ctx, done := s.beginWait(wait)
	loan, err := s.srv.Lender.Acquire(ctx, key, ttl, wait)
	broken := context.Cause(ctx)
	done()
	if err != nil {
		return nil, grant{}, notLent(broken, err)
	}
	s.mu.Lock()
	if s.loans == nil {
		s.loans = map[string]fencing.Loan{}
	}
	s.loans[key] = loan
	tokens, err := withLock(s.mirror.now.tokens, key, loan.Token)
	s.mu.Unlock()
	if err != nil {
		s.takeBack(key)
		return nil, grant{}, asRefusal(err)
	}
	s.logger().Info(LogLockAcquired, "key", key, "token", loan.Token, "ttl", loan.TTL, "waited", time.Since(began).Round(time.Millisecond))
	return tokensTo(tokens), newGrant(granted{Do: call.Verb.String(), Key: key, Token: loan.Token, Left: left(loan), Tokens: &tokens}), nil
}

// notLent is what a session hears that got no lock; broken is why the asking was
// broken off, if it was.
func notLent(broken, err error) *fencing.Error {
	switch {
	case errors.Is(broken, errCanceled):
		return errCanceled
	case broken != nil:
		return fencing.Refuse(fencing.CodeUnverified, "the wait for the lock was broken off: %v", broken)
	}
	return asRefusal(err)
}

// spans reads the times of a call.
func (s *session) spans(call *sqlrewrite.LockCall) (ttl, wait time.Duration, refused *fencing.Error) {
	most := s.srv.settings().Lending
	read := func(name string, arg sqlrewrite.LockArgument, missing, least, most time.Duration) time.Duration {
		if !arg.Given || arg.Null {
			return min(missing, most)
		}
		d, err := parseSpan(arg.Text)
		switch {
		case refused != nil:
		case err != nil:
			refused = badArgument("fence.acquire: %s: %v", name, err)
		case d < least:
			refused = badArgument("fence.acquire: %s of %v is below %v", name, d, least)
		case d > most:
			refused = badArgument("fence.acquire: %s of %v is above the limit of %v", name, d, most)
		}
		return d
	}
	ttl = read("a ttl", call.TTL, defaultTTL, time.Second, most.MaxTTL)
	wait = read("a wait", call.Wait, defaultWait, 0, most.MaxWait)
	return ttl, wait, refused
}

// mayHold refuses a lock that the session can't have beside those of its tag.
func (s *session) mayHold(key string) *fencing.Error {
	if s.unread != nil {
		return s.unread
	}
	most := s.srv.settings().Lending.MaxLocks
	s.mu.Lock()
	m := s.mirror
	loan, has := s.loans[key]
	held := len(s.loans)
	s.mu.Unlock()
	_, incomplete, _ := m.tag()
	switch {
	case m.unsure:
		return fencing.Refuse(fencing.CodeUnverified, "fence.acquire was sent before the answer to what may have changed the tag").With("", "Wait for it, and retry.")
	case incomplete:
		return incompleteTag(m.now)
	case m.now.key == key:
		return &fencing.Error{
			Code: fencing.CodeHeldAlready, Message: "fence.key names the lock " + key + " already",
			Hint: "RESET fence.key and fence.token first.",
		}
	case has && time.Now().Before(loan.Until):
		return &fencing.Error{
			Code: fencing.CodeHeldAlready, Message: fmt.Sprintf("this session holds the lock %s already, with token %d", key, loan.Token),
			Hint: "Renew it with fence.renew, or release it first.",
		}
	case has:
		s.takeBack(key) // lost, as far as is known, and in line there is place for one
	case held >= most:
		return &fencing.Error{
			Code: fencing.CodeTooManyLocks, Message: fmt.Sprintf("this session holds %d locks, which is the limit", held),
			Hint: "Release one first.",
		}
	}
	return nil
}

// renew moves the end of a lock's lease. It is no matter of the transaction that
// may be open.
func (s *session) renew(key string) (grant, *fencing.Error) {
	s.mu.Lock()
	loan, has := s.loans[key]
	tag, _, _ := s.mirror.tag()
	s.mu.Unlock()
	if !has {
		if token := tag.Token(key); token != 0 {
			return grant{}, fencing.Refuse(fencing.CodeStale, "%s token %d: the lock is lost, or was not taken by fence.acquire", key, token).
				With("", "Stop: another holder may have this lock. Acquire it again and use the new token.")
		}
		return grant{}, &fencing.Error{
			Code: fencing.CodeNotHeld, Message: "this session holds no lock " + key,
			Hint: "Take it with fence.acquire.",
		}
	}
	ctx, done := s.beginClaim()
	defer done()
	next, refused := s.prolong(ctx, loan)
	if refused != nil {
		return grant{}, refused
	}
	return newGrant(granted{Do: sqlrewrite.RenewLock.String(), Key: key, Token: next.Token, Left: left(next)}), nil
}

// prolong renews a lock of the session's; one that is lost is its no more.
func (s *session) prolong(ctx context.Context, loan fencing.Loan) (fencing.Loan, *fencing.Error) {
	next, err := s.srv.Lender.Renew(ctx, loan)
	if err == nil {
		s.mu.Lock()
		s.loans[loan.Key] = next
		s.mu.Unlock()
		return next, nil
	}
	refused := notLent(context.Cause(ctx), err)
	if refused.Code == fencing.CodeStale {
		s.mu.Lock()
		delete(s.loans, loan.Key)
		s.mu.Unlock()
		s.tellLost(loan)
	}
	return loan, refused
}

// holds asks etcd whether a lock is the session's up to now; while etcd is away the
// clock tells. The error is that of a cancel request.
func (s *session) holds(key string) (bool, *fencing.Error) {
	s.mu.Lock()
	loan, has := s.loans[key]
	s.mu.Unlock()
	if !has {
		return false, nil
	}
	ctx, done := s.beginClaim()
	defer done()
	ctx, cancel := context.WithTimeout(ctx, giveBackWithin)
	defer cancel()
	switch _, refused := s.prolong(ctx, loan); {
	case refused == nil:
		return true, nil
	case refused.Code == fencing.CodeStale:
		return false, nil
	case refused.Code == fencing.CodeUnverified:
		return time.Now().Before(loan.Until), nil
	default:
		return false, refused
	}
}

// release takes a lock out of the tag; it is given back when PostgreSQL has
// carried that out.
func (s *session) release(key string) ([]sqlrewrite.Setting, grant, *fencing.Error) {
	s.mu.Lock()
	tokens, err := withLock(s.mirror.now.tokens, key, 0)
	changed := tokens != s.mirror.now.tokens
	unsure := s.mirror.unsure
	s.mu.Unlock()
	switch {
	case err != nil:
		return nil, grant{}, asRefusal(err)
	case unsure:
		return nil, grant{}, fencing.Refuse(fencing.CodeUnverified, "fence.release was sent before the answer to what may have changed the tag").With("", "Wait for it, and retry.")
	}
	held, refused := s.holds(key)
	if refused != nil {
		return nil, grant{}, refused
	}
	g := granted{Do: sqlrewrite.ReleaseLock.String(), Key: key, Held: held}
	if !changed {
		return nil, newGrant(g), nil
	}
	g.Tokens = &tokens
	return tokensTo(tokens), newGrant(g), nil
}

func tokensTo(value string) []sqlrewrite.Setting {
	return []sqlrewrite.Setting{{Kind: sqlrewrite.Set, Name: fencing.SettingTokens, Value: value}}
}

func left(loan fencing.Loan) int64 { return max(0, time.Until(loan.Until).Milliseconds()) }
