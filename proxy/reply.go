package proxy

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

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
func (s *session) replies() {
	defer close(s.replied)
	err := s.pumpReplies()
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
			s.backend.Close()
			return fmt.Errorf("write to client: %w", err)
		}
	}
	t, n, err := s.fromBackend.Next()
	if err != nil {
		return err
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

// errEvicted ends the reply pump of a session that a higher claim ended, once
// what was in flight has been answered.
var errEvicted = errors.New("evicted")

// errorReply takes an ErrorResponse: FATAL ones end the session, hidden ones
// become the answer to the client's statement, and a position in a rewritten
// text is mapped back.
func (s *session) errorReply(n int) error {
	head, err := s.fromBackend.Prefix()
	if err != nil {
		return err
	}
	if len(head) < n {
		return s.longError(n, head)
	}
	body, err := s.fromBackend.Read(n)
	if err != nil {
		return err
	}
	r, err := wire.ReadReport(body)
	if err != nil {
		return err
	}
	if isFatal(r.Severity) {
		return s.fatal(r, body)
	}
	out, shift, missed, err := s.judgeError(r)
	if err != nil {
		return s.desynchronized()
	}
	if out.Verdict == queue.Forward && out.Entry != nil {
		if refused := s.rightly(blockedBy(alone(out.Entry.Alone), r)); refused != nil {
			s.tellRefusal(string(refused.Code), refused.Message, out.Purpose.String())
			return s.toClient.Write(wire.AppendError(nil, report("ERROR", refused)))
		}
		body = asAtEnd(out.Entry, r, body)
	}
	switch {
	case missed != nil:
		return s.toClient.Write(wire.AppendError(nil, *missed))
	case out.Purpose == queue.Confirm && r.Code == noTransaction:
		return s.toClient.Write(wire.AppendError(nil, report("ERROR", notBegin())))
	case out.Purpose == queue.Raise && out.Verdict == queue.Refuse && r.Code == string(errCanceled.Code):
		return s.toClient.Write(wire.WithoutContext(nil, body))
	case out.Verdict == queue.Refuse && isCheckFailure(r.Code):
		code, told := s.explainMissing(out.Purpose, r, body)
		s.tellRefusal(code, r.Message, out.Purpose.String())
		s.countRejected(out.Purpose, r.Code)
		return s.toClient.Write(wire.WithoutContext(nil, told))
	case out.Verdict == queue.Hide:
		return nil
	case out.Verdict == queue.Refuse || shift != nil:
		return s.toClient.Write(wire.WithPosition(nil, wire.ErrorResponse, body, shownAt(shift)))
	}
	return s.toClient.WriteMessage(wire.ErrorResponse, body)
}

// inFailedBlock is what PostgreSQL says to what comes after an error in a block
// (errcodes.txt).
const inFailedBlock = "25P02"

// missedLocked keeps the error of a readback, which the client asked nothing of,
// and returns it when the client hears that its block has failed by it. The
// caller holds mu.
func (s *session) missedLocked(out queue.Outcome, r wire.Report) *wire.Report {
	if out.Purpose == queue.Readback {
		s.missed = &r
		return nil
	}
	missed := s.missed
	s.missed = nil
	if out.Verdict == queue.Hide || r.Code != inFailedBlock {
		return nil
	}
	return missed
}

// longError takes an error that doesn't fit the buffer. It streams, unless its
// position must be changed.
func (s *session) longError(n int, head []byte) error {
	r := wire.ReportHead(head)
	if isFatal(r.Severity) {
		s.parted, s.lastCode = true, r.Code
		if err := s.fromBackend.Forward(s.toClient); err != nil {
			return err
		}
		return io.EOF
	}
	out, shift, _, err := s.judgeError(r)
	switch {
	case err != nil:
		return s.desynchronized()
	case out.Verdict == queue.Hide:
		return s.fromBackend.Skip()
	case out.Verdict == queue.Forward && shift == nil, n > maxReport:
		return s.fromBackend.Forward(s.toClient)
	}
	body, err := s.fromBackend.Read(n)
	if err != nil {
		return err
	}
	return s.toClient.Write(wire.WithPosition(nil, wire.ErrorResponse, body, shownAt(shift)))
}

// judgeError asks the queue about an error that doesn't end the session, and
// returns how its position is mapped to the client's text, nil where it stays,
// and what the client is told instead, nil if it is told this.
func (s *session) judgeError(r wire.Report) (out queue.Outcome, shift func(int) int, missed *wire.Report, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if out, err = s.judgeReply(wire.ErrorResponse); err != nil {
		return out, nil, nil, err
	}
	if out.Entry != nil {
		shift = out.Entry.Shift
	}
	s.countErrorLocked(r.Code)
	if out.Purpose == queue.LateCommit && isParseError(r.Code) {
		s.queue.BlameClient() // nothing of the text ran, the COMMIT included
	}
	if out.Purpose != queue.Client && r.Code == "26000" {
		s.forgotten = true
	}
	s.signal()
	return out, shift, s.missedLocked(out, r), nil
}

// shownAt is where the client is told that an error is. Without a text of its
// own to point into it is told nothing: the error is a hidden statement's, yet
// not the check's doing: a cancel, a time-out, a deferred constraint.
func shownAt(shift func(int) int) func(int) int {
	if shift != nil {
		return shift
	}
	return func(int) int { return 0 }
}

func isFatal(severity string) bool { return severity == "FATAL" || severity == "PANIC" }

// isCheckFailure reports whether an error of a hidden statement is a refusal,
// or says that the check isn't there.
func isCheckFailure(code string) bool {
	return strings.HasPrefix(code, "LF") || code == notInstalledCode || code == undefinedFunction
}

// isParseError reports whether an error may be about a text as a whole, before
// any of it has run, which a check can't cause: a syntax error, bad characters,
// too deep a nesting.
func isParseError(code string) bool {
	switch code[:min(2, len(code))] {
	case "22", "42", "54":
		return !isCheckFailure(code)
	}
	return false
}
