package proxy_test

import (
	"bytes"
	"testing"

	"github.com/fenceproxy/fenceproxy/testharness/poll"
)

// once is P B E of a text, unnamed.
func once(sql string) []byte {
	return bytes.Join([][]byte{frame('P', "\x00"+sql+"\x00\x00\x00"), frame('B', "\x00\x00\x00\x00\x00\x00\x00\x00"), frame('E', "\x00\x00\x00\x00\x00")}, nil)
}

// What comes in the middle of a segment and is answered by a ReadyForQuery ends
// the transaction that was checked; what the segment goes on with is another,
// which a stale session can't commit.
func TestSession_StaleInOpenSegment(t *testing.T) {
	s := newStack(t, 2)
	syncs := frame('S', "")
	for key, c := range map[string]struct{ fresh, stale [][]byte }{
		"malformed": {
			[][]byte{once("INSERT INTO t VALUES (1, 'a')"), frame('Q', "SELECT 1\x00x")},
			[][]byte{once("INSERT INTO t VALUES (2, 'a')"), syncs},
		},
		"refused": {
			[][]byte{once("INSERT INTO t VALUES (1, 'a')"), frame('Q', "VACUUM\x00")},
			[][]byte{once("INSERT INTO t VALUES (2, 'a')"), syncs},
		},
		"unterminated": {
			[][]byte{once("INSERT INTO t VALUES (1, 'a')"), frame('Q', "SELECT 'x\x00")},
			[][]byte{once("INSERT INTO t VALUES (2, 'a')"), syncs},
		},
		"lock": {
			[][]byte{syncs},
			[][]byte{once("SELECT 1"), once("SELECT * FROM sneaky"), frame('Q', "LOCK TABLE t\x00"), syncs},
		},
		"implicit block": { // of PostgreSQL 18
			[][]byte{once("SHOW work_mem"), once("SHOW work_mem"), frame('Q', "SHOW work_mem\x00")},
			[][]byte{once("SELECT * FROM sneaky"), syncs},
		},
		"constraints": {
			[][]byte{syncs},
			[][]byte{once("SELECT * FROM sneaky"), frame('Q', "SET CONSTRAINTS ALL IMMEDIATE\x00"), syncs},
		},
	} {
		t.Run(key, func(t *testing.T) {
			s.holders.hold(key, 1)
			conn := s.connectRaw(key)
			if _, err := conn.Write(bytes.Join(c.fresh, nil)); err != nil {
				t.Fatal(err)
			}
			readToReady(t, conn)
			s.raise(1, key, 2)
			before := s.count("true")
			if _, err := conn.Write(bytes.Join(c.stale, nil)); err != nil {
				t.Fatal(err)
			}
			readToReady(t, conn)
			// What was behind is carried out when the session is over.
			if _, err := conn.Write(frame('X', "")); err != nil {
				t.Fatal(err)
			}
			poll.Until(t, "the session is over", func() bool {
				var n int
				err := s.admin.QueryRow(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'raw'").Scan(&n)
				return err == nil && n == 0
			})
			if got := s.count("true"); got != before {
				t.Errorf("rows after the claim was answered: %d, then %d", before, got)
			}
		})
	}
}

// A DO that was prepared may commit in the middle, also when a DEALLOCATE, of
// another name or one that failed, has made unsure whether it still stands.
func TestSession_CommitsBehindDeallocate(t *testing.T) {
	s := newStack(t, 1)
	s.holders.hold("k", 1)
	conn := s.connectRaw("k")
	for _, m := range [][]byte{
		append(frame('P', "d\x00DO $$ BEGIN COMMIT; INSERT INTO t VALUES (1, 'a'); END $$\x00\x00\x00"), frame('S', "")...),
		frame('Q', "DEALLOCATE nobody\x00"),
		bytes.Join([][]byte{frame('B', "\x00d\x00\x00\x00\x00\x00\x00\x00"), frame('E', "\x00\x00\x00\x00\x00"), frame('S', "")}, nil),
	} {
		if _, err := conn.Write(m); err != nil {
			t.Fatal(err)
		}
		readToReady(t, conn)
	}
	if got := s.count("true"); got != 0 {
		t.Error("a DO that commits has run")
	}
}
