package proxy

import (
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"time"

	"github.com/fenceproxy/fenceproxy/fencing"
)

// What the lines of a session's log begin with. Each has the session's number,
// and none has a text of SQL, a parameter or a password.
const (
	LogSessionStarted    = "session started"
	LogSessionEnded      = "session ended"
	LogSessionNotStarted = "session not started"
	LogSessionEvicted    = "session evicted"
	LogStatementRefused  = "statement refused"
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

// logStart says who has come. The number of the backend's process is what
// PostgreSQL's own log and pg_stat_activity name the session by.
func (s *session) logStart() {
	var pid uint32
	if len(s.cancelKey) >= 4 {
		pid = binary.BigEndian.Uint32([]byte(s.cancelKey))
	}
	s.named().Info(LogSessionStarted, "remote", s.client.RemoteAddr().String(), "tls", s.encrypted(), "host", s.host.Name, "pid", pid)
}

// logEnd says what became of a session. Both pumps have ended.
func (s *session) logEnd(err error) {
	reason, code := s.endedBy(err)
	s.named().Info(LogSessionEnded, "remote", s.client.RemoteAddr().String(), "reason", reason, "code", code,
		"duration", time.Since(s.began).Round(time.Millisecond), "statements", s.asked, "refused", s.refusals,
		"bytes_in", s.fromClient.Total(), "bytes_out", s.toClient.Total())
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
	end, cut := s.ending, s.cut
	s.mu.Unlock()
	var last *lastWord
	var refused *fencing.Error
	switch {
	case end != nil:
		return "evicted", string(end.err.Code)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "client went away", ""
	case err == nil:
		return "client left", ""
	case cut != nil:
		return cut.Error(), errDrained.code
	case errors.As(err, &last):
		return last.message, last.code
	case errors.As(err, &refused):
		return refused.Message, string(refused.Code)
	}
	return err.Error(), s.lastCode
}

// tellRefusal counts and logs a statement that was refused. Of the tag there is
// what the claims and evictions of the log can be found by.
func (s *session) tellRefusal(code, message, where string) {
	s.refusals++
	s.srv.Metrics.Refusals.WithLabelValues(code).Inc()
	logger := s.named()
	if tag := s.shownTag(); len(tag) == 1 {
		logger = logger.With("key", tag[0].Key, "token", tag[0].Token)
	}
	logger.Info(LogStatementRefused, "code", code, "message", message, "where", where)
}

// tellEviction counts and logs that a higher claim ends the session.
func (s *session) tellEviction(victim string, by ...any) {
	s.srv.Metrics.Evictions.WithLabelValues(victim).Inc()
	s.named().Info(LogSessionEvicted, append([]any{"victim", victim}, by...)...)
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
