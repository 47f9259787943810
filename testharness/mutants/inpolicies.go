package main

const (
	watchedGo = "proxy/watched.go"
	watchGo   = "leases/watch.go"
)

// inPolicies are the mutants of what stricter policies than the default add.
func inPolicies() []mutant {
	return []mutant{
		{"untagged-unseen", failClosed, "where untagged writes are rejected, what wrote unseen needs a tag",
			[]edit{{"proxy/inject.go", "requiredLateSQL = requiredSQL +", "requiredLateSQL = earlySQL +"}},
			test{"proxy", "TestSession_RejectsUntagged", `want "LF004"`}},
		{"untagged-uncovered", failClosed, "where untagged writes are rejected, what may write is checked at its end at least",
			[]edit{{"proxy/txn.go", "	if flags&doubtful != 0 {\n		t.bound()\n", "	if flags&doubtful != 0 {\n"}},
			test{"proxy", "TestSession_RejectsUntagged", `want "LF004"`}},
		{"laxer-by-name", failClosed, "a role that has another name at its login has the stricter policy of both",
			[]edit{{"proxy/policy.go", "return Policy{max(p.UntaggedWrites, q.UntaggedWrites), max(p.Fencing, q.Fencing)}", "return p"}},
			test{"proxy", "TestSession_PolicyOfOtherName", `want "LF004"`}},
		{"lost-lock-commits", failClosed, "a transaction that was checked doesn't commit when its lock is seen to be lost",
			[]edit{{watchedGo, "stale != nil && t.checked {", "false && t.checked {"}},
			test{"proxy", "TestSession_LostInTransaction", `want "LF001"`}},
		{"untagging-commits", failClosed, "nor after its tag was taken off",
			[]edit{{watchedGo, "t.checked, t.uncovered, t.ran, t.guess = false, true, true, false", "t.checked, t.uncovered, t.ran, t.guess = false, true, false, false"}},
			test{"proxy", "TestSession_LostInTransaction", `want "LF001"`}},
		{"watch-from-now", failClosed, "a watch that begins anew has every lock looked at",
			[]edit{{watchGo, "	if resp.Created {", "	if false {"}},
			test{"leases", "TestWatch_Compaction", "is seen with holder"}},
		{"cursor-of-code", failClosed, "a cursor WITH HOLD that code opened needs a tag, as its query runs at COMMIT",
			[]edit{{"proxy/inject.go", `willWriteSQL    = "(" + wroteSQL + " OR EXISTS`, `willWriteSQL    = "(" + wroteSQL + " OR false AND EXISTS`}},
			test{"proxy", "TestSession_RejectsWhatIsWide", "rows and databases left behind"}},
		{"forgotten-name", failClosed, "a name that the proxy has lost sight of may stand for anything",
			[]edit{{"proxy/statements.go", "			n.leave(name, st)\n", ""}},
			test{"proxy", "TestSession_RejectsWhatIsWide", "rows and databases left behind"}},
		{"portal-taken", failClosed, "what was to close a portal, or take its place, may not have been carried out",
			[]edit{{"proxy/statements.go", "	p.wide = p.wide || p.taken > 0\n", ""}},
			test{"proxy", "TestSession_RejectsWhatIsWide", "rows and databases left behind"}},
		{"news-during-a-look", failClosed, "a holder who comes while its lock is looked at is looked at again",
			[]edit{{watchGo, " || f.looking)", ")"}},
			test{"leases", "TestWatch_TakenDuringLook", "is seen with holder"}},
		{"lagging-watch-refuses", etcdAway, "what was seen before a token's time refuses nobody",
			[]edit{{"fencing/sighting.go", "s.Holder == 0 && s.Revision >= int64(token)", "s.Holder == 0"}},
			test{"proxy", "TestSession_FencedBySight", `want ""`}},
	}
}
