package main

const (
	claimerGo  = "fencing/claimer.go"
	blockersGo = "fencing/blockers.go"
)

// inClaims are the mutants of how a claim is carried out.
func inClaims() []mutant {
	return []mutant{
		{"answer-before-commit", readBarrier, "a claim is answered after its mark was raised", []edit{{claimerGo,
			"	defer cancel()\n	for range raiseTries {",
			"	raised := make(chan struct{})\n	go func() {\n		defer close(raised)\n		defer cancel()\n		_, _ = c.raise(ctx, database, p, v, &ClaimReport{})\n	}()\n" +
				"	select {\n	case <-raised:\n	case <-time.After(100 * time.Millisecond):\n	}\n	if v.Revision > 0 {\n		return OutcomeRaised, nil\n	}\n	for range raiseTries {"}},
			test{"fencing", "TestClaimer_WaitsForCheckedTransactions", "answered early"}},
		{"no-verify", noPoisoning, "etcd is asked whether the token is the holder's", []edit{
			{claimerGo, "	if err == nil {\n		return v, nil\n	}\n	var refusal *Error",
				"	if v.Revision = max(v.Revision, int64(p.Token)); err == nil || v.Cluster != \"\" {\n		return v, nil\n	}\n	var refusal *Error"},
			{"leases/authority.go", "return fencing.Verification{}, q.refuse(key, token)", "return fencing.Verification{Cluster: q.cluster, Revision: q.revision}, q.refuse(key, token)"}},
			test{"fencing", "TestClaimer_Outcomes", "a waiter's token"}},
		{"waiter-accepted", noPoisoning, "only the first in line is the holder",
			[]edit{{"leases/authority.go", "if holder == nil || holder.token != token {", "if holder == nil || q.find(token) < 0 {"}},
			test{"leases", "TestAuthority_Verify_Refuses", "got <nil>, want a refusal"}},
		{"serializable-verify", noPoisoning, "etcd is asked with a linearizable read",
			[]edit{{"leases/queue.go", "kv.Get(ctx, lineDir(lockPrefix), clientv3.WithPrefix())", "kv.Get(ctx, lineDir(lockPrefix), clientv3.WithPrefix(), clientv3.WithSerializable())"}},
			test{"leases", "TestAuthority_Verify_AsksOnce", "want a linearizable range"}},
		{"serializable-together", noPoisoning, "several questions to etcd in one request are linearizable too",
			[]edit{{"leases/queue.go", "clientv3.OpGet(lineDir(lockPrefix), clientv3.WithPrefix())", "clientv3.OpGet(lineDir(lockPrefix), clientv3.WithPrefix(), clientv3.WithSerializable())"}},
			test{"leases", "TestAuthority_Verify_Together", "want linearizable ranges"}},
		{"answer-kept", noPoisoning, "etcd's answer is never older than the question", []edit{
			{"leases/readers.go", "	waiting  []*read // by when they came\n", "	waiting  []*read // by when they came\n	last     sync.Map\n"},
			{"leases/readers.go", "		return readQueue(ctx, r.client, lockPrefix)\n	case len(batch) > 1:",
				"		line, err := readQueue(ctx, r.client, lockPrefix)\n		if err == nil {\n			r.last.Store(lockPrefix, line)\n		}\n		return line, err\n	case len(batch) > 1:"},
			{"leases/readers.go", "	batch := r.enter(mine)\n",
				"	if kept, ok := r.last.LoadAndDelete(lockPrefix); ok {\n		return kept.(*queue), nil\n	}\n	batch := r.enter(mine)\n"}},
			test{"leases", "TestAuthority_Verify_TogetherOrder", "confirmed later"}},
		{"nested-accepted", noPoisoning, "a lock further down is nobody in this line",
			[]edit{{"leases/queue.go", `if strings.Contains(name, "/") {`, `if strings.Contains(name, "//") {`}},
			test{"leases", "TestAuthority_Verify_Nested", "got <nil>, want a refusal"}},
		{"etcd-away-accepted", failClosed, "a claim that can't be verified is refused", []edit{{claimerGo,
			"	if errors.As(err, &refusal) {\n		return v, refusal\n	}",
			"	if errors.As(err, &refusal) && refusal.Code != CodeUnverified {\n		return v, refusal\n	} else if refusal != nil {\n		v.Revision = max(v.Revision, int64(p.Token))\n		return v, nil\n	}"}},
			test{"fencing", "TestClaimer_Outcomes", `want "LF003"`}},
		{"cache-outlives-failover", durable, "what was verified counts on the same timeline only",
			[]edit{{claimerGo, "case here != where || !m.Comparable", "case here.System != where.System || !m.Comparable"}},
			test{"fencing", "TestClaimer_NewTimeline", "got <nil>, want LF003"}},
		{"broken-off-accepted", durable, "a claim whose wait for the standby was broken off is not answered",
			[]edit{{"fencing/mark.go", "if warning, ok := data[warned].(string); ok {", "if warning, ok := data[warned].(string); ok && warning == \"\" {"}},
			test{"fencing", "TestClaimer_BrokenOffCommit", "got <nil>, want LF003"}},
		{"no-time-outs", progress, "a claim whose proxy is gone ends by PostgreSQL's own time-outs",
			[]edit{{"fencing/mark.go", "max(limit*9/10, time.Millisecond)", "max(limit*900, time.Millisecond)"}},
			test{"fencing", "TestClaimer_OutlivesItsProxy", "never came"}},
		{"another-etcd-accepted", noPoisoning, "marks and tokens are of one etcd cluster",
			[]edit{{claimSQL, "ELSIF v_cluster <> p_cluster THEN", "ELSIF false THEN"}},
			test{"fencing", "TestClaimer_Lineage", "got <nil>, want LF006"}},
		{"revision-may-fall", noPoisoning, "etcd's revision never falls below a mark",
			[]edit{{claimSQL, "ELSIF highest > p_revision THEN", "ELSIF false THEN"}},
			test{"fencing", "TestClaimer_Lineage", "got <nil>, want LF006"}},
		{"younger-is-replaced", progress, "a mark that is younger than the verification is no alarm: it is verified again", []edit{
			{claimerGo, "		case outcomeForeign:",
				"		case outcomeBehind:\n			return OutcomeRefused, lineage(p, \"etcd is at revision %d, and was at %d before\", v.Revision, r.highest)\n		case outcomeForeign:"},
			{claimerGo, "		case outcomeStale, outcomeBehind, outcomeReplaced:", "		case outcomeStale, outcomeReplaced:"}},
			test{"fencing", "TestClaimer_Lineage", "etcd is at revision 10, and was at 11"}},
		{"former-holder-releases", progress, "a former holder's release leaves the lock alone",
			[]edit{{"leases/lease.go", "resp, err := client.Txn(ctx).If(own)", "_ = own\n	resp, err := client.Txn(ctx)"}},
			test{"leases", "TestLease_Release_SameName", "deleted somebody else's"}},
		{"nothing-known", etcdAway, "a holder that was verified is not verified again",
			[]edit{{claimerGo, "	where, ok := c.known.get(database, p)\n	if !ok {", "	where, ok := c.known.get(database, p)\n	if ok = false; !ok {"}},
			test{"proxy", "TestSession_EtcdAway", "etcd is away"}},
		{"nobody-ended", progress, "what blocks a claim is ended",
			[]edit{{blockersGo, "return b.PID != 0 && (", "return false && b.PID != 0 && ("}},
			test{"fencing", "TestClaimer_EndsStaleTransactions", "claim_timeout"}},
		{"no-watch", progress, "a claim looks at what blocks it again and again",
			[]edit{{"fencing/raise.go", "		look.Reset(watchEvery)\n", "		look.Reset(c.ClaimTimeout)\n"}},
			test{"fencing", "TestClaimer_EndsStaleTransactions", "claim_timeout"}},
		{"claims-end-claims", progress, "one claim never ends another that will be answered",
			[]edit{
				{blockersGo, "(!b.Claim || b.forsaken()) && b.BackendType", "b.BackendType"},
				{blockersGo, "if b.forsaken() {", "if false {"}},
			test{"fencing", "TestClaimer_NeverEndsAClaim", "superseded by 43"}},
		{"forsaken-claim-left", progress, "a claim whose commit doesn't arrive is ended",
			[]edit{{blockersGo, "(!b.Claim || b.forsaken()) && b.BackendType", "!b.Claim && b.BackendType"}},
			test{"fencing", "TestClaimer_EndsAForsakenClaim", "claim_timeout"}},
		{"unreplicated-ended", nothingLost, "a commit that waits for its standby is never ended", []edit{
			{blockersGo, ` && b.WaitEvent != waitSyncRep`, ``},
			{blockersGo, "a.backend_type = 'client backend' AND a.wait_event IS DISTINCT FROM $3", "a.backend_type = 'client backend' AND a.wait_event IS DISTINCT FROM $3 || '?'"}},
			test{"fencing", "TestClaimer_SparesCommitsThatWaitForAStandby", "waiting for a synchronous standby"}},
		{"later-holder-ended", nothingLost, "only what is below the claim's token is ended (`<` becomes `<=`, and it is not told that it was overtaken)", []edit{
			{blockersGo, "NOT m.comparable OR m.token < $5", "NOT m.comparable OR m.token < $5 + 10"},
			{blockersGo, "m.token >= $2 AND", "m.token > $2 + 10 AND"}},
			test{"fencing", "TestClaimer_NeverEndsALaterHolder", "administrator command"}},
	}
}
