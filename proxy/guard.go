package proxy

import (
	"errors"

	"github.com/fenceproxy/fenceproxy/fencing"
	"github.com/fenceproxy/fenceproxy/proxy/queue"
	"github.com/fenceproxy/fenceproxy/proxy/wire"
)

// guard takes one message of a tagged session.
func (s *session) guard(t byte, n int) error {
	switch t {
	case wire.Query:
		if n > maxText {
			return s.refuseMessage(t, tooLong(n))
		}
		body, err := s.fromClient.Read(n)
		if err != nil {
			return err
		}
		if err := s.discloseMidway(); err != nil {
			return err
		}
		return s.guardQuery(body)
	case wire.FunctionCall:
		if err := s.discloseMidway(); err != nil {
			return err
		}
		return s.guardFunction()
	case wire.Sync:
		return s.guardSync()
	case wire.Flush, wire.Terminate, wire.CopyData, wire.CopyDone, wire.CopyFail:
		return s.other(t, n)
	}
	if err := s.begin(); err != nil {
		return err
	}
	switch t {
	case wire.Parse:
		return s.parse(n)
	case wire.Bind:
		return s.guardBind()
	case wire.Execute:
		return s.guardExecute()
	}
	return s.other(t, n)
}

// begin opens a segment of the extended protocol with its first message.
func (s *session) begin() error {
	if s.segment.open {
		return nil
	}
	if err := s.settle(); err != nil {
		return err
	}
	s.segment.open = true
	return nil
}

// endSegment takes the end of a segment: a Sync, a Query or a function call.
func (s *session) endSegment() {
	s.segment = segment{number: s.segment.number + 1}
}

// beforeWhole brings the request side up to date before a message that is
// answered by a ReadyForQuery of its own: between segments, or in the middle of
// one, where skipping tells that the backend drops what comes up to a Sync.
func (s *session) beforeWhole() (skipping bool, err error) {
	if err := s.awaitIdle(); err != nil {
		return false, err
	}
	if !s.segment.open {
		return false, s.settle()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.learnLocked()
	return s.queue.Skipping(), nil
}

// learnLocked takes what the ReadyForQuery before an open segment said, which
// has come. The caller holds mu.
func (s *session) learnLocked() {
	if s.failed || s.status == wire.StatusIdle {
		s.portals.endBefore(s.segment.number)
	}
	if s.implicitLocked() {
		s.segment.unknown = true
	}
	if s.txn.block == blockUnknown && !s.segment.unknown {
		s.txn.learn(blockOf(s.status), s.checked, s.ran)
	}
}

// implicitLocked reports whether the block that the last ReadyForQuery told of
// may be one that nobody began: from PostgreSQL 18 on the statements of a
// segment make one, which a Query in the middle of it leaves open and the Sync
// commits. The caller holds mu.
func (s *session) implicitLocked() bool { return s.midway && s.status == wire.StatusBlock }

// sentMidway takes a Query or a call that is about to be sent.
func (s *session) sentMidway() {
	s.midway = (s.midway || s.segment.open) && s.txn.block != blockOpen
}

// refuseMessage answers a message with a refusal that PostgreSQL raises. What
// has not been read of the message is dropped.
func (s *session) refuseMessage(t byte, e *fencing.Error) error {
	if s.fromClient.Announced() {
		if err := s.fromClient.Skip(); err != nil {
			return err
		}
	}
	s.traceChecks(0)
	if t == wire.Query {
		s.endSegment()
		return s.sendQuery(append([]byte(raiseSQL(e, "")), 0), queue.Entry{
			Kind: queue.Query, Plan: []queue.Purpose{queue.Raise},
		})
	}
	var b batch
	b.raise(e)
	if t == wire.FunctionCall {
		s.endSegment()
		b.add(queue.Sync, queue.Client, wire.AppendSync(b.bytes))
	}
	return s.send(&b)
}

// finishCommit waits for a COMMIT that a late check stands before. Where the
// check failed the client, as after any failed COMMIT, is to find its
// transaction ended.
func (s *session) finishCommit() error {
	s.awaitCommit = false
	// A COPY behind the COMMIT waits for data that the client has yet to send;
	// that it waits shows that the COMMIT went well.
	if err := s.await(func() bool { return s.queue.ReadyDue() == 0 || s.queue.Starving() }); err != nil {
		return counted(err)
	}
	s.mu.Lock()
	withheld := s.withheld
	s.withheld = false
	s.mu.Unlock()
	if !withheld {
		return nil
	}
	var b batch
	b.once(rollbackName, rollbackSQL, queue.Rollback)
	b.sync(queue.Entry{Purpose: queue.Rollback, Ends: uint8(endRollback)})
	if err := s.send(&b); err != nil {
		return counted(err)
	}
	return counted(s.awaitReady())
}

// counted says of an error that the message at hand was announced before.
func counted(err error) error {
	if errors.Is(err, errOver) {
		return errGone
	}
	return err
}

// readback asks the backend what the settings are, between segments, and
// claims the tag that they make.
func (s *session) readback() error {
	s.mu.Lock()
	s.missed = nil
	s.mu.Unlock()
	var b batch
	b.once(readbackName, readbackSQL, queue.Readback)
	b.sync(queue.Entry{Purpose: queue.Readback, Checked: s.txn.checked, Ran: s.txn.ran})
	if err := s.send(&b); err != nil {
		return err
	}
	if err := s.awaitAll(); err != nil {
		return err
	}
	s.mu.Lock()
	row, long, missed := s.captured, s.overlong, s.missed
	s.captured, s.overlong = nil, false
	if len(row) == 3 {
		s.mirror.load(values{key: row[0], token: row[1], tokens: row[2]}, s.status != wire.StatusIdle)
	}
	status := s.status
	stray := s.strayLocked()
	s.mu.Unlock()
	s.requesting.leave()
	s.giveBack(stray)
	if len(row) == 3 {
		_ = s.claimMirror() // a refusal stays with the session
		return nil
	}
	// A cancel request or a time-out hit the readback, and not the client's
	// statement: nothing that needs a claim may run before one was made.
	s.unread = fencing.Refuse(fencing.CodeUnverified, "the tag of the session could not be read back").With("", "Retry.")
	if long {
		s.unread = oversized()
	}
	if missed != nil {
		s.unread = &fencing.Error{Code: fencing.Code(missed.Code), Message: missed.Message}
	}
	s.txn.block = blockOf(status) // the error failed a block that was open
	return nil
}

// count adds the checks of a plan to the metrics, and to what is traced.
func (s *session) count(purposes []queue.Purpose) {
	if n := checksIn(purposes); n > 0 {
		s.traceChecks(n)
	}
	for _, p := range purposes {
		switch p {
		case queue.Early, queue.Probe:
			s.srv.Metrics.Checks.WithLabelValues(countedEarly).Inc()
		case queue.Late, queue.LateCommit:
			s.srv.Metrics.Checks.WithLabelValues(countedLate).Inc()
		}
	}
}
