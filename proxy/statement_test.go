package proxy_test

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fenceproxy/fenceproxy/testharness/poll"
)

// A step of a script: a statement and the SQLSTATE that it must end with.
// "!" raises the key's token through another proxy instead.
type step struct{ sql, want string }

// Stale writes in every corner of a transaction's shape. Each script runs
// with a fresh key in a session that starts with its current token; at "!"
// the next holder claims. No row but those of committed current work is left.
func TestSession_StaleShapes(t *testing.T) {
	s := newStack(t, 2)
	const raise = "!"
	for _, c := range []struct {
		name  string
		steps []step
		rows  int
	}{
		{"second transaction of one text", []step{{raise, ""}, {"INSERT INTO t VALUES (1,'a'); COMMIT; INSERT INTO t VALUES (2,'b')", "LF001"}}, 0},
		{"block in one text", []step{{raise, ""}, {"BEGIN; INSERT INTO t VALUES (1,'a'); COMMIT", "LF001"}, {"ROLLBACK", ""}}, 0},
		{"write behind a read in one text", []step{{raise, ""}, {"SELECT 1; SELECT * FROM sneaky; SELECT 2", "LF001"}}, 0},
		{"write behind a read, committed in the text", []step{{raise, ""}, {"SELECT * FROM sneaky; COMMIT; SELECT 1", "LF001"}}, 0},
		{"and chain", []step{{"BEGIN", ""}, {"INSERT INTO t VALUES (1,'a')", ""}, {"COMMIT AND CHAIN", ""}, {raise, ""}, {"INSERT INTO t VALUES (2,'b')", "LF001"}, {"COMMIT", ""}}, 1},
		{"rollback and chain", []step{{"BEGIN", ""}, {"INSERT INTO t VALUES (1,'a')", ""}, {"ROLLBACK AND CHAIN", ""}, {raise, ""}, {"INSERT INTO t VALUES (2,'b')", "LF001"}, {"ROLLBACK", ""}}, 0},
		{"the share lock goes with the savepoint", []step{{"BEGIN", ""}, {"SELECT 1", ""}, {"SAVEPOINT a", ""}, {"INSERT INTO t VALUES (1,'a')", ""}, {"ROLLBACK TO a", ""}, {"INSERT INTO t VALUES (2,'b')", ""}, {"COMMIT", ""}}, 1},
		{"the check comes before the savepoint", []step{{"BEGIN", ""}, {"SAVEPOINT a", ""}, {"INSERT INTO t VALUES (1,'a')", ""}, {"ROLLBACK TO a", ""}, {raise, ""}, {"INSERT INTO t VALUES (2,'b')", "LF005"}}, 0},
		{"repeatable read", []step{{"BEGIN ISOLATION LEVEL REPEATABLE READ", ""}, {"SELECT * FROM t", ""}, {raise, ""}, {"INSERT INTO t VALUES (1,'a')", "LF001"}, {"ROLLBACK", ""}}, 0},
		{"serializable", []step{{"BEGIN ISOLATION LEVEL SERIALIZABLE", ""}, {"SELECT * FROM t", ""}, {raise, ""}, {"INSERT INTO t VALUES (1,'a')", "LF001"}, {"ROLLBACK", ""}}, 0},
		{"late check at commit", []step{{"BEGIN", ""}, {"SELECT 1", ""}, {raise, ""}, {"SELECT * FROM sneaky", ""}, {"COMMIT", "LF001"}, {"SELECT 1", ""}}, 0},
		{"read only", []step{{raise, ""}, {"BEGIN READ ONLY", ""}, {"SELECT * FROM t", ""}, {"COMMIT", ""}}, 0},
		{"prepared in SQL", []step{{"PREPARE p AS INSERT INTO t VALUES (1,'a')", ""}, {raise, ""}, {"EXECUTE p", "LF001"}}, 0},
		{"cursor over a writing function", []step{{"BEGIN", ""}, {"DECLARE c CURSOR FOR SELECT * FROM sneaky", ""}, {raise, ""}, {"FETCH c", "LF001"}, {"COMMIT", ""}}, 0},
		{"cursor with hold", []step{{raise, ""}, {"BEGIN", ""}, {"DECLARE c CURSOR WITH HOLD FOR SELECT * FROM sneaky", "LF001"}, {"COMMIT", ""}}, 0},
		{"explain analyze", []step{{raise, ""}, {"EXPLAIN ANALYZE INSERT INTO t VALUES (1,'a')", "LF001"}}, 0},
		{"do in a block", []step{{"BEGIN", ""}, {raise, ""}, {"DO $$ BEGIN INSERT INTO t VALUES (1,'a'); END $$", "LF001"}, {"ROLLBACK", ""}}, 0},
		{"ddl", []step{{raise, ""}, {"CREATE TABLE made (x int)", "LF001"}}, 0},
		{"quotes turned round", []step{{"SET standard_conforming_strings = off", ""}, {raise, ""}, {`SELECT '\'; DELETE FROM t --'`, "LF001"}}, 0},
		{"two phases", []step{{"BEGIN", ""}, {"INSERT INTO t VALUES (1,'a')", ""}, {"PREPARE TRANSACTION 'x'", "LF007"}, {"ROLLBACK", ""}}, 0},
		{"vacuum", []step{{"VACUUM t", "LF007"}, {"RESET fence.key", ""}, {"RESET fence.token", ""}, {"VACUUM t", ""}}, 0},
		{"tag taken away", []step{{"RESET fence.key; RESET fence.token", ""}, {raise, ""}, {"INSERT INTO t VALUES (1,'a')", ""}}, 1},
		{"discard all", []step{{"INSERT INTO t VALUES (1,'a')", ""}, {"DISCARD ALL", ""}, {"INSERT INTO t VALUES (2,'a')", ""}}, 2},
		{"deallocate all", []step{{"INSERT INTO t VALUES (1,'a')", ""}, {"DEALLOCATE ALL", ""}, {"INSERT INTO t VALUES (2,'a')", ""}, {raise, ""}, {"INSERT INTO t VALUES (3,'a')", "LF001"}}, 2},
		{"lock outside a block", []step{{"LOCK TABLE t", "25P01"}, {"SAVEPOINT a", "25P01"}, {"DECLARE c CURSOR FOR SELECT 1", "25P01"}}, 0},
		{"failed block", []step{{"BEGIN", ""}, {"SELECT 1/0", "22012"}, {"SELECT 1", "25P02"}, {"INSERT INTO t VALUES (1,'a')", "25P02"}, {"COMMIT", ""}, {"SELECT 1", ""}}, 0},
		{"syntax errors", []step{{"SELECT 'unterminated", "42601"}, {"SELECT /* open", "42601"}, {"SELEC 1", "42601"}, {"INSERT INTO t VALUES (1,'a')", ""}}, 1},
	} {
		for _, mode := range protocols {
			t.Run(c.name+"/"+string(mode), func(t *testing.T) {
				s.exec("TRUNCATE t")
				key := t.Name()
				s.holders.hold(key, 1)
				conn := s.session(0, key, 1)
				for _, st := range c.steps {
					if st.sql == raise {
						s.raise(1, key, 2)
						continue
					}
					err := runIn(t, conn, st.sql, mode)
					if got := code(err); got != st.want {
						t.Errorf("%s: got %q, want %q (%v)", st.sql, got, st.want, err)
					}
				}
				if got := s.count("true"); got != c.rows {
					t.Errorf("rows: got %d, want %d", got, c.rows)
				}
			})
		}
	}
}

// Error positions point into the text that the client sent.
func TestSession_ErrorPosition(t *testing.T) {
	s := newStack(t, 1)
	s.holders.hold("k", 1)
	for _, sql := range []string{
		"INSERT INTO t VALUES (1, nonsense)", "UPDATE t SET v = 'ü' WHERE nonsense = 1",
		"SELECT nonsense", "SELECT 1; INSERT INTO t VALUES (nonsense)", "SELEC", "SELECT 'ü', ~~~ 1", "SELECT 'open",
	} {
		t.Run(sql, func(t *testing.T) {
			_, plain := s.session(0, "", 0).Exec(t.Context(), sql)
			_, tagged := s.session(0, "k", 1).Exec(t.Context(), sql)
			want, got := fmt.Sprintf("%+v", pgError(plain)), fmt.Sprintf("%+v", pgError(tagged))
			if got != want {
				t.Errorf("got  %s\nwant %s", got, want)
			}
		})
	}
}

func TestSession_Copy(t *testing.T) {
	s := newStack(t, 2)
	for _, tagged := range []bool{false, true} {
		t.Run(fmt.Sprintf("tagged=%v", tagged), func(t *testing.T) {
			s.exec("TRUNCATE t")
			key := t.Name()
			s.holders.hold(key, 1)
			c := s.session(0, "", 0)
			if tagged {
				s.tag(c, key, 1)
			}
			var data bytes.Buffer
			for i := range 100_000 {
				fmt.Fprintf(&data, "%d\tvalue\n", i)
			}
			want := data.String()
			if _, err := c.PgConn().CopyFrom(t.Context(), &data, "COPY t FROM STDIN"); err != nil {
				t.Fatal(err)
			}
			var out bytes.Buffer
			if _, err := c.PgConn().CopyTo(t.Context(), &out, "COPY (SELECT * FROM t ORDER BY id) TO STDOUT"); err != nil {
				t.Fatal(err)
			}
			if out.String() != want {
				t.Errorf("got %d bytes back, want %d", out.Len(), len(want))
			}
			if _, err := c.PgConn().CopyFrom(t.Context(), strings.NewReader("1\ta\n"), "COPY nowhere FROM STDIN"); code(err) != "42P01" {
				t.Errorf("missing table: got %v", err)
			}
			if _, err := c.CopyFrom(t.Context(), pgx.Identifier{"t"}, []string{"id", "v"}, pgx.CopyFromRows([][]any{{100_001, "b"}})); err != nil {
				t.Errorf("binary: %v", err)
			}
			if !tagged {
				return
			}
			s.raise(1, key, 2)
			before := s.count("true")
			if _, err := c.PgConn().CopyFrom(t.Context(), strings.NewReader("200000\ta\n"), "COPY t FROM STDIN"); code(err) != "LF001" {
				t.Errorf("stale COPY: got %v, want LF001", err)
			}
			if got := s.count("true"); got != before {
				t.Errorf("stale rows: %d", got-before)
			}
		})
	}
}

// A copy that is under way when the next holder claims is ended, and leaves
// no row.
func TestSession_CopyEvicted(t *testing.T) {
	s := newStack(t, 2)
	for via := range 2 {
		t.Run(fmt.Sprintf("via%d", via), func(t *testing.T) {
			key := t.Name()
			s.holders.hold(key, 1)
			c := s.session(0, key, 1)
			started, release := make(chan struct{}), make(chan struct{})
			r := readerFunc(func() func([]byte) (int, error) {
				n := 0
				return func(p []byte) (int, error) {
					n++
					if n == 3 {
						close(started)
						<-release
					}
					if n > 4 {
						return 0, context.Canceled
					}
					return copy(p, fmt.Sprintf("%d\tx\n", n)), nil
				}
			}())
			done := make(chan error, 1)
			go func() {
				_, err := c.PgConn().CopyFrom(context.Background(), r, "COPY t FROM STDIN")
				done <- err
			}()
			<-started
			poll.Until(t, "the copy", func() bool {
				var n int
				err := s.admin.QueryRow(t.Context(), "SELECT count(*) FROM pg_stat_progress_copy").Scan(&n)
				return err == nil && n == 1
			})
			s.raise(via, key, 2)
			close(release)
			if err := <-done; code(err) != "LF005" {
				t.Errorf("got %v, want LF005", err)
			}
			if got := s.count("true"); got != 0 {
				t.Errorf("rows left behind: %d", got)
			}
		})
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// A database without the schema says what to run.
func TestSession_NotInstalled(t *testing.T) {
	s := newStack(t, 1)
	s.exec("CREATE DATABASE bare")
	s.holders.hold("k", 1)
	c := s.connect(strings.Replace(s.dsn(0), "/postgres?", "/bare?", 1))
	_, err := c.Exec(t.Context(), "SET fence.key = 'k'; SET fence.token = 1")
	if got, want := code(err), "3F000"; got != want {
		t.Errorf("got %s, want %s (%v)", got, want, err)
	}
	if e := pgError(err); e == nil || !strings.Contains(e.Hint, "fenceproxy init") || !strings.Contains(e.Message+e.Hint, "bare") {
		t.Errorf("the error does not name the mend: %+v", e)
	}
}

// Texts that could name a setting behind escapes, and don't, in a session
// without a tag and a database without schema fence.
func TestSession_DoubtfulTexts(t *testing.T) {
	s := newStack(t, 1)
	s.exec("CREATE DATABASE bare")
	dsn := strings.Replace(s.dsn(0), "/postgres?", "/bare?", 1)
	for _, c := range []struct {
		name  string
		steps []step
	}{
		{"escape character of its own", []step{{"INSERT INTO t SELECT 1, U&'d!0061t' UESCAPE '!'", ""}, {"INSERT INTO t VALUES (2, 'b')", ""}}},
		{"names in code", []step{{`DO $$ BEGIN PERFORM '\x66656e6365'::bytea; END $$`, ""}, {"INSERT INTO t VALUES (2, 'b')", ""}}},
		{"in a block", []step{{"BEGIN", ""}, {"INSERT INTO t SELECT 1, U&'d!0061t' UESCAPE '!'", ""}, {"SAVEPOINT a", ""}, {"UPDATE t SET v = 'c'", ""}, {"COMMIT", ""}}},
		{"not in a transaction", []step{{"SELECT U&'!0061' UESCAPE '!'", ""}, {"VACUUM t", ""}}},
		{"quotes turned round", []step{{"SET standard_conforming_strings = off", ""}, {"SELECT U&'!0061' UESCAPE '!'", "0A000"}, {"INSERT INTO t VALUES (1, 'b')", ""}}},
	} {
		for _, mode := range protocols {
			t.Run(c.name+"/"+string(mode), func(t *testing.T) {
				conn := s.connect(dsn)
				if _, err := conn.Exec(t.Context(), "DROP TABLE IF EXISTS t; CREATE TABLE t (id int, v text)"); err != nil {
					t.Fatal(err)
				}
				for _, st := range c.steps {
					if got := code(mode.run(t.Context(), conn, st.sql)); got != st.want {
						t.Errorf("%s: got %q, want %q", st.sql, got, st.want)
					}
				}
			})
		}
	}
}

// A tag that a text sets behind escapes is checked by the statements behind it,
// though the session had none before.
func TestSession_DoubtfulTag(t *testing.T) {
	s := newStack(t, 1)
	const tag = `DO E'BEGIN SET \x66ence.key = k; SET \x66ence.token = 1; END'`
	for _, write := range []string{"INSERT INTO t VALUES (1, 'a')", "SELECT * FROM sneaky"} {
		conn := s.session(0, "", 0)
		if got, want := code(simple.run(t.Context(), conn, tag+"; "+write)), "LF002"; got != want {
			t.Errorf("%s in one text: got %q, want %s", write, got, want)
		}
		var segment pgconn.Batch
		segment.ExecParams(tag, nil, nil, nil, nil)
		segment.ExecParams(write, nil, nil, nil, nil)
		conn = s.session(0, "", 0)
		_, err := conn.PgConn().ExecBatch(t.Context(), &segment).ReadAll()
		if got, want := code(err), "LF002"; got != want {
			t.Errorf("%s in one segment: got %q, want %s", write, got, want)
		}
	}
	if n := s.count("true"); n != 0 {
		t.Errorf("got %d rows, want none", n)
	}
}
