package proxy

import (
	"bytes"
	"errors"

	"github.com/fenceproxy/fenceproxy/fencing"
	"github.com/fenceproxy/fenceproxy/proxy/queue"
	"github.com/fenceproxy/fenceproxy/proxy/wire"
	"github.com/fenceproxy/fenceproxy/sqlrewrite"
)

// guard takes one message of a tagged session.
func (s *session) guard(t byte, n int) error {
	switch t {
	case wire.Query:
		if n > maxText {
			if err := s.fromClient.Skip(); err != nil {
				return err
			}
			return s.refuseQuery(tooLong(n))
		}
		body, err := s.fromClient.Read(n)
		if err != nil {
			return err
		}
		return s.guardQuery(body)
	case wire.FunctionCall:
		return s.guardFunction()
	case wire.Sync:
		return s.guardSync()
	case wire.Flush, wire.Terminate, wire.CopyData, wire.CopyDone, wire.CopyFail:
		return s.other(t)
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
	return s.other(t)
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
	s.segment = segment{}
	s.statements.nextSegment()
}

// guardQuery takes a Query: it splits the text, claims what it says of the
// tag, and puts checks into it.
func (s *session) guardQuery(body []byte) error {
	text, rest, ok := wire.CString(body)
	if !ok || len(rest) > 0 {
		return s.sendQuery(body, queue.Entry{Kind: queue.Query}) // PostgreSQL refuses it: 08P01
	}
	if !s.segment.open {
		if err := s.awaitIdle(); err != nil {
			return err
		}
		if err := s.settle(); err != nil {
			return err
		}
	} else if bytes.IndexByte(text, '\\') >= 0 {
		// What a backslash means can have changed since the last ReadyForQuery.
		return s.refuseText(text, sqlrewrite.ErrUncertain)
	}
	options := s.options()
	stmts, err := sqlrewrite.Split(s.stmts[:0], text, options)
	s.stmts = stmts[:0]
	if err != nil {
		return s.refuseText(text, err)
	}
	m := s.meaningOf(text, stmts, options)
	refused := s.unfenceable(stmts, len(m.settings) > 0)
	if refused == nil {
		refused = s.admit(m)
	}
	if refused != nil {
		return s.refuseQuery(refused)
	}
	return s.sendGuarded(text, stmts, len(m.settings) > 0 || s.segment.tagged)
}

// sendGuarded sends a text that was admitted, with its checks.
func (s *session) sendGuarded(text []byte, stmts []sqlrewrite.Statement, tagged bool) error {
	if len(stmts) == 0 && s.segment.executed && s.txn.needsLate() {
		// Nothing can be added to an empty text without changing its answer.
		if err := s.inject(s.txn.late(), queue.Late); err != nil {
			return err
		}
		s.txn.checked = true
	}
	var p plan
	const alone = sqlrewrite.NotInBlock | sqlrewrite.MayCommit
	if len(stmts) != 1 || stmts[0].Flags&alone == 0 || s.txn.block != blockNone || s.hasTag() && stmts[0].Class != sqlrewrite.Discard {
		p = planQuery(&s.txn, s.checks(), stmts, len(text))
	}
	s.count(p.purposes)
	e := queue.Entry{Kind: queue.Query, Plan: p.purposes, Tagged: tagged}
	e.Ends = uint8(s.txn.sync())
	e.Checked, e.Ran = s.txn.checked && s.txn.block == blockOpen, s.txn.ran
	if p.insertions != nil {
		original := append([]byte(nil), text...)
		e.Shift = func(pos int) int { return sqlrewrite.OriginalPosition(p.insertions, original, pos) }
		text = sqlrewrite.Insert(make([]byte, 0, len(text)+256), text, p.insertions)
	}
	s.endSegment()
	if err := s.sendQuery(append(text[:len(text):len(text)], 0), e); err != nil {
		return err
	}
	s.dropped(stmts)
	if p.lateCommit {
		return s.finishCommit()
	}
	return nil
}

// dropped notes that the proxy's own prepared statements may be gone.
func (s *session) dropped(stmts []sqlrewrite.Statement) {
	for _, st := range stmts {
		if st.Flags&sqlrewrite.DropsPrepared != 0 {
			s.own.generation++
			s.statements.dropAll()
			return
		}
	}
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
	if err := s.sendQuery([]byte("ROLLBACK\x00"), queue.Entry{
		Kind: queue.Query, Purpose: queue.Rollback, Ends: uint8(endRollback),
	}); err != nil {
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

// A meaning is what statements together mean for the session's tag.
type meaning struct {
	settings []sqlrewrite.Setting // what they do to it, in order
	mayWrite bool                 // one may write something else than settings
	harmless bool                 // all may run in a session whose tag was refused
}

// meaningOf reads what statements mean, and marks those that only configure.
func (s *session) meaningOf(text []byte, stmts []sqlrewrite.Statement, o sqlrewrite.Options) meaning {
	m := meaning{harmless: true}
	for i := range stmts {
		st := s.unseen(s.describe(text, stmts[i], o))
		stmts[i].Flags = st.flags
		m.settings = append(m.settings, st.settings...)
		m.mayWrite = m.mayWrite || st.mayWrite()
		m.harmless = m.harmless && harmless(st.class)
	}
	return m
}

// describe returns what is to be remembered of a statement.
func (s *session) describe(text []byte, one sqlrewrite.Statement, o sqlrewrite.Options) statement {
	st := statement{known: true, class: one.Class, flags: one.Flags}
	if one.Flags&sqlrewrite.TouchesTag == 0 {
		return st
	}
	st.settings = sqlrewrite.Settings(text, one, o)
	switch {
	case one.Class == sqlrewrite.MayWrite && onlySettings(st.settings):
		st.flags |= configures
	case one.Class == sqlrewrite.Prepare, one.Class == sqlrewrite.MayWrite && len(st.settings) == 0:
		s.opaque = true
	}
	return st
}

// unseen makes of a statement one that may change the tag, in a session that
// has prepared or defined something that does.
func (s *session) unseen(st statement) statement {
	if s.opaque && st.class == sqlrewrite.MayWrite && st.flags&configures == 0 {
		st.flags |= sqlrewrite.TouchesTag
		st.settings = append(st.settings[:len(st.settings):len(st.settings)], sqlrewrite.Setting{Kind: sqlrewrite.Unknown})
	}
	return st
}

// onlySettings reports whether every effect on the tag is of a setting by
// name.
func onlySettings(settings []sqlrewrite.Setting) bool {
	for _, s := range settings {
		if s.Name == "" {
			return false
		}
	}
	return len(settings) > 0
}

// harmless reports whether a session whose tag was refused may run a
// statement of the class: settings, and what ends a transaction.
func harmless(c sqlrewrite.Class) bool {
	switch c {
	case sqlrewrite.SetOrShow, sqlrewrite.Discard, sqlrewrite.Commit, sqlrewrite.Rollback,
		sqlrewrite.RollbackTo, sqlrewrite.Release:
		return true
	}
	return false
}

// hasTag reports whether the session may have a tag at this point, or get one
// back when the open transaction fails.
func (s *session) hasTag() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := &s.mirror
	return s.refused != nil || m.unsure || m.now != values{} || m.open && m.base != values{}
}

// unfenceable refuses statements that can't be made atomic with the check.
// tagging tells that they set a tag first.
func (s *session) unfenceable(stmts []sqlrewrite.Statement, tagging bool) *fencing.Error {
	tagged, failed := tagging || s.hasTag(), s.txn.block == blockFailed
	for _, st := range stmts {
		if tagged && !failed || s.lockedBefore(st.Class) {
			if e := s.unfenceableOne(st.Class, st.Flags); e != nil {
				return e
			}
		}
		switch st.Class {
		case sqlrewrite.Commit, sqlrewrite.Rollback, sqlrewrite.RollbackTo:
			failed = false
		}
	}
	return nil
}

// lockedBefore reports whether a statement is a PREPARE TRANSACTION after the
// tag was taken off in the transaction: it may hold a mark still.
func (s *session) lockedBefore(class sqlrewrite.Class) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return class == sqlrewrite.Prepare2PC && s.mirror.open && s.txn.held
}

func (s *session) unfenceableOne(class sqlrewrite.Class, flags sqlrewrite.Flags) *fencing.Error {
	switch {
	case class == sqlrewrite.Prepare2PC:
		return fencing.Refuse(fencing.CodeNotFenceable, "PREPARE TRANSACTION in a tagged session").With(
			"A prepared transaction would hold the mark with no session that a higher claim could end.",
			"Use COMMIT, or RESET fence.key and fence.token before the transaction.")
	case flags&sqlrewrite.NotInBlock != 0 && class != sqlrewrite.Discard && s.txn.block != blockOpen:
		return fencing.Refuse(fencing.CodeNotFenceable, "the statement can't run in a transaction, so no check can be made atomic with it").With(
			"", "Run it in an untagged session.")
	}
	return nil
}

func tooLong(n int) *fencing.Error {
	return fencing.Refuse(fencing.CodeNotFenceable, "a statement text of %d bytes in a tagged session is over the limit of %d", n, maxText).With(
		"", "Send large values as bound parameters or with COPY.")
}

// refuseQuery answers a Query with a refusal that PostgreSQL raises.
func (s *session) refuseQuery(e *fencing.Error) error {
	s.endSegment()
	return s.sendQuery(append([]byte(raiseSQL(e)), 0), queue.Entry{
		Kind: queue.Query, Plan: []queue.Purpose{queue.Raise},
	})
}

// refuseText answers a Query that can't be split. One that PostgreSQL
// refuses whole gets its own syntax error: it is parsed there and run nowhere.
func (s *session) refuseText(text []byte, why error) error {
	e := fencing.Refuse(fencing.CodeNotFenceable, "the text can't be split into statements with certainty: %v", why).With(
		"", "Send one statement at a time with bound parameters, or set standard_conforming_strings on and client_encoding to UTF8.")
	s.mu.Lock()
	skipping := s.queue.Skipping() // a Sync of the proxy's own would end it
	s.mu.Unlock()
	if s.segment.open || skipping || !errors.Is(why, sqlrewrite.ErrUnterminated) && !errors.Is(why, sqlrewrite.ErrUnsafe) {
		return s.refuseQuery(e)
	}
	var b batch
	b.add(queue.Close, queue.Raise, wire.AppendClose(b.bytes, 'S', "")) // as every Query does
	b.add(queue.Close, queue.Raise, wire.AppendClose(b.bytes, 'S', raiseName))
	b.add(queue.Parse, queue.Examine, wire.AppendParse(b.bytes, raiseName, string(text)))
	b.raise(e)
	b.add(queue.Sync, queue.Client, wire.AppendSync(b.bytes))
	return s.send(&b)
}

// readback asks the backend what the settings are, between segments, and
// claims the tag that they make.
func (s *session) readback() error {
	s.mu.Lock()
	s.missed = nil
	s.mu.Unlock()
	e := queue.Entry{Kind: queue.Query, Purpose: queue.Readback, Checked: s.txn.checked, Ran: s.txn.ran}
	if err := s.sendQuery([]byte(readbackSQL+"\x00"), e); err != nil {
		return err
	}
	if err := s.awaitAll(); err != nil {
		return err
	}
	s.mu.Lock()
	row, missed := s.captured, s.missed
	s.captured = nil
	if len(row) == 3 {
		s.mirror.load(values{key: row[0], token: row[1], tokens: row[2]}, s.status != wire.StatusIdle)
	}
	status := s.status
	s.mu.Unlock()
	if len(row) == 3 {
		_ = s.claimMirror() // a refusal stays with the session
		return nil
	}
	// A cancel request or a time-out hit the readback, and not the client's
	// statement: nothing that needs a claim may run before one was made.
	s.unread = fencing.Refuse(fencing.CodeUnverified, "the tag of the session could not be read back").With("", "Retry.")
	if missed != nil {
		s.unread = &fencing.Error{Code: fencing.Code(missed.Code), Message: missed.Message}
	}
	s.txn.block = blockOf(status) // the error failed a block that was open
	return nil
}

// count adds the checks of a plan to the metrics.
func (s *session) count(purposes []queue.Purpose) {
	for _, p := range purposes {
		switch p {
		case queue.Early, queue.Probe:
			s.srv.Metrics.Checks.WithLabelValues("early").Inc()
		case queue.Late, queue.LateCommit:
			s.srv.Metrics.Checks.WithLabelValues("late").Inc()
		}
	}
}
