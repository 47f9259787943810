package proxy

import (
	"encoding/binary"
	"errors"
	"os"

	"github.com/fenceproxy/fenceproxy/proxy/queue"
	"github.com/fenceproxy/fenceproxy/proxy/wire"
	"github.com/fenceproxy/fenceproxy/sqlrewrite"
)

const (
	// maxText is the longest statement text that the proxy reads as a whole,
	// in bytes. Longer ones stream through untagged sessions and are refused
	// in tagged ones.
	maxText = 16 << 20
	// maxDue bounds the replies that one session may be owed, and with them
	// what the proxy remembers of requests; fewDue is where it takes more.
	maxDue = 512
	fewDue = maxDue / 2
)

// errProtocol ends a session whose client broke the framing. The header was
// passed on, so that the client hears what PostgreSQL says to it.
var errProtocol = errors.New("client broke the protocol")

// requests is the request pump. It returns nil when the client said goodbye,
// io.EOF when it just left, errResting when it is at rest.
func (s *session) requests() error {
	for {
		t, n, err := s.next()
		if errors.Is(err, os.ErrDeadlineExceeded) {
			continue
		}
		if errors.Is(err, wire.ErrLength) {
			return s.broken()
		}
		if err != nil {
			return err
		}
		if limit := wire.ClientLimit(t); n+4 > limit {
			return s.broken()
		}
		switch err = s.request(t, n); {
		case errors.Is(err, errOver), errors.Is(err, errGone):
			if err := s.answerInstead(t, errors.Is(err, errGone)); err != nil {
				return err
			}
		case err != nil:
			return err
		case t == wire.Terminate:
			return nil
		}
	}
}

// next waits for the header of the client's next message, after sending what
// was gathered. Only here may the wait be cut short, between messages, by a
// server that shuts down.
func (s *session) next() (t byte, n int, err error) {
	if s.fromClient.Complete() {
		return s.fromClient.Next()
	}
	if !s.awaits {
		_ = s.flush() // a backend that is gone answers through the next push
		if err := s.wait(); err != nil && (!errors.Is(err, errResting) || s.restLong()) {
			return 0, 0, err
		}
		s.awaits = true
	}
	t, n, err = s.header(s.fromClient, &s.requesting)
	if errors.Is(err, errResting) {
		return 0, 0, err
	}
	s.awaits = false
	s.waited(err == nil)
	return t, n, err
}

// request takes one message.
func (s *session) request(t byte, n int) error {
	if t == wire.Query || t == wire.Execute || t == wire.FunctionCall {
		s.asked++
	}
	if err := s.room(); err != nil {
		return err
	}
	if drop, err := s.afterCopy(t, n); err != nil || drop {
		return s.skip(err)
	}
	if err := s.observe(t); err != nil {
		return err
	}
	if s.tagged {
		return s.guard(t, n)
	}
	if t != wire.Query && t != wire.Parse && t != wire.FunctionCall {
		s.track(t)
	}
	switch t {
	case wire.Query:
		return s.relayQuery(n)
	case wire.Parse:
		return s.parse(n)
	case wire.Bind:
		return s.relay(queue.Bind)
	case wire.Execute:
		return s.relay(queue.Execute)
	case wire.Sync:
		return s.relay(queue.Sync)
	case wire.FunctionCall:
		return s.relayFunction()
	}
	return s.other(t, n)
}

// skip drops the announced message, unless there was an error before.
func (s *session) skip(err error) error {
	if err != nil {
		return err
	}
	return s.fromClient.Skip()
}

// track keeps track of where segments begin and end in an untagged session,
// which may become a tagged one within any of them.
func (s *session) track(t byte) {
	switch t {
	case wire.Parse, wire.Bind, wire.Execute, wire.Describe, wire.Close:
		s.segment.open = true
	case wire.Sync:
		s.synced()
		s.midway = false
		s.endSegment()
	case wire.Query, wire.FunctionCall:
		s.sentMidway()
		s.endSegment()
	}
}

// other relays the messages that need no look in any session.
func (s *session) other(t byte, n int) error {
	switch {
	case t == wire.Describe, t == wire.Close:
		return s.describeOrClose(t)
	case t == wire.CopyData:
		return s.relay(queue.CopyData)
	case t == wire.CopyDone, t == wire.CopyFail:
		return s.relay(queue.CopyEnd)
	case t == wire.Flush && n > 0:
		return s.malformedFlush()
	}
	return s.forward() // Flush, Terminate: no reply
}

// malformedFlush takes a Flush that has a body. PostgreSQL answers it with an
// error and discards what comes up to a Sync; a COPY that waits for data ignores
// it as it does any Flush (CopyGetData in src/backend/commands/copyfromparse.c).
func (s *session) malformedFlush() error {
	if err := s.awaitEarlier(func() bool { return s.queue.Len() == 0 || s.queue.Starving() }); err != nil {
		return err
	}
	s.mu.Lock()
	ignored := s.queue.Starving()
	s.mu.Unlock()
	if ignored {
		return s.fromClient.Skip()
	}
	if s.tagged {
		if err := s.begin(); err != nil {
			return err
		}
	}
	s.segment.open = true
	return s.relay(queue.Malformed)
}

// room waits while the client is owed more replies than a session may hold.
func (s *session) room() error {
	s.mu.Lock()
	full := s.queue.Len() >= maxDue
	if full && s.queue.Starving() {
		s.queue.Fold()
		full = false // what is due waits for the client
	}
	over := s.over || s.victim != nil
	s.mu.Unlock()
	if over {
		return errOver
	}
	if !full {
		return nil
	}
	// PostgreSQL may hold the replies back until it is asked for them.
	return s.awaitEarlier(func() bool { return s.lost || s.queue.Len() <= fewDue || s.queue.Starving() })
}

// relay forwards the announced message after noting the reply it causes.
func (s *session) relay(kind queue.Kind) error {
	return s.relayAs(queue.Entry{Kind: kind})
}

func (s *session) relayAs(e queue.Entry) error {
	if err := s.push(e); err != nil {
		return err
	}
	return s.forward()
}

// forward passes the announced message on.
func (s *session) forward() error { return s.inspect(nil) }

// inspect passes the announced message on with a look at each chunk. An error
// while reading is the client's, one while writing the backend's.
func (s *session) inspect(look func([]byte) error) error {
	if look == nil {
		look = func([]byte) error { return nil }
	}
	err := s.fromClient.Inspect(s.toBackend, look)
	if err != nil && s.toBackend.Flush() != nil {
		return s.gone()
	}
	return err
}

// relayQuery takes a Query of an untagged session. The first one that
// mentions a tag turns the session into a guarded one.
func (s *session) relayQuery(n int) error {
	if n > maxText {
		if s.observes() {
			s.tellWrite("unreadable", actionUnsure)
		}
		if err := s.push(queue.Entry{Kind: queue.Query}); err != nil {
			return err
		}
		return s.stream()
	}
	body, err := s.fromClient.Read(n)
	if err != nil {
		return err
	}
	if sqlrewrite.MentionsFence(body) {
		if err := s.becomeTagged(); err != nil {
			return err
		}
		return s.guardQuery(body)
	}
	if s.observes() {
		s.observeQuery(body)
	}
	s.track(wire.Query)
	return s.sendQuery(body, queue.Entry{Kind: queue.Query})
}

// relayFunction takes a function call of an untagged session.
func (s *session) relayFunction() error {
	body, err := s.fromClient.Prefix()
	if err != nil {
		return err
	}
	if callsSetConfig(body) {
		if err := s.becomeTagged(); err != nil {
			return err
		}
		return s.guardFunction()
	}
	s.track(wire.FunctionCall)
	return s.relay(queue.Function)
}

// callsSetConfig reports whether the body of a function call is one of
// set_config (pg_proc.dat), which could set a tag that nobody sees.
func callsSetConfig(body []byte) bool {
	const setConfig = 2078
	return len(body) >= 4 && binary.BigEndian.Uint32(body) == setConfig
}

// sendQuery sends a Query with the given body.
func (s *session) sendQuery(body []byte, e queue.Entry) error {
	if err := s.push(e); err != nil {
		return err
	}
	return s.writeMessage(wire.Query, body)
}

// parse takes a Parse: it remembers what the statement is and forwards it.
func (s *session) parse(n int) error {
	if n > maxText {
		return s.parseLong()
	}
	body, err := s.fromClient.Read(n)
	if err != nil {
		return err
	}
	name, rest, ok := wire.CString(body)
	text, rest, ok2 := wire.CString(rest)
	if ok && ok2 {
		if !s.tagged && sqlrewrite.MentionsFence(text) {
			if err := s.becomeTagged(); err != nil {
				return err
			}
			if err := s.begin(); err != nil {
				return err
			}
		}
	}
	s.segment.open = true
	e := queue.Entry{Kind: queue.Parse}
	if ok && ok2 {
		st := s.judge(text)
		st.parent = s.tracedBy(text)
		if len(st.settings) > 0 {
			if st.types = wire.ReadTypes(rest); len(st.types) > maxTypes {
				st.types, st.settings = nil, forgotten().settings
				st.flags &^= configures
			}
		}
		err = s.pushChange(e, s.parsed(name, st))
	} else {
		err = s.push(e)
	}
	if err != nil {
		return err
	}
	return s.writeMessage(wire.Parse, body)
}

// parseLong takes a Parse that is too long to be held: what it is stays
// unknown, so its Execute counts as a write.
func (s *session) parseLong() error {
	prefix, err := s.fromClient.Prefix()
	if err != nil {
		return err
	}
	name, _, ok := wire.CString(prefix)
	if !ok {
		name = prefix // longer than the buffer, and than any name can be
	}
	if err := s.pushChange(queue.Entry{Kind: queue.Parse}, s.parsed(name, unread())); err != nil {
		return err
	}
	if s.tagged {
		return s.forward()
	}
	return s.stream()
}

// parsed is the change that a Parse makes.
func (s *session) parsed(name []byte, st statement) change {
	return change{name: cut(name), to: st, segment: s.segment.number}
}

// judge classifies the text of a Parse, which holds at most one statement;
// PostgreSQL refuses more.
func (s *session) judge(text []byte) statement {
	stmts, err := sqlrewrite.Split(s.stmts[:0], text, s.options())
	s.stmts = stmts[:0]
	if err != nil || len(stmts) > 1 {
		return unread()
	}
	if len(stmts) == 0 {
		return statement{known: true, empty: true}
	}
	st := s.describe(text, stmts[0], s.options())
	st.settings = short(st.settings)
	return st
}

// describeOrClose takes a Describe or Close, of a statement or a portal.
func (s *session) describeOrClose(t byte) error {
	body, err := s.fromClient.Prefix()
	if err != nil {
		return err
	}
	e := queue.Entry{Kind: queue.Close}
	if len(body) > 0 {
		name, _, ok := wire.CString(body[1:])
		if !ok {
			name = body[1:] // longer than the buffer, and than any name can be
		}
		switch {
		case t == wire.Describe && body[0] == 'S':
			e.Kind = queue.DescribeStatement
		case t == wire.Describe:
			e.Kind = queue.DescribePortal
		case body[0] == 'S':
			if err := s.pushChange(e, change{name: cut(name), closes: true, segment: s.segment.number}); err != nil {
				return err
			}
			return s.forward()
		default:
			s.portals.close(name, s.segment.number)
		}
	}
	return s.relayAs(e)
}

// broken ends a session whose client broke the framing: PostgreSQL gets the
// header as it came and says what it says to it.
func (s *session) broken() error {
	if err := s.write(s.fromClient.Header()); err == nil && s.flush() == nil {
		closeWrite(s.backend)
		s.requesting.leave()
		<-s.replied
	}
	return errProtocol
}
