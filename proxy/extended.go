package proxy

import (
	"github.com/fenceproxy/fenceproxy/fencing"
	"github.com/fenceproxy/fenceproxy/proxy/queue"
	"github.com/fenceproxy/fenceproxy/proxy/wire"
	"github.com/fenceproxy/fenceproxy/sqlrewrite"
)

// guardBind remembers which statement a portal runs.
func (s *session) guardBind() error {
	body, err := s.fromClient.Prefix()
	if err != nil {
		return err
	}
	st := unread()
	portal, rest, ok := wire.CString(body)
	if !ok {
		portal = body // longer than the buffer, and than any name can be
	}
	name, values, ok := wire.CString(rest)
	if !ok && len(rest) > maxName {
		name, ok = rest, true
	}
	if !ok && s.fromClient.Complete() {
		return s.relay(queue.Bind) // PostgreSQL can't read the names either, and binds nothing
	}
	if ok {
		if st, err = s.standing(name); err != nil {
			return err
		}
		st.settings = short(bindSettings(st, values))
		st.named = len(name) > 0
	}
	if !s.discarded(queue.Bind) {
		s.portals.bind(portal, st, s.segment.number)
	}
	if st.bindWrites() {
		s.segment.executed = true
		s.txn.bound()
	}
	return s.relay(queue.Bind)
}

// discarded reports whether the backend discards a request of the kind, because
// of an error before it.
func (s *session) discarded(k queue.Kind) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.queue.Drops(k)
}

// standing returns the statement that stands under a name, after waiting for
// the segments before to tell if they change it.
func (s *session) standing(name []byte) (statement, error) {
	look := func() (statement, bool) {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.names.stands(name, s.segment.number)
	}
	st, certain := look()
	if certain {
		return st, nil
	}
	if err := s.awaitSegments(); err != nil {
		return statement{}, err
	}
	if st, certain = look(); !certain {
		return unread(), nil
	}
	return st, nil
}

// guardExecute puts the check that a statement needs before its Execute, or a
// refusal in its place.
func (s *session) guardExecute() error {
	body, err := s.fromClient.Prefix()
	if err != nil {
		return err
	}
	portal, _, ok := wire.CString(body)
	if !ok {
		portal = body // as in a Bind
	}
	st, err := s.learnBlock(portal)
	if err != nil {
		return err
	}
	st = s.weigh(s.unseen(st))
	if st.empty {
		if st.named {
			s.txn.bound()
		}
		return s.relay(queue.Execute)
	}
	s.parent = st.parent
	enclose := s.mustEnclose(st) // before a claim changes the answer
	refused := s.unfenceableExecute(st)
	if refused == nil {
		refused = s.unenclosed(st, enclose)
	}
	m := meaning{
		settings: st.settings,
		mayWrite: !st.known || st.mayWrite(),
		harmless: st.known && harmless(st.class),
	}
	m, g, refused := s.lendInSegment(m, refused)
	if refused == nil {
		refused = s.admitLent(g, m)
	}
	s.segment.executed = true
	if refused != nil {
		return s.refuseMessage(wire.Execute, refused)
	}
	s.segment.tagged = s.segment.tagged || len(m.settings) > 0
	if enclose {
		if err := s.enclose(); err != nil {
			return err
		}
	}
	s.segment.loose = s.segment.loose || !enclosable(st)
	if err := s.sendGrant(g); err != nil {
		return err
	}
	return s.execute(st)
}

// learnBlock returns what a portal runs. It makes sure that the block is known
// where that matters: nothing hidden may go into a failed transaction before
// its COMMIT, or before the error that a portal isn't there any more. Replies
// to segments that had their Sync come without further ado.
func (s *session) learnBlock(portal []byte) (statement, error) {
	st, certain := s.portals.of(portal, s.segment.number)
	if s.txn.block != blockUnknown || s.segment.unknown || certain && st.known && !blockMatters(st.class, st.flags) {
		return st, nil
	}
	if err := s.awaitSegments(); err != nil {
		return statement{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.learnLocked()
	st, _ = s.portals.of(portal, s.segment.number)
	return st, nil
}

// execute forwards an Execute that was admitted, with its check before it.
func (s *session) execute(st statement) error {
	what := s.txn.unknown
	if st.known {
		what = func() check { return s.txn.step(st.class, st.flags) }
	}
	ended := s.txn.ends
	alone := st.known && st.flags&(sqlrewrite.NotInBlock|sqlrewrite.MayCommit) != 0 && s.txn.block != blockOpen && !s.segment.enclosed
	first, within := !s.segment.called, s.txn.block
	s.segment.called = true
	c := checkNone
	if !alone || s.dropsTagOf(st) {
		c = what()
	}
	if st.known && st.named {
		s.txn.doubt(st.class, st.flags, within)
	}
	if c != checkNone {
		purpose := queue.Early
		if c != checkEarly {
			purpose = lateFor(st.class)
			s.awaitCommit = s.awaitCommit || purpose == queue.LateCommit
		}
		if err := s.inject(c, purpose); err != nil {
			return err
		}
	}
	s.segment.unknown = s.segment.unknown || !st.known
	e := queue.Entry{Kind: queue.Execute}
	if (c != checkNone || s.segment.enclosed) && first && within == blockNone {
		e.Alone = uint8(aloneAs(st.flags))
	}
	if s.txn.ends != ended || alone {
		e.Ends = uint8(s.txn.ends | endCommit)
	}
	if err := s.relayAs(e); err != nil {
		return err
	}
	if st.named && confirmed(st.class, within) {
		return s.confirmBegin()
	}
	if !st.known {
		s.own.generation++ // it may drop the proxy's own statements
	}
	if st.flags&sqlrewrite.DropsPrepared != 0 {
		s.dropPrepared(st.drops)
	}
	return nil
}

// dropsTagOf reports whether the statement is a DISCARD ALL behind something that
// ran under the tag and that no check covers. PostgreSQL lets it come behind a
// Bind, which can have written; where it doesn't, it fails without the check too.
func (s *session) dropsTagOf(st statement) bool {
	return st.class == sqlrewrite.Discard && s.txn.ran && !s.txn.checked
}

// confirmBegin has a pipeline fail in which the BEGIN under a name was none: what
// ran in its place would commit at the Sync. SAVEPOINT fails outside a block, and
// doesn't get in the way of a SET TRANSACTION that follows, as a query would.
func (s *session) confirmBegin() error {
	var b batch
	b.once(savepointName, savepointSQL, queue.Confirm)
	b.once(savepointName, releaseSQL, queue.Confirm)
	return s.send(&b)
}

// inject sends a check, after making the proxy's statements if they aren't
// known to be there.
func (s *session) inject(c check, p queue.Purpose) error {
	b := &s.checking
	b.reset()
	if !s.own.ready() {
		b.prepare(s.checks(), s.own.generation)
	}
	if c == checkFull {
		b.run(earlyName, p)
	} else {
		b.check(p)
	}
	s.count([]queue.Purpose{p})
	return s.send(b)
}

// injectLate sends the late check of the implicit transaction that is about to
// end, if it needs one.
func (s *session) injectLate() error {
	if !s.segment.executed || !s.txn.needsLate() {
		return nil
	}
	what := s.txn.late()
	s.txn.checked = true
	return s.inject(what, queue.Late)
}

// guardSync puts the late check at the end of an implicit transaction that
// isn't certain to have been checked.
func (s *session) guardSync() error {
	if s.segment.unknown {
		if ignored, err := s.copyIn(); ignored || err != nil {
			return err
		}
	}
	s.synced()
	if s.segment.executed {
		_ = s.lookAgain() // the check will tell
	}
	if err := s.injectLate(); err != nil {
		return err
	}
	if err := s.disclose(); err != nil {
		return err
	}
	e := queue.Entry{Kind: queue.Sync, Tagged: s.segment.tagged, Enclosed: s.segment.enclosed}
	s.awaitCommit = s.awaitCommit || e.Enclosed
	e.Ends = uint8(s.txn.sync())
	e.Checked, e.Ran = s.txn.checked && s.txn.block == blockOpen, s.txn.ran
	s.midway = false
	s.endSegment()
	if err := s.relayAs(e); err != nil {
		return err
	}
	if s.awaitCommit {
		return s.finishCommit()
	}
	return nil
}

// copyIn asks, before the Sync of a segment in which the proxy can't be sure
// what ran, whether a COPY waits for data: the backend ignores the Sync then,
// and a check before it would end the session.
func (s *session) copyIn() (ignored bool, err error) {
	if err := s.awaitEarlier(func() bool { return s.queue.Len() == 0 || s.queue.Starving() }); err != nil {
		return false, err
	}
	s.mu.Lock()
	ignored = s.queue.Starving()
	s.mu.Unlock()
	if !ignored {
		return false, nil
	}
	s.reopening = reopening{} // the segment goes on as it is
	return true, s.relay(queue.Sync)
}

// guardFunction takes a call by the function-call message, which counts as a
// write. It can't share a segment with a hidden check, so it needs a block
// that a check has run in.
func (s *session) guardFunction() error {
	skipping, err := s.beforeWhole()
	if err != nil {
		return err
	}
	if skipping {
		return s.relay(queue.Function)
	}
	body, err := s.fromClient.Prefix()
	if err != nil {
		return err
	}
	refused := s.admit(meaning{mayWrite: true})
	if s.segment.lent {
		refused = besideLock()
	}
	if callsSetConfig(body) {
		refused = fencing.Refuse(fencing.CodeNotFenceable, "set_config by a function-call message, which could set a tag unseen").With(
			"", "Use SET, or SELECT set_config(…).")
	}
	if refused == nil && s.txn.block != blockOpen && s.txn.block != blockFailed && s.fences() {
		refused = fencing.Refuse(fencing.CodeNotFenceable, "a function call outside a transaction block, where no check can be made atomic with it").With(
			"", "Run it between BEGIN and COMMIT.")
	}
	if refused != nil {
		return s.refuseMessage(wire.FunctionCall, refused)
	}
	if s.txn.block == blockOpen && !s.txn.checked {
		if ok, err := s.probe(); !ok {
			return err
		}
	}
	s.sentMidway()
	s.endSegment()
	return s.relayAs(queue.Entry{Kind: queue.Function, Checked: s.txn.checked, Ran: s.txn.ran})
}

// probe runs a check in a segment of its own inside an open block. Where it
// fails the client has its answer, and the announced message is dropped.
func (s *session) probe() (ok bool, err error) {
	if err := s.inject(checkFull, queue.Probe); err != nil {
		return false, err
	}
	var b batch
	b.sync(queue.Entry{Purpose: queue.Probe, Checked: true})
	if err := s.send(&b); err != nil {
		return false, err
	}
	if err := s.awaitReady(); err != nil {
		return false, counted(err)
	}
	s.mu.Lock()
	failed := s.status != wire.StatusBlock
	s.mu.Unlock()
	if failed {
		s.endSegment()
		return false, s.fromClient.Skip()
	}
	s.txn.checked, s.txn.held = true, true
	return true, nil
}
