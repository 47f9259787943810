package main

const (
	txnGo   = "proxy/txn.go"
	claimGo = "proxy/claim.go"
)

// inSessions are the mutants of what a proxy does with a session.
func inSessions() []mutant {
	return []mutant{
		{"checked-over-rollback-to", barrier, "ROLLBACK TO forgets the check, whose lock it may have released",
			[]edit{{txnGo, "func (t *txn) backTo() {\n	t.checked, t.uncovered, t.ran, t.guess = false, true, true, false", "func (t *txn) backTo() {"}},
			test{"proxy", "TestTxn_NothingCommitsUnchecked", "ROLLBACK TO"}},
		{"checked-over-release", barrier, "RELEASE forgets the check, which may have run read-only and locked nothing",
			[]edit{{txnGo, "		t.checked, t.uncovered, t.ran, t.guess = false, true, true, false\n		return checkNone\n	case sqlrewrite.Prepare2PC", "		return checkNone\n	case sqlrewrite.Prepare2PC"}},
			test{"proxy", "TestSession_StaleByOddMessages", "rows when the claim was answered"}},
		{"checked-over-commit", barrier, "COMMIT AND CHAIN forgets the check",
			[]edit{{txnGo, "		next.block = t.block\n", "		next.block, next.checked = t.block, t.checked\n"}},
			test{"proxy", "TestSession_StaleShapes", `want "LF001"`}},
		{"no-early-check", failClosed, "a statement that may write is checked before it runs",
			[]edit{{txnGo, "		c = checkEarly\n	}\n	if flags", "	}\n	if flags"}},
			test{"proxy", "TestSession_StaleWrites", "want LF001"}},
		{"no-late-check", failClosed, "a transaction that wrote unseen is checked at its end", []edit{
			{txnGo, "return (t.block == blockNone || t.block == blockUnknown) && t.uncovered && !t.checked", "return false"},
			{txnGo, "if t.uncovered && !t.checked {\n			c = t.late()", "if false {\n			c = t.late()"}},
			test{"proxy", "TestSession_StaleHidden", `want "LF001"`}},
		{"uncertain-relayed", failClosed, "a text that can't be split is refused",
			[]edit{{"proxy/query.go", "	if err != nil {\n		return s.refuseText(text, err)\n	}\n	m := s", "	if err != nil {\n		return s.sendQuery(body, queue.Entry{Kind: queue.Query})\n	}\n	m := s"}},
			test{"proxy", "TestSession_UnsafeEncodings", `want "LF007"`}},
		{"reads-before-the-barrier", readBarrier, "a session whose claim failed reads nothing",
			[]edit{{claimGo, "	if s.refused != nil && !what.harmless {", "	if s.refused != nil && !what.harmless && what.mayWrite {"}},
			test{"proxy", "TestSession_StartupTagRefused", "SELECT 1: got <nil>"}},
		{"no-late-check-at-sync", failClosed, "a segment that wrote unseen is checked before its Sync",
			[]edit{{"proxy/extended.go", "if !s.segment.executed || !s.txn.needsLate() {", "if s.segment.executed || !s.txn.needsLate() {"}},
			test{"proxy", "TestSession_StaleWrites", "want LF001"}},
		{"not-enclosed", barrier, "CALL and DO, which may commit in the middle, run in a block with their check",
			[]edit{{"proxy/enclose.go", "return st.flags&sqlrewrite.MayCommit != 0 &&", "return false && st.flags&sqlrewrite.MayCommit != 0 &&"}},
			test{"proxy", "TestSession_ProceduresThatCommit", `want "LF007"`}},
		{"new-key-old-token", noPoisoning, "a token that was set for one key is no token of the next",
			[]edit{{"proxy/mirror.go", `v.outdated = v.outdated || v.key != "" && v.token != ""`, `v.outdated = false`}},
			test{"proxy", "TestSession_Tags", "SET fence.key = 'b'"}},
		{"waits-for-itself", progress, "a claim never waits for its own session's transaction",
			[]edit{{claimGo, "if had := before.Token(p.Key); had != 0 && had < p.Token {", "if had := before.Token(p.Key); had != 0 && had < p.Token-1000 {"}},
			test{"proxy", "TestSession_RaisesOwnInsideTransaction", "want LF009"}},
		{"tag-falls-back", failClosed, "a refused tag stays, and is never as if there were none",
			[]edit{{claimGo, "		s.refuse(refused, settings)\n		return refused", "		return refused"}},
			test{"proxy", "TestSession_Tags", `want "LF002"`}},
		{"equal-evicted", progress, "sessions of the same token stay (`<` becomes `<=`)",
			[]edit{{"proxy/server.go", "had < below {", "had <= below {"}},
			test{"proxy", "TestSession_SameTokenStays", "was superseded by 1"}},
		{"next-user-evicted", nothingLost, "the next user of a pooled connection is left alone",
			[]edit{{"proxy/ending.go", "s.coming.Token(key) == 0 && s.mirror.lost(key)", "false"}},
			test{"testharness/cases", "TestCase15_PooledConnection", "evicted"}},
		{"committing-cut-off", nothingLost, "a session that may be committing is told the truth about it",
			[]edit{{"proxy/ending.go", "if s.spared = s.queue.MayCommit(); s.spared {", "if s.spared = false; s.spared {"}},
			test{"proxy", "TestSession_EvictedBetweenCommitAndSync", "EOF"}},
		{"refused-commit-left-open", nothingLost, "a COMMIT that the check refused ends the transaction",
			[]edit{{"proxy/queue/queue.go", "		out.Verdict = Withhold\n", "		out.Verdict = Forward\n"}},
			test{"proxy", "TestSession_StaleShapes", "25P02"}},
		{"hidden-reply-leaked", nothingLost, "the client never sees the reply to a check",
			[]edit{{"proxy/queue/queue.go", "	if p == Client {\n		return Forward", "	if p == Client || p == Early {\n		return Forward"}},
			test{"proxy", "TestSession_TaggedSameReplies", "unexpected message"}},
		{"prepared-transaction", progress, "PREPARE TRANSACTION is refused, since nobody could end it",
			[]edit{{"proxy/unfenceable.go", "case class == sqlrewrite.Prepare2PC:", "case class == sqlrewrite.Prepare2PC && in == blockFailed:"}},
			test{"proxy", "TestSession_StaleShapes", `want "LF007"`}},
	}
}
