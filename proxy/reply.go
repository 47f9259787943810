package proxy

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/fenceproxy/fenceproxy/proxy/lobby"
	"github.com/fenceproxy/fenceproxy/proxy/queue"
	"github.com/fenceproxy/fenceproxy/proxy/wire"
)

// maxReport is the longest error or notice that the proxy changes, in bytes; a
// longer one is the client's own and passes unchanged.
const maxReport = 1 << 20

// Deadlines that interrupt a read at once, and that don't.
var (
	longAgo    = time.Unix(1, 0)
	noDeadline time.Time
)

// replies is the reply pump. It ends when the backend is gone or the client
// takes no more; unless the client is owed an answer, it ends the request pump
// too.
func (s *session) replies(watch *lobby.Shift) {
	s.replying.watch = watch
	err := s.pumpReplies()
	if errors.Is(err, errResting) {
		return
	}
	s.replying.leave()
	defer close(s.replied)
	s.backendEnded = errors.Is(err, io.EOF)
	s.mu.Lock()
	s.over = true
	if s.victim != nil && s.ending == nil && !s.queue.MayCommit() {
		s.ending = &ending{err: s.victim}
	}
	end := s.ending
	s.mu.Unlock()
	if end != nil {
		s.answerInFlight(end)
		return
	}
	s.toClient.Flush()
	if !errors.Is(err, io.EOF) {
		s.logger().Debug("reply pump ended", "error", err)
	}
	s.hangUp()
}

// hangUp ends the request pump, which closes the client's socket after a last
// word if there is one.
func (s *session) hangUp() {
	s.client.SetReadDeadline(longAgo)
}

// pumpReplies returns why the replies ended, never nil.
func (s *session) pumpReplies() error {
	for {
		if err := s.nextReply(); err != nil {
			return err
		}
	}
}

// nextReply takes one message of the backend's, after sending what was gathered
// if it has to wait for it.
func (s *session) nextReply() error {
	if !s.fromBackend.Complete() {
		if err := s.toClient.Flush(); err != nil {
			s.leaveBackend()
			return fmt.Errorf("write to client: %w", err)
		}
	}
	t, n, err := s.header(s.fromBackend, &s.replying)
	if err != nil {
		return s.orRest(err)
	}
	switch t {
	case wire.ErrorResponse:
		return s.errorReply(n)
	case wire.ReadyForQuery:
		return s.readyReply()
	case wire.ParameterStatus:
		if err := s.parameter(); err != nil {
			return err
		}
		return s.fromBackend.Forward(s.toClient)
	case wire.NoticeResponse:
		return s.notice(n)
	}
	return s.reply(t, n)
}

// notice passes a notice on. One about a text that checks were put into has its
// position there.
func (s *session) notice(n int) error {
	s.mu.Lock()
	var shift func(int) int
	if e := s.queue.Current(); e != nil {
		shift = e.Shift
	}
	s.mu.Unlock()
	if shift == nil || n > maxReport {
		return s.fromBackend.Forward(s.toClient)
	}
	body, err := s.fromBackend.Read(n)
	if err != nil {
		return err
	}
	return s.toClient.Write(wire.WithPosition(nil, wire.NoticeResponse, body, shift))
}

// judgeReply asks the queue about a message. The caller holds mu.
func (s *session) judgeReply(t byte) (queue.Outcome, error) {
	if s.lost {
		return queue.Outcome{}, nil
	}
	out, err := s.queue.Reply(t)
	if err == nil {
		return out, nil
	}
	s.srv.Metrics.LostReplies.Inc()
	if s.guarded || s.queue.InDoubt() {
		return out, err
	}
	// Nothing of this session is hidden, so all can go on; it can only never
	// be guarded.
	s.lost, s.owed, s.queue = true, s.queue.ReadyDue(), queue.Queue{}
	return queue.Outcome{}, nil
}

// reply takes a message that is neither an error nor a ReadyForQuery.
func (s *session) reply(t byte, n int) error {
	s.mu.Lock()
	out, err := s.judgeReply(t)
	if err == nil && out.Entry != nil && out.Entry.Confirms > 0 {
		s.confirms(t, out)
	}
	waited := s.queue.ReadyDue() == 0 // or the ReadyForQuery tells
	s.mu.Unlock()
	if waited || t == wire.CopyInResponse {
		s.signal()
	}
	switch {
	case err != nil:
		s.logger().Error("replies can't be told apart", "error", err)
		return s.desynchronized()
	case out.Verdict == queue.Hide:
		err = s.fromBackend.Skip()
	case out.Verdict == queue.Capture:
		err = s.capture()
	default:
		err = s.fromBackend.Forward(s.toClient)
	}
	return err
}

// confirms takes a reply that shows that a statement was prepared or closed.
// The caller holds mu.
func (s *session) confirms(t byte, out queue.Outcome) {
	switch n := out.Entry.Confirms; {
	case out.Purpose == queue.Client && (t == wire.ParseComplete || t == wire.CloseComplete):
		s.names.confirm(n)
	case out.Purpose == queue.Prepare && t == wire.ParseComplete:
		s.confirm = max(s.confirm, n)
	}
}

// desynchronized ends a guarded session in which a hidden reply might reach
// the client or a client's reply be hidden.
func (s *session) desynchronized() error {
	const code = "08P01"
	s.parted = true
	s.countProtocol(code)
	s.toClient.Write(wire.AppendError(nil, wire.Report{
		Severity: "FATAL", Code: code,
		Message: "fenceproxy lost track of the replies of PostgreSQL and ended the session",
	}))
	s.backend.Close()
	return queue.ErrUnexpected
}

// capture keeps the row of a readback for the request pump.
func (s *session) capture() error {
	row, err := s.settingsRow()
	if err != nil && !errors.Is(err, wire.ErrTooLarge) {
		return err
	}
	s.mu.Lock()
	s.captured, s.overlong = row, err != nil
	s.mu.Unlock()
	return nil
}

// settingsRow reads the announced row of a readback. One that is longer than any
// tag is dropped, and ErrTooLarge.
func (s *session) settingsRow() ([]string, error) {
	body, err := s.fromBackend.Read(maxReport)
	switch {
	case errors.Is(err, wire.ErrTooLarge):
		if skipped := s.fromBackend.Skip(); skipped != nil {
			return nil, skipped
		}
		return nil, err
	case err != nil:
		return nil, err
	}
	return wire.ReadRow(body)
}

// readyReply takes a ReadyForQuery: what it says of the transaction is the
// backend's own word, and decides what the request side may rely on.
func (s *session) readyReply() error {
	body, err := s.fromBackend.Prefix()
	if err != nil {
		return fmt.Errorf("read ReadyForQuery: %w", err)
	}
	if len(body) != 1 {
		return fmt.Errorf("read ReadyForQuery: %w", wire.ErrLength)
	}
	status := body[0]
	s.mu.Lock()
	out, err := s.judgeReply(wire.ReadyForQuery)
	if err != nil {
		s.mu.Unlock()
		return s.desynchronized()
	}
	s.status, s.checked, s.ran = status, false, true
	s.owed = max(0, s.owed-1)
	if e := out.Entry; e != nil {
		s.checked, s.ran = e.Checked && status == wire.StatusBlock, e.Ran
		changed := s.mirror.open
		s.mirror.ready(status, out.Failed, ends(e.Ends), e.Tagged)
		if changed && !s.mirror.open {
			s.transactionEndedLocked()
		}
		s.names.decide(e.Confirms)
	}
	if s.guarded && status == wire.StatusIdle && s.queue.Len() > 0 {
		s.measured.began = time.Now()
	}
	s.failed = s.failed || out.Failed
	stray := s.strayLocked()
	s.traceReadyLocked(status)
	hold := out.Verdict == queue.Withhold && status == wire.StatusFailed
	s.withheld = hold
	caught := s.victim != nil && !s.queue.MayCommit()
	if caught {
		// At once, so that the client's next request finds the session over.
		s.over, s.ending = true, &ending{err: s.victim}
	}
	if s.draining && s.idle.waiting {
		s.client.SetReadDeadline(longAgo)
	}
	s.mu.Unlock()
	if len(stray) > 0 {
		s.replying.leave()
		s.giveBack(stray)
	}
	if hold || out.Verdict == queue.Hide {
		err = s.fromBackend.Skip()
	} else {
		err = s.fromBackend.Forward(s.toClient)
	}
	if caught && err == nil {
		err = s.toClient.Flush()
	}
	s.signal()
	if caught && err == nil {
		s.backend.Close()
		return errEvicted
	}
	return err
}
