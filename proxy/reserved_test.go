package proxy_test

import (
	"bytes"
	"testing"
)

// A client that makes a statement of the proxy's own name, by the protocol or
// in SQL, doesn't get what it made in place of a check.
func TestSession_ReservedNames(t *testing.T) {
	s := newStack(t, 2)
	const early, late = "fenceproxy.early", "fenceproxy.late"
	sync := frame('S', "")
	replace := func(name string) []byte {
		return bytes.Join([][]byte{frame('C', "S"+name+"\x00"), frame('P', name+"\x00SELECT 1\x00\x00\x00")}, nil)
	}
	hidden := []byte("SELECT * FROM sneaky")
	for key, c := range map[string]struct {
		before [][]byte // under the tag that is current
		stale  [][]byte
	}{
		"protocol": {
			[][]byte{once("INSERT INTO t VALUES (1, 'a')"), sync, replace(early), replace(late), sync},
			[][]byte{once("INSERT INTO t VALUES (2, 'a')"), sync},
		},
		"protocol, late": {
			[][]byte{once(string(hidden)), once("DELETE FROM t"), sync, replace(early), replace(late), sync},
			[][]byte{once(string(hidden)), sync},
		},
		"one segment": {
			[][]byte{once("INSERT INTO t VALUES (1, 'a')"), sync},
			[][]byte{replace(early), once("INSERT INTO t VALUES (2, 'a')"), sync},
		},
		"before it exists": {
			[][]byte{replace(early), replace(late), sync},
			[][]byte{once("INSERT INTO t VALUES (2, 'a')"), sync},
		},
		"SQL": {
			[][]byte{once("INSERT INTO t VALUES (1, 'a')"), sync, frame('Q', `DEALLOCATE "fenceproxy.early"; PREPARE "fenceproxy.early" AS SELECT 1`+"\x00")},
			[][]byte{once("INSERT INTO t VALUES (2, 'a')"), sync},
		},
		"SQL by the extended protocol": {
			[][]byte{once("INSERT INTO t VALUES (1, 'a')"), sync, once(`DEALLOCATE "fenceproxy.early"`), once(`PREPARE "fenceproxy.early" AS SELECT 1`), sync},
			[][]byte{once("INSERT INTO t VALUES (2, 'a')"), sync},
		},
	} {
		t.Run(key, func(t *testing.T) {
			s.exec("TRUNCATE t")
			s.holders.hold(key, 1)
			conn := s.connectRaw(key)
			play := func(messages [][]byte) {
				t.Helper()
				for _, m := range messages {
					if _, err := conn.Write(m); err != nil {
						t.Fatal(err)
					}
					if m[0] == 'S' || m[0] == 'Q' {
						readToReady(t, conn)
					}
				}
			}
			play(c.before)
			s.raise(1, key, 2)
			before := s.count("true")
			play(c.stale)
			if got := s.count("true"); got != before {
				t.Errorf("rows after the claim was answered: %d, then %d", before, got)
			}
		})
	}
}
