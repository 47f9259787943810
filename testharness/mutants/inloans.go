package main

// inLoans are the mutants of locks that sessions take in SQL, and of sessions at
// rest.
func inLoans() []mutant {
	return []mutant{
		{"loan-renewed", progress, "a lock that was taken in SQL is lost by who stops renewing it",
			[]edit{{"leases/lender.go", "	s.end(errLent)\n	s.settle()\n", ""}},
			test{"testharness/cases", "TestSQLLocks_ClientStandsStill", "lock_not_available"}},
		{"given-back-early", nothingLost, "such a lock is not given back while its holder's last statement may run",
			[]edit{{"proxy/giveback.go", "	if quiet || s.backendEnded {", "	if quiet || s.backendEnded || true {"}},
			test{"testharness/cases", "TestSQLLocks_SessionEnds", "locks in etcd: got [], want that"}},
		{"grant-believed", failClosed, "what a call says that no proxy has seen is no claim",
			[]edit{{"fencing/schema/locks.sql", "    RAISE EXCEPTION USING ERRCODE = 'LF007',", "    RETURN v_grant;\n    RAISE EXCEPTION USING ERRCODE = 'LF007',"}},
			test{"testharness/cases", "TestSQLLocks_Refused", "want LF007"}},
		{"closed-at-rest", progress, "whatever ends a session ends one at rest",
			[]edit{{"proxy/lobby/conn.go", "	c.closed = true\n	c.wake()\n", "	c.closed = true\n"}},
			test{"proxy/lobby", "TestConn_Rest", "not woken by a close"}},
		{"watch-kept", progress, "a session that waits keeps no other one waiting",
			[]edit{{"proxy/lobby/supervisor_linux.go", "		} else if s.within {\n			s.leave()\n", "		} else if s.within {\n"}},
			test{"proxy/lobby", "TestShift_Leave", "one waits for another"}},
		{"thread-kept", progress, "sessions that wait have no thread each",
			[]edit{{"proxy/lobby/shift_linux.go", "	s.mu.Unlock()\n	runtime.UnlockOSThread()\n", "	s.mu.Unlock()\n"}},
			test{"proxy/lobby", "TestShift_LeaveThread", "threads"}},
		{"waits-with-the-watch", progress, "a session that waits for replies hands the others on",
			[]edit{{"proxy/session.go", "		s.requesting.leave()\n		select {", "		select {"}},
			test{"proxy", "TestSession_WaitsAlone", "another session waits, too"}},
	}
}
