package proxy_test

import (
	"bytes"
	"fmt"
	"testing"
)

// A tag that changes later in a transaction doesn't cover what ran under the
// one before, and a tag that is set unseen is found.
func TestSession_TagChangesLater(t *testing.T) {
	s := newStack(t, 2)
	const raise = "!"
	for i, c := range []struct {
		name  string
		steps []step
		rows  int
	}{
		{"reset behind a hidden write, one text", []step{{raise, ""}, {"SELECT * FROM sneaky; RESET fence.key; RESET fence.token", "LF001"}}, 0},
		{"reset behind a hidden write, in a block", []step{{raise, ""}, {"BEGIN", ""}, {"SELECT * FROM sneaky", ""}, {"RESET fence.key", "LF001"}, {"COMMIT", ""}}, 0},
		{"reset by set_config", []step{{raise, ""}, {"BEGIN", ""}, {"SELECT * FROM sneaky", ""}, {"SELECT set_config('fence.key', '', false)", "LF001"}, {"COMMIT", ""}}, 0},
		{"discard behind a hidden write", []step{{raise, ""}, {"BEGIN", ""}, {"SELECT * FROM sneaky", ""}, {"RESET ALL", "LF001"}, {"COMMIT", ""}}, 0},
		{"nothing ran", []step{{raise, ""}, {"BEGIN", ""}, {"RESET fence.key", ""}, {"RESET fence.token", ""}, {"SET TRANSACTION ISOLATION LEVEL SERIALIZABLE", ""}, {"INSERT INTO t VALUES (1, 'x')", ""}, {"COMMIT", ""}}, 1},
		{"two calls of set_config", []step{{"RESET ALL", ""}, {"SELECT set_config('fence.key', '@', false)", ""}, {"SELECT set_config('fence.token', '1', false)", ""}, {"INSERT INTO t VALUES (1, 'x')", ""}}, 1},
		{"two calls of set_config from a stale tag", []step{{"SET fence.token = 1", ""}, {raise, ""}, {"SELECT set_config('fence.key', 'other', false), set_config('fence.token', '5', false)", ""}, {"INSERT INTO t VALUES (1, 'x')", ""}}, 1},
		{"tag and prepared transaction in one text", []step{{"RESET ALL", ""}, {"SET fence.key = '@'; SET fence.token = 1; BEGIN; INSERT INTO t VALUES (1, 'x'); PREPARE TRANSACTION 'x'", "LF007"}}, 0},
		{"tag set by EXECUTE", []step{{raise, ""}, {"RESET fence.key; RESET fence.token", ""}, {"PREPARE p AS SELECT set_config('fence.key', '@', true), set_config('fence.token', '1', true)", ""},
			{"BEGIN", ""}, {"EXECUTE p", ""}, {"INSERT INTO t VALUES (1, 'x')", "LF001"}, {"COMMIT", ""}}, 0},
		{"tag set by a block", []step{{"RESET ALL", ""}, {raise, ""}, {"BEGIN", ""}, {"DO $$ BEGIN PERFORM set_config('fence.key', '@', true), set_config('fence.token', '1', true); END $$", ""}, {"INSERT INTO t VALUES (1, 'x')", "LF001"}, {"COMMIT", ""}}, 0},
		{"written before the tag", []step{{"RESET fence.key; RESET fence.token", ""}, {raise, ""}, {"BEGIN", ""}, {"INSERT INTO t VALUES (1, 'x')", ""}, {"SET LOCAL fence.key = '@'; SET LOCAL fence.token = 1", "LF001"}, {"COMMIT", ""}}, 0},
		{"a superseded token again", []step{{raise, ""}, {"SET fence.token = 1", "LF001"}, {"SELECT 1", "LF001"}, {"RESET ALL", ""}, {"SELECT 1", ""}}, 0},
	} {
		for _, p := range protocols {
			t.Run(c.name+"/"+string(p), func(t *testing.T) {
				s.exec("TRUNCATE t")
				key := fmt.Sprintf("%d%s", i, p)
				s.holders.hold(key, 1)
				s.holders.hold("other", 5)
				conn := s.session(0, key, 1)
				for _, st := range c.steps {
					if st.sql == raise {
						s.raise(1, key, 2)
						continue
					}
					sql := string(bytes.ReplaceAll([]byte(st.sql), []byte("@"), []byte(key)))
					if err := runIn(t, conn, sql, p); code(err) != st.want {
						t.Errorf("%s: got %v, want %q", sql, err, st.want)
					}
				}
				if got := s.count("true"); got != c.rows {
					t.Errorf("rows: got %d, want %d", got, c.rows)
				}
			})
		}
	}
}

// A session may become a tagged one in the middle of a segment that was begun
// untagged, and without a Sync in between.
func TestSession_TaggedWithinASegment(t *testing.T) {
	s := newStack(t, 1)
	s.holders.hold("k", 1)
	conn := s.connectRaw("")
	script := frame('P', "\x00SELECT 1\x00\x00\x00")
	script = append(script, frame('B', "\x00\x00\x00\x00\x00\x00\x00\x00")...)
	script = append(script, frame('E', "\x00\x00\x00\x00\x00")...)
	script = append(script, frame('Q', "SET fence.key = 'k'; SET fence.token = 1\x00")...)
	if _, err := conn.Write(script); err != nil {
		t.Fatal(err)
	}
	if got, _ := readToReady(t, conn); got != "12DCCCZ" {
		t.Errorf("got %s, want 12DCCCZ", got)
	}
	if _, err := conn.Write(frame('Q', "INSERT INTO t VALUES (1, 'x')\x00")); err != nil {
		t.Fatal(err)
	}
	if got, _ := readToReady(t, conn); got != "CZ" {
		t.Errorf("got %s, want CZ", got)
	}
}
