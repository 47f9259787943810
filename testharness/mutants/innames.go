package main

// inNames are the mutants of what a proxy knows of statements and portals, and
// of the answers that it owes.
func inNames() []mutant {
	const extendedGo = "proxy/extended.go"
	return []mutant{
		{"confirmed-by-name", failClosed, "what runs under the name of a prepared statement is checked as what may stand there by now",
			[]edit{{extendedGo, "	if st.known && st.named {\n		s.txn.doubt", "	if false {\n		s.txn.doubt"}},
			test{"proxy", "TestSession_StaleUnderName", "rows: got 1"}},
		{"begin-by-name", failClosed, "a BEGIN under a name is confirmed to be one",
			[]edit{{extendedGo, "	if st.named && confirmed(st.class, within) {", "	if false {"}},
			test{"proxy", "TestSession_StaleUnderName", "rows: got 1"}},
		{"portal-unseen", failClosed, "a portal that was bound before the session was tagged may run anything",
			[]edit{{claimGo, "s.portals.forgot = true", "s.portals.forgot = false"}},
			test{"proxy", "TestSession_PortalOfUntaggedSegment", "LF007"}},
		{"bind-unchecked", failClosed, "what a Bind may have written is checked before the tag changes",
			[]edit{{"proxy/statements.go", "slices.ContainsFunc(st.types, foreign)", "slices.ContainsFunc(st.types[:0], foreign)"}},
			test{"proxy", "TestSession_StaleBind", "rows: got 1"}},
		{"discard-unchecked", failClosed, "a DISCARD ALL comes behind the check of what ran in its segment",
			[]edit{{"proxy/query.go", "	if alone || unplanned {", "	if alone {"}},
			test{"proxy", "TestSession_StaleBind", "rows: got 1"}},
		{"copy-cut-off", nothingLost, "an evicted session ends the COPY that it has begun",
			[]edit{{"proxy/ending.go", "		if err := s.awaitWord(); err != nil {\n			return err\n		}\n", ""}},
			test{"proxy", "TestSession_EvictedBeforeCopy", "timeout"}},
		{"answers-cut-off", nothingLost, "a session that is ended for a tag in a long text answers what was asked before",
			[]edit{{"proxy/session.go", "		if errors.Is(err, errHiddenTag) {", "		if false {"}},
			test{"proxy", "TestSession_TagInLongText", "want SELECT 1"}},
	}
}
