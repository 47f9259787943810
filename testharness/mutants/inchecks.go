package main

const (
	checkSQL = "fencing/schema/check.sql"
	claimSQL = "fencing/schema/claim.sql"
	guardSQL = "fencing/schema/guard.sql"

	historySQL = "fencing/schema/history.sql"
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
		{"written-then-read-only", failClosed, "a transaction that wrote and is read-only now is refused, since it can't lock",
			[]edit{{checkSQL, "IF current_setting('transaction_read_only') = 'on' AND pg_current_xact_id_if_assigned() IS NOT NULL THEN", "IF false THEN"}},
			test{"fencing", "TestCheck", `want "LF007"`}},
		{"crosswise", progress, "locks of several marks are taken in one order",
			[]edit{{checkSQL, `FROM fence.read_tag() AS t ORDER BY t.key COLLATE "C" LOOP`, `FROM fence.read_tag() AS t ORDER BY t.key COLLATE "C" DESC LOOP`}},
			test{"fencing", "TestCheck_LocksInOrder", "could not obtain lock"}},
		{"search-path", failClosed, "the check looks at nothing that the session has put in its way",
			[]edit{{checkSQL, "LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER\nSET search_path = pg_catalog, pg_temp\nAS $$\nDECLARE\n    v_key      text", "LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER\nAS $$\nDECLARE\n    v_key      text"}},
			test{"fencing", "TestCheck_SearchPath", "want LF001"}},
		{"floor-forgotten", noPoisoning, "removing marks keeps how far etcd had come",
			[]edit{{historySQL, "UPDATE fence.lineage AS l SET floor = p_revision WHERE l.epoch = p_epoch AND l.floor < p_revision;", "NULL;"}},
			test{"fencing", "TestRetention_LateOlderClaim", "want LF002"}},
		{"newer-mark-removed", order, "only the mark that etcd was asked about is removed",
			[]edit{{historySQL, `ON k.resource_key = u.key COLLATE "C" AND k.token = u.token`, `ON k.resource_key = u.key COLLATE "C"`}},
			test{"fencing", "TestRetention_OvertakenByAClaim", "the mark of a held lock is 0"}},
		{"guard-of-new-rows", failClosed, "a guard asks for the key that a row had, too",
			[]edit{{guardSQL, "THEN '(TABLE new_rows UNION ALL TABLE old_rows)'", "THEN 'new_rows'"}},
			test{"fencing", "TestGuard", "update, the key"}},
		{"guard-of-no-tag", failClosed, "a guarded table asks for the lock of the row",
			[]edit{{guardSQL, "ELSIF v_pair.token IS NULL THEN", "ELSIF v_pair.token IS NULL THEN\n            CONTINUE;"}},
			test{"fencing", "TestGuard", `want "LF004"`}},
	}
}
