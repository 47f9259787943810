package proxy

import (
	"bytes"
	"strings"

	"github.com/fenceproxy/fenceproxy/fencing"
	"github.com/fenceproxy/fenceproxy/sqlrewrite"
)

// Under RejectUntagged every session is looked at from its beginning, and its
// checks require a tag. What may write by its text alone is refused before it
// runs. Where only running a statement tells whether it writes, as for a
// function, a session without a tag gets the late check only: it refuses what
// has written, and lets reads be reads.

// requires reports whether the session's writes need a tag.
func (s *session) requires() bool { return s.policy.UntaggedWrites == RejectUntagged }

// fences reports whether what the session runs at this point must be atomic
// with a check: it may have a tag, or may write nothing without one.
func (s *session) fences() bool { return s.requires() || s.hasTag() }

// doubtful is a flag of the proxy's own, beside sqlrewrite's: only running the
// statement tells whether it writes, and if it has, PostgreSQL knows it by the
// end of the transaction.
const doubtful = sqlrewrite.FreeFlag

// isDoubtful reports whether a statement of a text is doubtful.
func isDoubtful(text []byte, st sqlrewrite.Statement) bool {
	switch {
	case st.Class == sqlrewrite.Savepoint:
		return true
	case st.Class != sqlrewrite.MayWrite, st.Flags&sqlrewrite.TouchesTag != 0:
		return false
	}
	switch st.Why.Reason {
	case sqlrewrite.ReasonOptions:
		return true
	case sqlrewrite.ReasonCall:
		return !unseenAtEnd(text[st.Start:st.End])
	case sqlrewrite.ReasonCommand:
		switch strings.ToLower(st.Why.In(text)) {
		case "call", "do", "execute", "fetch", "listen", "lock", "move", "set", "unlisten":
			return true
		}
	}
	return false
}

// unseenAtEnd reports whether a statement names a function that writes without
// a transaction id, always or mostly, so that the late check would not see it.
func unseenAtEnd(statement []byte) bool {
	lower := bytes.ToLower(statement)
	for _, name := range [...]string{"notify", "nextval", "setval"} {
		if bytes.Contains(lower, []byte(name)) {
			return true
		}
	}
	return false
}

// lateOnly reports whether doubtful statements get the late check only: the
// session writes nothing without a tag, and has none.
func (s *session) lateOnly() bool { return s.requires() && !s.hasTag() }

// weigh takes the flag off a statement where it has no meaning. A portal that
// the proxy never saw is a cursor, or runs what a PREPARE made of a query: all
// else would have come by it, and is wide if it was lost sight of. An EXECUTE runs
// what came by a Parse, too.
func (s *session) weigh(st statement) statement {
	switch {
	case !s.lateOnly(), st.executes != "" && s.mayBeWide(st.executes):
		st.flags &^= doubtful
	case !st.known && st.flags == 0 && !st.wide:
		st.known, st.flags = true, doubtful
	}
	return st
}

// mayBeWide reports whether a wide statement may stand under a name.
func (s *session) mayBeWide(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.names.mayBeWide(name)
}

// unfenceableHere is unfenceableIn for a session that may have no tag: there a
// PREPARE TRANSACTION is a write like any other.
func (s *session) unfenceableHere(tagged bool, class sqlrewrite.Class, flags sqlrewrite.Flags) *fencing.Error {
	if !tagged && !s.lockedBefore(class) && (!s.requires() || class == sqlrewrite.Prepare2PC) {
		return nil
	}
	return s.rightly(unfenceableIn(s.txn.block, class, flags))
}

// rightly gives a refusal the hint that fits a session whose writes need a tag:
// to do without one helps nothing.
func (s *session) rightly(e *fencing.Error) *fencing.Error {
	if e == nil || !s.requires() {
		return e
	}
	hinted := *e
	hinted.Hint = "Run it straight on PostgreSQL, or as a role whose policy is untagged_writes: allow."
	return &hinted
}
