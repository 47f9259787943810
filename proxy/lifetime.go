package proxy

import (
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/fenceproxy/fenceproxy/proxy/wire"
)

// A lastWord ends a session that has done nothing wrong; the client hears it as
// a FATAL.
type lastWord struct{ code, message, detail string }

func (w *lastWord) Error() string { return w.message }

func (w *lastWord) report() wire.Report {
	return wire.Report{Severity: "FATAL", Code: w.code, Message: w.message, Detail: w.detail}
}

// The last words, which are PostgreSQL's own where it has them (errcodes.txt,
// src/backend/tcop/postgres.c).
var (
	// errDrained: the server shuts down and the session was between
	// transactions, or was cut off.
	errDrained = &lastWord{code: "57P01", message: "terminating connection: fenceproxy is shutting down"}
	// errIdle: the client asked nothing for ClientIdleTimeout.
	errIdle = &lastWord{code: "57P05", message: "terminating connection due to idle-session timeout"}
	// errIdleTransaction: it asked nothing for IdleTransactionTimeout, with a
	// transaction open.
	errIdleTransaction = &lastWord{code: "25P03", message: "terminating connection due to idle-in-transaction timeout"}
	// errLoginTimeout: the client or PostgreSQL took too long to come to an
	// opened session.
	errLoginTimeout = &lastWord{code: "57014", message: "canceling authentication due to timeout"}
	// errShuttingDown: the server takes no more sessions. libpq tries its next
	// host then.
	errShuttingDown = &lastWord{code: cannotConnectNow, message: "the database system is shutting down"}
	// errTooMany: MaxConnections are served already.
	errTooMany = &lastWord{code: "53300", message: "sorry, too many clients already"}
)

// An idleness is what the sweeper needs to know of a session. It is guarded by
// the session's mu. A message costs a count: the clock is the sweeper's.
type idleness struct {
	waiting bool   // the request pump waits for the client's next message
	resting bool   // it has for long, and has been asked to keep nothing for it
	segment bool   // in the middle of a segment
	turn    uint64 // counts the waits

	// The sweeper's own: the wait that it has seen, and since when it has.
	seen  uint64
	since time.Time
	// expired, once the wait has lasted too long, is why the session ends.
	expired *lastWord
}

// login takes the client through the startup within LoginTimeout, and reports
// whether a session follows.
func (s *session) login() bool {
	s.mu.Lock()
	s.setDeadline(time.Now().Add(s.srv.settings().LoginTimeout))
	if s.draining {
		s.client.SetReadDeadline(longAgo)
	}
	s.mu.Unlock()
	ok, err := s.startup()
	if s.user != "" && timedOut(err) {
		last := errLoginTimeout
		switch cut := s.cutFor(); {
		case cut != nil:
			last = cut
		case s.isEnding():
			last = errDrained
		}
		err = s.bid(last, err)
	}
	if err != nil {
		s.mu.Lock()
		if s.cut != nil && s.user == "" {
			err = fmt.Errorf("%w: %w", s.cut, err)
		}
		s.mu.Unlock()
		s.logNotStarted(err)
	}
	if ok {
		s.mu.Lock()
		s.opened, s.began = true, time.Now()
		s.setDeadline(noDeadline)
		s.mu.Unlock()
	}
	return ok
}

// isEnding reports whether a session that hasn't begun is to end.
func (s *session) isEnding() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.draining || s.cut != nil
}

// setDeadline bounds all that is done on either leg up to t.
func (s *session) setDeadline(t time.Time) {
	s.deadline = t
	s.client.SetDeadline(t)
	if s.backend != nil {
		s.backend.SetDeadline(t)
	}
}

func timedOut(err error) bool {
	var network net.Error
	return errors.Is(err, os.ErrDeadlineExceeded) || errors.As(err, &network) && network.Timeout()
}

// bid sends a last word before there is a session, and returns what to log.
func (s *session) bid(last *lastWord, cause error) error {
	s.farewell(last.report())
	if cause != nil {
		return fmt.Errorf("%w: %w", last, cause)
	}
	return last
}

// wait announces that the pump is about to wait for the client. It returns
// the reason why the session ends instead: the backend is gone, the client was
// silent for too long, or the server shuts down and nothing is due, no
// transaction is open and no segment is half sent.
func (s *session) wait() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over && s.ending == nil {
		return errBackend
	}
	if s.cut != nil {
		return s.cutWord
	}
	if s.idle.expired != nil {
		return s.idle.expired
	}
	due := s.owed > 0 || s.queue.Len() > 0 || s.segment.open
	if s.draining && (s.over || !due && s.status == wire.StatusIdle) {
		return errDrained
	}
	s.idle.waiting, s.idle.segment = true, s.segment.open
	if s.idle.resting { // the same wait goes on
		return errResting
	}
	s.idle.turn++
	return nil
}

// waited takes the end of a wait, whether or not a message came of it.
func (s *session) waited(came bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.idle.waiting = false
	if came {
		s.idle.expired, s.idle.resting = nil, false // just in time
	}
	if s.cut == nil && (!s.over || s.ending != nil) { // or the past deadline ends the pump
		s.client.SetReadDeadline(noDeadline)
	}
}

// drain asks the session to end between transactions. A client that has yet to
// log in, or to say what it wants, doesn't any more.
func (s *session) drain() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.draining = true
	if s.waiting != nil {
		s.waiting(errWaiterDrained)
	}
	if s.closing {
		return
	}
	if s.idle.waiting || !s.opened {
		s.client.SetReadDeadline(longAgo)
	}
}

// sweep ends the session if it has been idle for too long, by up to two rounds of the
// sweeper more, and never less. It reports whether it has been idle for long.
func (s *session) sweep(now time.Time) (resting bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := &s.idle
	if !i.waiting || i.expired != nil || !s.over && (s.owed > 0 || s.queue.Len() > 0 || i.segment) {
		i.seen = 0
		return false
	}
	if i.seen != i.turn {
		i.seen, i.since = i.turn, now
		return i.resting
	}
	limit, why := s.srv.settings().ClientIdleTimeout, errIdle
	if !s.over && s.status != wire.StatusIdle {
		limit, why = s.srv.settings().IdleTransactionTimeout, errIdleTransaction
	}
	switch idle := now.Sub(i.since); {
	case limit > 0 && idle >= limit:
		i.expired = why
		s.client.SetReadDeadline(longAgo)
	case s.srv.RestAfter > 0 && idle >= s.srv.RestAfter:
		s.restLocked()
	}
	return i.resting
}

// cutOff ends the session at once, but for a last word to the client. It
// reports whether there was one to end.
func (s *session) cutOff(cause error) bool {
	return s.cutWith(fmt.Errorf("fenceproxy cut the session off: %w", cause), errDrained)
}

// cutWith is cutOff with the word that the client hears.
func (s *session) cutWith(cause error, last *lastWord) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		return false
	}
	s.cut, s.cutWord = cause, last
	s.client.SetDeadline(time.Now().Add(farewellWithin))
	s.client.SetReadDeadline(longAgo)
	if s.backend != nil {
		s.dropBackend()
	}
	return true
}

// cutFor returns what the client of a session that was cut off hears, nil if it
// wasn't.
func (s *session) cutFor() *lastWord {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cutWord
}

// abort ends the session at once.
func (s *session) abort() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.client.Close()
	if s.backend != nil {
		s.dropBackend()
	}
}
