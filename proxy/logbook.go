package proxy

import (
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"time"

	"github.com/fenceproxy/fenceproxy/fencing"
	"github.com/fenceproxy/fenceproxy/proxy/live"
	"github.com/fenceproxy/fenceproxy/proxy/wire"
)

// Whatever happens to a session is told by one function here, which counts it,
// logs it and adds it to the journal.

// What the lines of a session's log begin with. Each has the session's number,
// and none has a text of SQL, a parameter or a password.
const (
	LogSessionStarted    = "session started"
	LogSessionEnded      = "session ended"
	LogSessionNotStarted = "session not started"
	LogSessionEvicted    = "session evicted"
	LogStatementRefused  = "statement refused"
	LogSessionKilled     = "session killed"
	LogUntaggedWrite     = "untagged write"
)

// logger is made for each use: sessions that say nothing keep none.
func (s *session) logger() *slog.Logger { return s.srv.Logger.With("session", s.id) }

// named is logger with the names that the session goes by.
func (s *session) named() *slog.Logger {
	s.mu.Lock()
	application := s.application
	s.mu.Unlock()
	return s.logger().With("user", s.user, "database", s.database, "application_name", application)
}

// event is one of the session's, with the names that it goes by.
func (s *session) event(kind live.Kind) live.Event {
	s.mu.Lock()
	application := s.application
	s.mu.Unlock()
	return live.Event{
		Kind: kind, Session: s.id, PID: s.pid(), User: s.user, Database: s.database, Application: application,
		Remote: s.socket.RemoteAddr().String(),
	}
}

// pid is the number of the backend's process, which PostgreSQL's own log and
// pg_stat_activity name the session by; 0 if it has none.
func (s *session) pid() uint32 {
	if len(s.cancelKey) < 4 || s.console {
		return 0
	}
	return binary.BigEndian.Uint32([]byte(s.cancelKey))
}

// tellStart says who has come.
func (s *session) tellStart() {
	s.srv.Metrics.Opened.Inc()
	s.srv.Metrics.Sessions.Inc()
	s.named().Info(LogSessionStarted, "remote", s.client.RemoteAddr().String(), "tls", s.encrypted(), "host", s.host.Name, "pid", s.pid())
	s.srv.Journal.Add(s.event(live.SessionStarted))
}

// tellEnd says what became of a session. Both pumps have ended.
func (s *session) tellEnd(err error) {
	s.measuredEnd()
	reason, code := s.endedBy(err)
	s.traceEnd(code)
	took := time.Since(s.began)
	s.named().Info(LogSessionEnded, "remote", s.client.RemoteAddr().String(), "reason", reason, "code", code,
		"duration", took.Round(time.Millisecond), "statements", s.asked, "refused", s.refusals,
		"bytes_in", s.fromClient.Total(), "bytes_out", s.toClient.Total())
	e := s.event(live.SessionEnded)
	e.What, e.Code, e.Took = reason, code, took
	s.srv.Journal.Add(e)
	s.srv.Metrics.Sessions.Dec()
}

// logNotStarted says why no session came of a client.
func (s *session) logNotStarted(err error) {
	logger := s.logger()
	if s.user != "" {
		logger = logger.With("user", s.user, "database", s.database)
	}
	logger.Info(LogSessionNotStarted, "remote", s.client.RemoteAddr().String(), "error", err)
}

// endedBy says why a session whose request pump ended with err is over, and the
// SQLSTATE of it, "" where there is none.
func (s *session) endedBy(err error) (reason, code string) {
	s.mu.Lock()
	end, cut, last := s.ending, s.cut, s.cutWord
	s.mu.Unlock()
	var said *lastWord
	var refused *fencing.Error
	switch {
	case end != nil:
		return "evicted", string(end.err.Code)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "client went away", ""
	case err == nil:
		return "client left", ""
	case cut != nil:
		return cut.Error(), last.code
	case errors.As(err, &said):
		return said.message, said.code
	case errors.As(err, &refused):
		return refused.Message, string(refused.Code)
	}
	return err.Error(), s.lastCode
}

// tellRefusal tells of a statement that was refused. Of the tag there is what the
// claims and evictions of the log can be found by.
func (s *session) tellRefusal(r wire.Report, where string) {
	s.refusals++
	s.traceRefusal(r.Code)
	s.srv.Metrics.Refusals.WithLabelValues(r.Code).Inc()
	logger, tag := s.named(), s.shownTag()
	if fencing.Code(r.Code).AboutLocks() {
		tag = nil // it is about the lock that was asked for, which the message may name
	}
	if len(tag) == 1 {
		logger = logger.With("key", tag[0].Key, "token", tag[0].Token)
	}
	logger.Info(LogStatementRefused, "code", r.Code, "message", r.Message, "where", where)
	s.srv.Journal.Add(s.refusalEvent(r, tag, where))
}

// tellRefusedStart tells of a tag that was refused at startup, which the client
// hears as a warning: no statement was refused yet, and the log has the claim.
func (s *session) tellRefusedStart(r wire.Report) {
	s.srv.Journal.Add(s.refusalEvent(r, s.shownTag(), "startup"))
}

func (s *session) refusalEvent(r wire.Report, tag fencing.Tag, where string) live.Event {
	e := s.event(live.StatementRefused)
	if len(tag) == 1 {
		e.Key, e.Token = tag[0].Key, tag[0].Token
	}
	if key, had, by, ok := fencing.ReadSuperseded(r.Message); ok {
		e.Key, e.Token, e.Higher = key, had, by
	}
	e.Code, e.Message, e.Detail, e.Hint, e.What = r.Code, r.Message, r.Detail, r.Hint, where
	return e
}

// tellEviction tells that a higher claim ends the session. message is why, where
// key, had and by aren't known.
func (s *session) tellEviction(victim, message, key string, had, by fencing.Token) {
	s.srv.Metrics.Evictions.WithLabelValues(victim).Inc()
	logger := s.named().With("victim", victim)
	if message == "" {
		logger.Info(LogSessionEvicted, "key", key, "token", had, "by", by)
	} else {
		logger.Info(LogSessionEvicted, "message", message)
		if k, h, b, ok := fencing.ReadSuperseded(message); ok {
			key, had, by = k, h, b
		}
	}
	e := s.event(live.SessionEvicted)
	e.What, e.Message, e.Key, e.Token, e.Higher = victim, message, key, had, by
	s.srv.Journal.Add(e)
}

// shownTag is the tag that the session has, or is about to have.
func (s *session) shownTag() fencing.Tag {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.coming) > 0 {
		return s.coming
	}
	tag, _, _ := s.mirror.tag()
	return tag
}
