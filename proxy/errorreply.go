package proxy

import (
	"errors"
	"io"
	"strings"

	"github.com/fenceproxy/fenceproxy/fencing"
	"github.com/fenceproxy/fenceproxy/proxy/queue"
	"github.com/fenceproxy/fenceproxy/proxy/wire"
)

// errEvicted ends the reply pump of a session that a higher claim ended, once
// what was in flight has been answered.
var errEvicted = errors.New("evicted")

// errorReply takes an ErrorResponse: FATAL ones end the session, hidden ones
// become the answer to the client's statement, and a position in a rewritten
// text is mapped back.
func (s *session) errorReply(n int) error {
	if s.cutIfKilled() {
		return io.EOF // the client hears that instead
	}
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
			told := report("ERROR", refused)
			s.tellRefusal(told, out.Purpose.String())
			return s.toClient.Write(wire.AppendError(nil, told))
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
	case out.Purpose == queue.Raise && out.Verdict == queue.Refuse && fencing.Code(r.Code).AboutLocks():
		s.tellRefusal(r, out.Purpose.String())
		return s.toClient.Write(wire.WithoutContext(nil, body))
	case out.Verdict == queue.Refuse && isCheckFailure(r.Code):
		refused, told := s.explainMissing(out.Purpose, r, body)
		s.tellRefusal(refused, out.Purpose.String())
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
