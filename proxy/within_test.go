package proxy_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fenceproxy/fenceproxy/testharness/poll"
)

// A claim that comes between the check and the write of one statement: the
// write waits for something after its check has run. Either it ends before
// the claim is answered, or it leaves nothing.
func TestSession_ClaimBetweenCheckAndWrite(t *testing.T) {
	s := newStack(t, 2)
	const write = "INSERT INTO t SELECT 1, 'a' FROM pg_advisory_xact_lock(77)"
	n := 0
	for _, mode := range protocols {
		for _, via := range []int{0, 1} {
			for _, finishes := range []bool{false, true} {
				t.Run(fmt.Sprintf("%v/via%d/finishes=%v", mode, via, finishes), func(t *testing.T) {
					n++
					s.exec("TRUNCATE t")
					key := fmt.Sprintf("w%d", n)
					s.holders.hold(key, 1)
					c := s.session(0, key, 1)
					s.exec("SELECT pg_advisory_lock(77)")
					written := make(chan error, 1)
					go func() {
						err := mode.run(context.Background(), c, write)
						written <- err
					}()
					poll.Until(t, "the write waits behind its check", func() bool {
						var n int
						err := s.admin.QueryRow(t.Context(), "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted").Scan(&n)
						return err == nil && n == 1
					})
					claimed := make(chan struct{})
					go func() {
						defer close(claimed)
						s.holders.hold(key, 2)
						b, err := pgx.Connect(context.Background(), s.dsn(via))
						if err != nil {
							t.Error(err)
							return
						}
						defer b.Close(context.Background())
						if _, err := b.Exec(context.Background(), fmt.Sprintf("SET fence.key = '%s'; SET fence.token = 2", key)); err != nil {
							t.Error(err)
						}
					}()
					if finishes {
						s.exec("SELECT pg_advisory_unlock(77)")
					}
					<-claimed
					rows := s.count("true")
					if !finishes {
						s.exec("SELECT pg_advisory_unlock(77)")
					}
					err := <-written
					if got := s.count("true"); got != rows {
						t.Errorf("rows when the claim was answered: %d, then %d", rows, got)
					}
					switch {
					case err == nil && rows != 1:
						t.Error("an acknowledged write is not there")
					case err != nil && rows != 0:
						t.Errorf("a refused write (%v) is there", err)
					case err != nil && code(err) != "LF005" && code(err) != "LF001":
						t.Errorf("the write ended with %v", err)
					}
				})
			}
		}
	}
}

// CALL and DO may commit in the middle. In a tagged session they run as one
// transaction with the check.
func TestSession_ProceduresThatCommit(t *testing.T) {
	s := newStack(t, 2)
	s.exec(`CREATE PROCEDURE halves() LANGUAGE plpgsql AS $$ BEGIN
		INSERT INTO t VALUES (1, 'first'); COMMIT; INSERT INTO t VALUES (2, 'second'); END $$;
		CREATE PROCEDURE whole() LANGUAGE plpgsql AS $$ BEGIN INSERT INTO t SELECT 3 + count(*), 'whole' FROM t; END $$`)
	for i, c := range []struct {
		sql      string
		simple   string
		extended string
		rows     int // after both, when allowed
	}{
		{"CALL halves()", "LF007", "LF007", 0},
		{"DO $$ BEGIN INSERT INTO t VALUES (1, 'first'); COMMIT; INSERT INTO t VALUES (2, 'second'); END $$", "LF007", "LF007", 0},
		{"CALL whole()", "", "", 3},
	} {
		t.Run(c.sql, func(t *testing.T) {
			s.exec("TRUNCATE t")
			key := fmt.Sprintf("p%d", i)
			s.holders.hold(key, 1)
			conn := s.session(0, key, 1)
			for mode, want := range map[protocol]string{simple: c.simple, extended: c.extended, prepared: c.extended} {
				if err := mode.run(t.Context(), conn, c.sql); code(err) != want {
					t.Errorf("%v: got %v, want %q", mode, err, want)
				}
			}
			if got := s.count("true"); got != c.rows {
				t.Errorf("rows: got %d, want %d", got, c.rows)
			}
			// Without a tag it runs as ever, also in a session that had one.
			s.exec("TRUNCATE t")
			if _, err := conn.Exec(t.Context(), "RESET fence.key; RESET fence.token"); err != nil {
				t.Fatal(err)
			}
			for _, mode := range protocols {
				s.exec("TRUNCATE t")
				if err := mode.run(t.Context(), conn, c.sql); err != nil {
					t.Errorf("%v untagged: %v", mode, err)
				}
			}
		})
	}
}

// Statements that were prepared before the session was tagged are fenced
// after it was.
func TestSession_PreparedBeforeTheTag(t *testing.T) {
	s := newStack(t, 2)
	s.holders.hold("k", 1)
	c := s.session(0, "", 0)
	for name, sql := range map[string]string{"w": "INSERT INTO t VALUES (1, 'a')", "r": "SELECT * FROM sneaky", "b": "BEGIN", "e": "COMMIT"} {
		if _, err := c.Prepare(t.Context(), name, sql); err != nil {
			t.Fatal(err)
		}
	}
	s.tag(c, "k", 1)
	s.raise(1, "k", 2)
	for _, script := range [][]string{{"w"}, {"r"}, {"b", "w", "e"}, {"b", "r", "e"}} {
		var err error
		for _, name := range script {
			if _, e := c.Exec(t.Context(), name); e != nil && err == nil {
				err = e
			}
		}
		if got := code(err); got != "LF001" {
			t.Errorf("%v: got %v, want LF001", script, err)
		}
	}
	if got := s.count("true"); got != 0 {
		t.Errorf("rows left behind: %d", got)
	}
}

// Many statements in one pipeline, with and without Syncs between them.
func TestSession_Pipelines(t *testing.T) {
	s := newStack(t, 2)
	for _, syncs := range []bool{false, true} {
		t.Run(fmt.Sprintf("syncs=%v", syncs), func(t *testing.T) {
			s.exec("TRUNCATE t")
			key := t.Name()
			s.holders.hold(key, 1)
			c := s.session(0, key, 1)
			run := func(sql ...string) (codes []string) {
				p := c.PgConn().StartPipeline(t.Context())
				for _, q := range sql {
					p.SendQueryParams(q, nil, nil, nil, nil)
					if syncs {
						p.Sync()
					}
				}
				p.Sync()
				for {
					r, err := p.GetResults()
					if err == nil && r == nil {
						break
					}
					codes = append(codes, code(err))
					if len(codes) > 50 {
						t.Fatal("the pipeline does not end")
					}
				}
				p.Close()
				return codes
			}
			ok := run("BEGIN", "INSERT INTO t VALUES (1, 'a')", "SELECT 1", "COMMIT", "INSERT INTO t VALUES (2, 'a')", "BEGIN", "SELECT * FROM t", "COMMIT")
			for _, got := range ok {
				if got != "" {
					t.Errorf("got %v", ok)
					break
				}
			}
			if got := s.count("true"); got != 2 {
				t.Errorf("rows: got %d, want 2", got)
			}
			s.raise(1, key, 2)
			for _, sql := range [][]string{
				{"INSERT INTO t VALUES (3, 'b')", "INSERT INTO t VALUES (4, 'b')"},
				{"BEGIN", "INSERT INTO t VALUES (3, 'b')", "COMMIT", "INSERT INTO t VALUES (4, 'b')"},
				{"BEGIN", "SELECT * FROM sneaky", "COMMIT", "SELECT * FROM sneaky"},
				{"SELECT 1", "SELECT * FROM sneaky"},
				{"BEGIN", "ROLLBACK", "INSERT INTO t VALUES (3, 'b')"},
				{"SELECT 1/0", "BEGIN", "INSERT INTO t VALUES (3, 'b')"},
				{"SELECT 1/0", "INSERT INTO t VALUES (3, 'b')", "BEGIN", "INSERT INTO t VALUES (3, 'b')", "COMMIT"},
			} {
				codes := run(sql...)
				t.Logf("%v: %v", sql, codes)
				// What a failed pipeline was to leave open is not open: the next
				// write is checked afresh.
				if err := extended.run(t.Context(), c, "INSERT INTO t VALUES (5, 'b')"); err == nil {
					t.Errorf("a write after %v went through", sql)
				}
				if c.PgConn().TxStatus() != 'I' {
					c.Exec(t.Context(), "ROLLBACK")
				}
				if got := s.count("true"); got != 2 {
					t.Fatalf("%v left %d rows", sql, got-2)
				}
			}
		})
	}
}

// The claim against a session that sits in a transaction is answered well
// within the time that a claim may take at most.
func TestSession_ClaimIsBounded(t *testing.T) {
	s := newStack(t, 2)
	s.holders.hold("k", 1)
	c := s.session(0, "k", 1)
	if _, err := c.Exec(t.Context(), "BEGIN; INSERT INTO t VALUES (1, 'a')"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	s.holders.hold("k", 2)
	b := s.session(1, "", 0)
	began := time.Now()
	if _, err := b.Exec(ctx, "SET fence.key = 'k'; SET fence.token = 2"); err != nil {
		t.Fatal(err)
	}
	t.Logf("answered after %v", time.Since(began))
}
