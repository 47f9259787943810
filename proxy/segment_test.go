package proxy_test

import (
	"bytes"
	"testing"

	"github.com/jackc/pgx/v5/pgproto3"

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

// What a Bind has written is checked under the tag that it was written under,
// whatever takes the tag off behind it.
func TestSession_StaleBind(t *testing.T) {
	s := newStack(t, 2)
	s.exec(`CREATE FUNCTION inserts() RETURNS boolean LANGUAGE sql AS 'INSERT INTO t VALUES (1, ''a'') RETURNING true';
		CREATE FUNCTION allows(text) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN RETURN inserts(); END $$;
		CREATE DOMAIN setting AS text CHECK (allows(VALUE));
		CREATE FUNCTION constant() RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN RETURN inserts(); END $$`)
	var domain uint32
	if err := s.admin.QueryRow(t.Context(), "SELECT 'setting'::regtype::oid").Scan(&domain); err != nil {
		t.Fatal(err)
	}
	constant := one(&pgproto3.Parse{Query: "SELECT constant()"}, &pgproto3.Bind{DestinationPortal: "p"})
	for key, stale := range map[string][]pgproto3.FrontendMessage{
		"domain": {
			&pgproto3.Parse{Query: "SELECT set_config('fence.key', $1, false), set_config('fence.token', '', false)", ParameterOIDs: []uint32{domain}},
			&pgproto3.Bind{Parameters: [][]byte{{}}}, &pgproto3.Execute{}, &pgproto3.Sync{},
		},
		"reset":       join(constant, execute("RESET ALL"), syncs),
		"discard":     join(constant, execute("DISCARD ALL"), syncs),
		"query":       join(constant, one(query("RESET ALL")), syncs),
		"its discard": join(constant, one(query("DISCARD ALL")), syncs),
	} {
		t.Run(key, func(t *testing.T) {
			s.t = t
			s.exec("TRUNCATE t")
			s.holders.hold(key, 1)
			f := s.taggedFrontend(0, key, 1)
			s.raise(1, key, 2)
			f.send(stale...)
			got := f.rest()
			if rows := s.count("true"); rows != 0 {
				t.Errorf("rows: got %d, want 0 (%s)", rows, got)
			}
		})
	}
}

// A portal that was bound before the session became a tagged one, in the same
// segment, may run a CALL, which commits in the middle.
func TestSession_PortalOfUntaggedSegment(t *testing.T) {
	s := newStack(t, 1)
	s.exec(`CREATE PROCEDURE twice() LANGUAGE plpgsql AS $$ BEGIN INSERT INTO t VALUES (1, 'a'); COMMIT; INSERT INTO t VALUES (2, 'a'); END $$`)
	s.holders.hold("k", 1)
	f := s.frontend(s.addrs[0])
	f.send(join(
		one(&pgproto3.Parse{Query: "CALL twice()"}, &pgproto3.Bind{DestinationPortal: "p"}),
		execute("SELECT set_config('fence.key', 'k', false), set_config('fence.token', '1', false)"),
		one(&pgproto3.Execute{Portal: "p"}, &pgproto3.Sync{}))...)
	if got, want := f.ready(1), "SELECT 1 LF007 ZI"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got := s.count("true"); got != 0 {
		t.Errorf("rows: got %d, want 0", got)
	}
}
