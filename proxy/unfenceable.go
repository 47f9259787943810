package proxy

import (
	"errors"
	"fmt"

	"github.com/fenceproxy/fenceproxy/fencing"
	"github.com/fenceproxy/fenceproxy/sqlrewrite"
)

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
		if !failed || s.lockedBefore(st.Class) {
			if e := s.unfenceableHere(tagged, st.Class, st.Flags); e != nil {
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

// unfenceableIn refuses a statement of a tagged session that would run in a block.
func unfenceableIn(in block, class sqlrewrite.Class, flags sqlrewrite.Flags) *fencing.Error {
	switch {
	case class == sqlrewrite.Prepare2PC:
		return fencing.Refuse(fencing.CodeNotFenceable, "PREPARE TRANSACTION in a tagged session").With(
			"A prepared transaction would hold the mark with no session that a higher claim could end.",
			"Use COMMIT, or RESET fence.key and fence.token before the transaction.")
	case flags&sqlrewrite.NotInBlock != 0 && class != sqlrewrite.Discard && in != blockOpen:
		return fencing.Refuse(fencing.CodeNotFenceable, "the statement can't run in a transaction, so no check can be made atomic with it").With(
			"", "Run it in an untagged session.")
	}
	return nil
}

func tooLong(n int) *fencing.Error {
	return fencing.Refuse(fencing.CodeNotFenceable, "a statement text of %d bytes in a tagged session is over the limit of %d", n, maxText).With(
		"", "Send large values as bound parameters or with COPY.")
}

// unfenceableExecute refuses what can't be made atomic with the check in the
// extended protocol.
func (s *session) unfenceableExecute(st statement) *fencing.Error {
	if s.txn.block == blockFailed {
		return nil
	}
	return s.unfenceableHere(s.hasTag(), st.class, st.flags)
}

// unsplit refuses a text that Split gave up.
func unsplit(why error) *fencing.Error {
	if !errors.Is(why, sqlrewrite.ErrUncertain) {
		why = fmt.Errorf("%w: %w", sqlrewrite.ErrUncertain, why)
	}
	return fencing.Refuse(fencing.CodeNotFenceable, "the text %v", why).With(
		"", "Send one statement at a time with bound parameters, or set standard_conforming_strings on and client_encoding to UTF8.")
}
