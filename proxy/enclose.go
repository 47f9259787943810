package proxy

import (
	"github.com/fenceproxy/fenceproxy/fencing"
	"github.com/fenceproxy/fenceproxy/proxy/queue"
	"github.com/fenceproxy/fenceproxy/sqlrewrite"
)

// CALL and DO may commit in the middle, which PostgreSQL refuses in a block
// (2D000). In a Query the check beside them makes one. In the extended protocol
// it doesn't before PostgreSQL 18, so the proxy begins a block before them,
// which ends with the segment, as the transaction of a segment does anyway.

// mustEnclose reports whether a statement needs a block of the proxy's own.
func (s *session) mustEnclose(st statement) bool {
	return st.flags&sqlrewrite.MayCommit != 0 && s.txn.block != blockOpen && s.txn.block != blockFailed && s.fences()
}

// enclosable reports whether a statement does the same in a block that ends
// with the segment as in the transaction that the segment is.
func enclosable(st statement) bool {
	const decides = sqlrewrite.NeedsBlock | sqlrewrite.NotInBlock | sqlrewrite.CopyIn
	if !st.known || st.flags&decides != 0 {
		return false
	}
	switch st.class {
	case sqlrewrite.MayWrite, sqlrewrite.Read, sqlrewrite.Prepare, sqlrewrite.SetOrShow, sqlrewrite.Discard:
		return true
	}
	return false
}

// unenclosed refuses what can't share a block of the proxy's own, which the
// statement may need.
func (s *session) unenclosed(st statement, needed bool) *fencing.Error {
	switch {
	case needed && (s.segment.loose || s.txn.block != blockNone || !enclosable(st)),
		s.segment.enclosed && !enclosable(st):
		return fencing.Refuse(fencing.CodeNotFenceable, "CALL and DO may commit in the middle, and no block can be put around this pipeline to prevent it").With(
			"A pipeline with a CALL or DO can't begin or end transactions itself, nor copy from the client.", "Run it between BEGIN and COMMIT, or in a pipeline of its own.")
	}
	return nil
}

// enclose begins the block, unless the segment has it.
func (s *session) enclose() error {
	if s.segment.enclosed {
		return nil
	}
	var b batch
	b.once(beginName, beginSQL, queue.Enclose)
	s.segment.enclosed = true
	return s.send(&b)
}

// disclose ends the block before what ends the segment. Where something has
// failed in it the backend skips that, and the segment's Sync tells.
func (s *session) disclose() error {
	if !s.segment.enclosed {
		return nil
	}
	var b batch
	b.once(commitName, commitSQL, queue.Enclose)
	return s.send(&b)
}

// discloseMidway ends the block before a Query or a call in the middle of its
// segment, which is a transaction of its own.
func (s *session) discloseMidway() error {
	if !s.segment.enclosed {
		return nil
	}
	if err := s.injectLate(); err != nil {
		return err
	}
	s.txn = txn{}
	return s.disclose()
}
