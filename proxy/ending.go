package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/fenceproxy/fenceproxy/fencing"
	"github.com/fenceproxy/fenceproxy/proxy/queue"
	"github.com/fenceproxy/fenceproxy/proxy/wire"
)

// An ending is how a session answers for a backend that a higher claim has
// taken from it: the request in flight or the next one gets the error and a
// ReadyForQuery, since drivers lose an error that comes with a close, and the
// request after that finds the connection closed.
type ending struct {
	err      *fencing.Error
	told     bool // the error has been sent
	skipping bool // everything until a Sync is dropped
}

// evict ends the session because of a higher claim. What may be committing is
// left to answer for itself, so that the client hears the truth about it; if
// it blocks the claim, the claim ends its backend.
//
// A session that was tagged with key only for a transaction that is over stays:
// the next user of a pooled connection has nothing to do with it.
func (s *session) evict(key string, had, by fencing.Token) bool {
	s.mu.Lock()
	if s.over || s.victim != nil || s.backend == nil || s.coming.Token(key) == 0 && s.mirror.lost(key) {
		s.mu.Unlock()
		return false
	}
	s.victim = evictedBy(key, had, by)
	state := victimIdle
	if s.spared = s.queue.MayCommit(); s.spared {
		state = victimActive
	} else {
		s.dropBackend()
	}
	s.mu.Unlock()
	s.tellEviction(state, "", key, had, by)
	return true
}

// fatal takes a FATAL error: the backend is gone. A tagged session that an
// administrator's signal ended may have been evicted by a claim through
// another proxy.
func (s *session) fatal(r wire.Report, body []byte) error {
	if why := s.evictedFrom(r); why != nil {
		s.mu.Lock()
		s.ending = &ending{err: why}
		s.mu.Unlock()
		return errEvicted
	}
	s.parted, s.lastCode = true, r.Code
	s.countProtocol(r.Code)
	if err := s.toClient.WriteMessage(wire.ErrorResponse, body); err != nil {
		return err
	}
	return io.EOF
}

// evictedWait is how long to wait for the mark of a claim that is under way:
// the one that ended the backend goes on as soon as the backend's locks are
// gone.
const evictedWait = time.Second

// evictedFrom says whether a FATAL was a claim's doing.
func (s *session) evictedFrom(r wire.Report) *fencing.Error {
	s.mu.Lock()
	victim, guarded, pairs := s.victim, s.guarded, s.shownLocked()
	s.mu.Unlock()
	if victim != nil || !guarded || r.Code != "57P01" {
		return victim
	}
	if len(pairs) == 0 {
		return nil
	}
	s.replying.leave()
	ctx, cancel := context.WithTimeout(s.srv.ctx, evictedWait)
	defer cancel()
	err := s.claims().Superseded(ctx, s.database, pairs)
	var stale *fencing.Error
	switch {
	case !errors.As(err, &stale):
		return nil
	case stale.Code == fencing.CodeLineage:
		return stale
	case stale.Code != fencing.CodeStale:
		return nil
	}
	s.tellEviction(victimTerminated, stale.Message, "", 0, 0)
	return fencing.Refuse(fencing.CodeEvicted, "the session was ended by the claim of a higher token (%s)", stale.Message).
		With(stale.Detail, "Stop this work: another holder has the lock. Connect again after acquiring it anew.")
}

// shownLocked is what a claim may have ended the session for: its tag, the one that is
// about to be, and those that the open transaction has had before, whose marks it
// may have locked too.
func (s *session) shownLocked() []fencing.Pair {
	tag, _, _ := s.mirror.tag()
	if !s.mirror.open && !s.mirror.unsure && s.status == wire.StatusIdle && s.queue.Len() == 0 {
		return union(tag, s.coming)
	}
	return union(union(tag, s.coming), s.former)
}

// answerInFlight answers the requests that were in flight when the backend
// went. The reply pump calls it last.
func (s *session) answerInFlight(e *ending) {
	s.mu.Lock()
	ready, open := s.queue.Owed()
	s.mu.Unlock()
	for range ready {
		s.tell(e, true)
	}
	if open {
		s.tell(e, false)
	}
	s.toClient.Flush()
}

// tell sends the error, with a ReadyForQuery or leaving the rest up to the
// next Sync to be dropped.
func (s *session) tell(e *ending, ready bool) {
	e.told = true
	told := report("ERROR", e.err)
	s.tellRefusal(told, "session")
	s.toClient.Write(wire.AppendError(nil, told))
	if ready {
		s.toClient.Write(wire.AppendReady(nil, wire.StatusIdle))
	}
	e.skipping = !ready
}

// answerInstead takes a message for a backend that is gone; counted says that
// it was in flight then. It returns why the session ends, or nil while the
// client may still ask.
func (s *session) answerInstead(t byte, counted bool) error {
	if !counted {
		if err := s.awaitWord(); err != nil {
			return err
		}
		if passed, err := s.lastWords(t); passed || err != nil {
			return err
		}
	}
	_ = s.toBackend.Flush() // what is to be answered yet may not have left
	s.requesting.leave()
	<-s.replied
	s.mu.Lock()
	e := s.ending
	s.mu.Unlock()
	if e == nil {
		return errBackend
	}
	if s.fromClient.Announced() {
		if err := s.fromClient.Skip(); err != nil {
			return err
		}
	}
	switch {
	case t == wire.Terminate:
		return errEvicted
	case counted, t == wire.Flush, t == wire.CopyData, t == wire.CopyDone, t == wire.CopyFail:
		return nil
	case e.skipping:
		if t != wire.Sync {
			return nil
		}
		e.skipping = false
		s.toClient.Write(wire.AppendReady(nil, wire.StatusIdle))
	case e.told:
		s.farewell(report("FATAL", e.err))
		return errEvicted
	default:
		s.tell(e, t == wire.Query || t == wire.FunctionCall || t == wire.Sync)
	}
	return s.toClient.Flush()
}

// awaitWord waits, while a backend is left to answer what it was sent, until it
// has, or waits itself: for the data of a COPY.
func (s *session) awaitWord() error {
	err := s.await(func() bool {
		return s.over || !s.spared || s.queue.Copying() || s.queue.ReadyDue() == 0
	})
	if errors.Is(err, errOver) || errors.Is(err, errGone) {
		return nil
	}
	return err
}

// lastWords takes a message of a session that is being ended while its backend
// may still be committing, and passes it on where the backend needs it to answer
// at all: the rest of a COPY, and the Sync after a COMMIT.
func (s *session) lastWords(t byte) (passed bool, err error) {
	s.mu.Lock()
	copying, open := s.queue.Copying(), s.queue.ReadyDue() == 0
	switch {
	case s.over || !s.spared || !copying && !open:
		s.mu.Unlock()
		return false, nil
	case s.pass(t, copying):
		passed = true
	case copying:
		s.mu.Unlock()
		return false, errCopying
	default:
		// The client goes on with its segment. A Sync of the proxy's own has
		// the backend answer what it was sent.
		s.queue.Push(queue.Entry{Kind: queue.Sync, Purpose: queue.Readback})
	}
	s.mu.Unlock()
	if passed {
		err = s.forward()
	} else {
		err = s.write(wire.AppendSync(nil))
	}
	if err == nil {
		err = s.flush()
	}
	if errors.Is(err, errGone) {
		return false, nil
	}
	return passed, err
}

// pass notes the reply to a message that may be passed on to a backend that
// is to answer what it was sent and nothing more. The caller holds mu.
func (s *session) pass(t byte, copying bool) bool {
	if !s.fromClient.Announced() {
		return false
	}
	switch t {
	case wire.Sync:
		s.queue.Push(queue.Entry{Kind: queue.Sync})
		return true
	case wire.Flush:
		_, n, _ := s.fromClient.Next() // again
		return copying || n == 0
	case wire.CopyData, wire.CopyDone, wire.CopyFail:
		kind := queue.CopyData
		if t != wire.CopyData {
			kind = queue.CopyEnd
		}
		if copying {
			s.queue.Push(queue.Entry{Kind: kind})
		}
		return copying
	}
	return false
}

// report makes a refusal a message.
func report(severity string, e *fencing.Error) wire.Report {
	return wire.Report{Severity: severity, Code: string(e.Code), Message: e.Message, Detail: e.Detail, Hint: e.Hint}
}

// What PostgreSQL says of a check that isn't there (errcodes.txt).
const (
	notInstalledCode  = string(fencing.CodeNotInstalled)
	undefinedFunction = "42883"
)

// explainMissing turns the error of a hidden check that isn't there into one
// that says what to do. It returns what the client is told, and the body of it.
func (s *session) explainMissing(purpose queue.Purpose, r wire.Report, body []byte) (told wire.Report, with []byte) {
	if purpose == queue.Raise || r.Code != notInstalledCode && r.Code != undefinedFunction {
		return r, body
	}
	told = report("ERROR", notInstalled(s.database))
	return told, wire.AppendError(nil, told)[wire.HeaderLen:]
}

func notInstalled(database string) *fencing.Error {
	return fencing.Refuse(fencing.CodeNotInstalled, `schema "fence" is not installed in database %q`, database).With(
		"A tagged session can only write where the check is installed.",
		fmt.Sprintf("Run: fenceproxy init --upstream 'postgres://…/%s'", database))
}
