package sqlrewrite_test

import (
	"testing"

	"github.com/fenceproxy/fenceproxy/sqlrewrite"
)

func TestSplit_Commands(t *testing.T) {
	const (
		chain   = sqlrewrite.Chain
		alone   = sqlrewrite.NotInBlock
		inside  = sqlrewrite.NeedsBlock
		commits = sqlrewrite.MayCommit
		drops   = sqlrewrite.DropsPrepared
		tag     = sqlrewrite.TouchesTag
		parted  = sqlrewrite.MayNotInBlock
	)
	for _, c := range []struct {
		text  string
		class sqlrewrite.Class
		flags sqlrewrite.Flags
	}{
		{"BEGIN", sqlrewrite.Begin, 0},
		{"begin work isolation level serializable", sqlrewrite.Begin, 0},
		{"START TRANSACTION READ ONLY", sqlrewrite.Begin, 0},
		{"COMMIT", sqlrewrite.Commit, 0},
		{"END TRANSACTION", sqlrewrite.Commit, 0},
		{"COMMIT AND CHAIN", sqlrewrite.Commit, chain},
		{"COMMIT WORK AND NO CHAIN", sqlrewrite.Commit, 0},
		{"COMMIT PREPARED 'x'", sqlrewrite.MayWrite, alone},
		{"ROLLBACK", sqlrewrite.Rollback, 0},
		{"ABORT AND /* c */ CHAIN", sqlrewrite.Rollback, chain},
		{"ROLLBACK TRANSACTION AND CHAIN", sqlrewrite.Rollback, chain},
		{"ROLLBACK PREPARED 'x'", sqlrewrite.MayWrite, alone},
		{"ROLLBACK TO s", sqlrewrite.RollbackTo, inside},
		{"rollback work to savepoint s", sqlrewrite.RollbackTo, inside},
		{"ROLLBACK TRANSACTION TO chain", sqlrewrite.RollbackTo, inside},
		{"SAVEPOINT s", sqlrewrite.Savepoint, inside},
		{"SAVEPOINT to", sqlrewrite.Savepoint, inside},
		{"RELEASE SAVEPOINT s", sqlrewrite.Release, inside},
		{"PREPARE TRANSACTION 'x'", sqlrewrite.Prepare2PC, 0},
		{"PREPARE TRANSACTION /* c */ E'x'", sqlrewrite.Prepare2PC, 0},
		{"PREPARE transaction AS DELETE FROM t", sqlrewrite.Prepare, 0},
		{"PREPARE transaction (int) AS DELETE FROM t", sqlrewrite.Prepare, 0},
		{"PREPARE p AS INSERT INTO t VALUES ($1)", sqlrewrite.Prepare, 0},
		{"SET a = 1", sqlrewrite.SetOrShow, 0},
		{"SET LOCAL a TO 'b'", sqlrewrite.SetOrShow, 0},
		{"SET TRANSACTION ISOLATION LEVEL SERIALIZABLE", sqlrewrite.SetOrShow, 0},
		{"SET CONSTRAINTS ALL IMMEDIATE", sqlrewrite.MayWrite, inside},
		{"RESET a", sqlrewrite.SetOrShow, 0},
		{"RESET ALL", sqlrewrite.SetOrShow, tag},
		{"SHOW ALL", sqlrewrite.SetOrShow, 0},
		{"SET fence.key = 'x'", sqlrewrite.SetOrShow, tag},
		{"DISCARD ALL", sqlrewrite.Discard, drops | tag | alone},
		{"DISCARD PLANS", sqlrewrite.Discard, 0},
		{"DISCARD TEMPORARY", sqlrewrite.Discard, 0},
		{"DEALLOCATE ALL", sqlrewrite.Discard, drops},
		{"DEALLOCATE PREPARE p", sqlrewrite.Discard, drops},
		{"LOCK t", sqlrewrite.MayWrite, inside},
		{"DECLARE c CURSOR FOR SELECT 1", sqlrewrite.Read, inside},
		{"DECLARE c CURSOR FOR SELECT f()", sqlrewrite.MayWrite, inside},
		{"DECLARE c CURSOR WITH HOLD FOR SELECT 1", sqlrewrite.MayWrite, 0},
		{"CLOSE c", sqlrewrite.Read, 0},
		{"CALL p()", sqlrewrite.MayWrite, commits},
		{"DO $$ $$", sqlrewrite.MayWrite, commits},
		{"COPY t FROM STDIN", sqlrewrite.MayWrite, sqlrewrite.CopyIn},
		{"COPY t (a) FROM STDOUT", sqlrewrite.MayWrite, sqlrewrite.CopyIn},
		{"COPY t TO STDOUT", sqlrewrite.Read, sqlrewrite.CopyOut},
		{"COPY t TO STDIN", sqlrewrite.Read, sqlrewrite.CopyOut},
		{"COPY t.from TO STDOUT", sqlrewrite.Read, sqlrewrite.CopyOut},
		{"COPY t.to FROM STDIN", sqlrewrite.MayWrite, sqlrewrite.CopyIn},
		{"COPY t FROM PROGRAM 'stdin'", sqlrewrite.MayWrite, 0},
		{"COPY t FROM 'x' WITH (NULL stdin)", sqlrewrite.MayWrite, 0},
		{"COPY (SELECT a FROM t) TO STDOUT", sqlrewrite.Read, sqlrewrite.CopyOut},
		{"COPY (DELETE FROM t RETURNING 1) TO STDOUT", sqlrewrite.MayWrite, sqlrewrite.CopyOut},
		{"VACUUM t", sqlrewrite.MayWrite, alone},
		{"ANALYZE t", sqlrewrite.MayWrite, 0},
		{"CLUSTER", sqlrewrite.MayWrite, alone},
		{"CLUSTER VERBOSE", sqlrewrite.MayWrite, alone},
		{"CLUSTER (VERBOSE)", sqlrewrite.MayWrite, alone},
		{"CLUSTER t", sqlrewrite.MayWrite, parted},
		{"CLUSTER VERBOSE t", sqlrewrite.MayWrite, parted},
		{"CREATE DATABASE d", sqlrewrite.MayWrite, alone},
		{"DROP DATABASE d", sqlrewrite.MayWrite, alone},
		{"ALTER DATABASE d SET TABLESPACE s", sqlrewrite.MayWrite, alone},
		{"ALTER DATABASE d SET a = 1", sqlrewrite.MayWrite, 0},
		{"CREATE TABLESPACE s LOCATION '/x'", sqlrewrite.MayWrite, alone},
		{"DROP TABLESPACE s", sqlrewrite.MayWrite, alone},
		{"ALTER SYSTEM RESET ALL", sqlrewrite.MayWrite, alone},
		{"CREATE SUBSCRIPTION s CONNECTION '' PUBLICATION p", sqlrewrite.MayWrite, alone},
		{"DROP SUBSCRIPTION s", sqlrewrite.MayWrite, alone},
		{"ALTER SUBSCRIPTION s REFRESH PUBLICATION", sqlrewrite.MayWrite, alone},
		{"ALTER SUBSCRIPTION s ENABLE", sqlrewrite.MayWrite, 0},
		{"CREATE UNIQUE INDEX CONCURRENTLY ON t (a)", sqlrewrite.MayWrite, alone},
		{"CREATE INDEX ON t (a)", sqlrewrite.MayWrite, 0},
		{"DROP INDEX concurrently i", sqlrewrite.MayWrite, alone},
		{"REINDEX TABLE CONCURRENTLY t", sqlrewrite.MayWrite, alone},
		{"REINDEX (VERBOSE, CONCURRENTLY) TABLE t", sqlrewrite.MayWrite, alone},
		{"REINDEX SCHEMA s", sqlrewrite.MayWrite, alone},
		{"REINDEX (VERBOSE) DATABASE d", sqlrewrite.MayWrite, alone},
		{"REINDEX TABLE t", sqlrewrite.MayWrite, parted},
		{"ALTER TABLE t DETACH PARTITION p CONCURRENTLY", sqlrewrite.MayWrite, alone},
		{"REFRESH MATERIALIZED VIEW CONCURRENTLY v", sqlrewrite.MayWrite, 0},
		{"SELECT '\\'", sqlrewrite.Read, sqlrewrite.Backslash},
		{"SELECT E'\\''", sqlrewrite.Read, 0},
		{"(EXPLAIN DELETE FROM t", sqlrewrite.MayWrite, 0},
		{"(COMMIT)", sqlrewrite.MayWrite, 0},
		{"\"commit\"", sqlrewrite.MayWrite, 0},
		{"'x'", sqlrewrite.MayWrite, 0},
		{"EXPLAIN", sqlrewrite.MayWrite, 0},
		{"EXPLAIN ANALYZE CLOSE c", sqlrewrite.MayWrite, 0},
		{"EXPLAIN ANALYZE COMMIT", sqlrewrite.MayWrite, 0},
	} {
		got := one(t, c.text, sqlrewrite.Options{})
		if got.Class != c.class || got.Flags != c.flags {
			t.Errorf("%q: got %v [%v], want %v [%v]", c.text, got.Class, got.Flags, c.class, c.flags)
		}
	}
}

func TestSplit_Why(t *testing.T) {
	for _, c := range []struct {
		text   string
		reason sqlrewrite.Reason
		token  string
		opts   sqlrewrite.Options
	}{
		{"INSERT INTO t VALUES (1)", sqlrewrite.ReasonCommand, "INSERT", sqlrewrite.Options{}},
		{"SELECT 1", sqlrewrite.ReasonPlain, "SELECT", sqlrewrite.Options{}},
		{"((SELECT a))", sqlrewrite.ReasonPlain, "SELECT", sqlrewrite.Options{}},
		{"WITH d AS (Delete FROM t) SELECT nextval('s')", sqlrewrite.ReasonWord, "Delete", sqlrewrite.Options{}},
		{"SELECT lower(x), public . f (1)", sqlrewrite.ReasonCall, "f", sqlrewrite.Options{}},
		{"SELECT 1 FOR NO KEY UPDATE", sqlrewrite.ReasonLock, "FOR NO", sqlrewrite.Options{}},
		{"DECLARE c CURSOR WITH HOLD FOR SELECT 1", sqlrewrite.ReasonHold, "WITH HOLD", sqlrewrite.Options{}},
		{"COPY t FROM STDIN", sqlrewrite.ReasonCopy, "FROM", sqlrewrite.Options{}},
		{"COPY t TO '/x'", sqlrewrite.ReasonCopy, "'/x'", sqlrewrite.Options{}},
		{"EXPLAIN DELETE FROM t", sqlrewrite.ReasonNotRun, "EXPLAIN", sqlrewrite.Options{}},
		{"PREPARE p AS DELETE FROM t", sqlrewrite.ReasonNotRun, "PREPARE", sqlrewrite.Options{}},
		{"SELECT 1", sqlrewrite.ReasonOptions, "SELECT 1", sqlrewrite.Options{BackslashQuotes: true}},
	} {
		text := "; " + c.text + " ;"
		s := one(t, text, c.opts)
		if got := text[s.Why.Start:s.Why.End]; got != c.token || s.Why.Reason != c.reason {
			t.Errorf("%q: got %q (%v), want %q (%v)", c.text, got, s.Why.Reason, c.token, c.reason)
		}
	}
}
