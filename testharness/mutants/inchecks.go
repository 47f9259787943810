package main

const (
	checkSQL = "fencing/schema/check.sql"
	claimSQL = "fencing/schema/claim.sql"
	guardSQL = "fencing/schema/guard.sql"
)

// inChecks are the mutants of what runs inside PostgreSQL.
func inChecks() []mutant {
	return []mutant{
		{"no-check", order, "the check", []edit{{checkSQL, "BEGIN\n    IF v_key <> ''\n", "BEGIN\n    RETURN;\n    IF v_key <> ''\n"}},
			test{"testharness/cases", "TestCase2_PausedBetweenTransactions", "stale commits acknowledged"}},
		{"no-share-lock", barrier, "`FOR SHARE` in the check of one lock",
			[]edit{{checkSQL, "WHERE m.resource_key = v_key FOR SHARE;", "WHERE m.resource_key = v_key;"}},
			test{"proxy", "TestSession_BarrierAtEveryStep", "rows after the claim was answered"}},
		{"no-share-lock-of-several", severalLock, "`FOR SHARE` in the check of several locks", []edit{{checkSQL,
			"IN ('read committed', 'read uncommitted') THEN\n        SELECT * INTO v_mark FROM fence.mark AS m WHERE m.resource_key = p_key FOR SHARE;",
			"IN ('read committed', 'read uncommitted') THEN\n        SELECT * INTO v_mark FROM fence.mark AS m WHERE m.resource_key = p_key;"}},
			test{"testharness/cases", "TestCase17_OneOfTwoLost", "want LF005"}},
		{"first-lock-only", severalLock, "every lock of a tag but the first is checked",
			[]edit{{checkSQL, `FROM fence.read_tag() AS t ORDER BY t.key COLLATE "C" LOOP`, `FROM fence.read_tag() AS t ORDER BY t.key COLLATE "C" LIMIT 1 LOOP`}},
			test{"fencing", "TestCheck", `want "LF001"`}},
		{"missing-mark-accepted", failClosed, "a key without a mark is refused", []edit{{checkSQL,
			"    ELSIF v_mark.token IS NULL THEN\n", "    ELSIF v_mark.token IS NULL THEN\n        RETURN;\n"}},
			test{"fencing", "TestCheck", `want "LF002"`}},
		{"lower-accepted", failClosed, "a token below the mark is refused by the check (`=` becomes `>=`)",
			[]edit{{checkSQL, "IF v_mark.token = p_token THEN", "IF v_mark.token >= p_token THEN"}},
			test{"proxy", "TestSession_StaleWrites", "want LF001"}},
		{"higher-accepted", noPoisoning, "a token above the mark is refused by the check (`=` becomes `<=`)",
			[]edit{{checkSQL, "IF v_mark.token = p_token THEN", "IF v_mark.token <= p_token THEN"}},
			test{"fencing", "TestCheck", `want "LF002"`}},
		{"retry-for-ever", failClosed, "40001 of the check itself becomes LF001",
			[]edit{{checkSQL, "WHEN serialization_failure THEN\n", "WHEN assert_failure THEN\n"}},
			test{"fencing", "TestCheck_OldSnapshot", "40001"}},
		{"late-claim-wins", order, "the mark never falls: a claim that comes late does nothing", []edit{
			{claimSQL, "ELSIF highest > p_revision THEN", "ELSIF false THEN"},
			{claimSQL, "v_lineage = epoch AND token > p_token THEN", "false THEN"},
			{claimSQL, "m.lineage = claim.epoch AND m.token < p_token);", "m.lineage = claim.epoch AND m.token <> p_token);"}},
			test{"fencing", "TestClaimer_LateOlderClaim", "got <nil>, want LF001"}},
		{"raised-unconditionally", order, "`m.token < p_token` in the claim's UPDATE",
			[]edit{{claimSQL, "m.lineage = claim.epoch AND m.token < p_token);", "m.lineage = claim.epoch);"}},
			test{"fencing", "TestClaimer_NeverEndsALaterHolder", "the mark was written"}},
		{"mark-not-durable", durable, "a claim commits with `synchronous_commit = on`",
			[]edit{{claimSQL, "PERFORM set_config('synchronous_commit', 'on', true);", "NULL;"}},
			test{"fencing", "TestClaimer_IsDurable", "got <nil>, want LF008"}},
		{"equal-not-durable", durable, "a claim that finds its mark there waits for the standby",
			[]edit{{claimSQL, "PERFORM pg_logical_emit_message(true, 'fence', '');", "NULL;"}},
			test{"fencing", "TestClaimer_BrokenOffCommit", "got <nil>, want LF008"}},
		{"guard-of-no-tag", failClosed, "a guarded table asks for the lock of the row",
			[]edit{{guardSQL, "ELSIF v_pair.token IS NULL THEN", "ELSIF v_pair.token IS NULL THEN\n            CONTINUE;"}},
			test{"fencing", "TestGuard", `want "LF004"`}},
	}
}
