package proxy_test

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"strings"
	"testing"
)

// A CALL or DO in the extended protocol runs as one transaction with its check,
// and the client sees of that what it would see of any segment.
func TestSession_Encloses(t *testing.T) {
	s := newStack(t, 2)
	s.exec(`CREATE TABLE d (id int PRIMARY KEY DEFERRABLE INITIALLY DEFERRED);
		CREATE PROCEDURE halves() LANGUAGE plpgsql AS $$ BEGIN INSERT INTO t VALUES (1, 'half'); COMMIT; INSERT INTO t VALUES (2, 'half'); END $$;
		CREATE PROCEDURE twice() LANGUAGE plpgsql AS $$ BEGIN INSERT INTO d VALUES (1), (1); END $$;
		CREATE PROCEDURE whole(INOUT n int) LANGUAGE plpgsql AS $$ BEGIN INSERT INTO t VALUES (n, 'whole'); END $$`)
	sync := frame('S', "")
	const raise = "raise"
	insert := once("INSERT INTO t VALUES (7, 'x')")
	for key, c := range map[string]struct {
		messages [][]byte
		want     string // messages of each answer, and the status behind Z
		rows     int
	}{
		"whole":                    {[][]byte{once("CALL whole(1)"), sync}, "12DCZI", 1},
		"whole, stale":             {[][]byte{[]byte(raise), once("CALL whole(1)"), sync}, "12EZI", 0},
		"halves":                   {[][]byte{once("CALL halves()"), sync}, "12EZI", 0},
		"halves, stale":            {[][]byte{[]byte(raise), once("CALL halves()"), sync}, "12EZI", 0},
		"fails":                    {[][]byte{once("DO $$ BEGIN INSERT INTO t VALUES (1, 'a'); PERFORM 1/0; END $$"), sync, insert, sync}, "12EZI12CZI", 1},
		"fails at its end":         {[][]byte{once("CALL twice()"), sync, insert, sync}, "12CEZI12CZI", 1},
		"behind a write":           {[][]byte{insert, once("CALL whole(1)"), sync}, "12C12DCZI", 2},
		"halves behind a write":    {[][]byte{insert, once("CALL halves()"), sync}, "12C12EZI", 0},
		"before a write":           {[][]byte{once("CALL whole(1)"), insert, sync}, "12DC12CZI", 2},
		"twice":                    {[][]byte{once("CALL whole(1)"), once("CALL whole(2)"), sync}, "12DC12DCZI", 2},
		"before what fails":        {[][]byte{once("CALL whole(1)"), once("SELECT 1/0"), sync}, "12DC1EZI", 0},
		"before a COMMIT":          {[][]byte{once("CALL whole(1)"), once("COMMIT"), sync}, "12DC12EZI", 0},
		"before a SAVEPOINT":       {[][]byte{once("CALL whole(1)"), once("SAVEPOINT s"), sync}, "12DC12EZI", 0},
		"before a COPY":            {[][]byte{once("CALL whole(1)"), once("COPY t FROM STDIN"), sync}, "12DC12EZI", 0},
		"behind a COMMIT":          {[][]byte{once("BEGIN"), insert, once("COMMIT"), once("CALL whole(1)"), sync}, "12C12C12C12EZI", 1},
		"in a block":               {[][]byte{once("BEGIN"), sync, once("CALL whole(1)"), sync, once("COMMIT"), sync}, "12CZT12DCZT12CZI", 1},
		"halves in a block":        {[][]byte{once("BEGIN"), sync, once("CALL halves()"), sync, once("COMMIT"), sync}, "12CZT12EZE12CZI", 0},
		"in a failed block":        {[][]byte{once("BEGIN"), sync, once("SELECT 1/0"), sync, once("CALL whole(1)"), sync, once("ROLLBACK"), sync}, "12CZT1EZEEZE12CZI", 0},
		"before a Query":           {[][]byte{once("CALL whole(1)"), frame('Q', "INSERT INTO t VALUES (7, 'x')\x00")}, "12DCCZI", 2},
		"halves before a Query":    {[][]byte{once("CALL halves()"), frame('Q', "INSERT INTO t VALUES (7, 'x')\x00"), sync, insert, sync}, "12EZI12CZI", 1},
		"with a tag":               {[][]byte{once("RESET ALL"), sync, once("SELECT set_config('fence.key', 'k', false), set_config('fence.token', '5', false)"), once("CALL halves()"), sync}, "12CZI12DC12EZI", 0},
		"untagged":                 {[][]byte{once("SET fence.key = ''"), once("SET fence.token = ''"), sync, once("CALL halves()"), sync}, "12C12CZI12CZI", 2},
		"a pipeline of them":       {[][]byte{once("CALL whole(1)"), sync, once("CALL whole(2)"), sync, once("CALL whole(2)"), sync, once("CALL whole(4)"), sync}, "12DCZI12DCZI12EZI12DCZI", 3},
		"its tag is for the block": {[][]byte{once("DO $$ BEGIN PERFORM set_config('fence.token', '0', true); END $$"), sync, insert, sync}, "12CEZI12CZI", 1},
	} {
		t.Run(key, func(t *testing.T) {
			s.exec("TRUNCATE t, d")
			s.holders.hold("k", 5)
			s.holders.hold(key, 1)
			conn := s.connectRaw(key)
			messages := c.messages
			if string(messages[0]) == raise {
				s.raise(1, key, 2)
				messages = messages[1:]
			}
			if _, err := conn.Write(bytes.Join(messages, nil)); err != nil {
				t.Fatal(err)
			}
			if got := answers(t, conn, strings.Count(c.want, "Z")); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
			if got := s.count("true"); got != c.rows {
				t.Errorf("rows: got %d, want %d", got, c.rows)
			}
		})
	}
}

// answers reads as many ReadyForQuery and returns the types of what came, with
// the status behind each.
func answers(t *testing.T, conn net.Conn, ready int) string {
	t.Helper()
	r := bufio.NewReader(conn)
	var types strings.Builder
	for ready > 0 {
		var h [5]byte
		if _, err := io.ReadFull(r, h[:]); err != nil {
			t.Fatalf("after %s: %v", types.String(), err)
		}
		body := make([]byte, binary.BigEndian.Uint32(h[1:])-4)
		if _, err := io.ReadFull(r, body); err != nil {
			t.Fatal(err)
		}
		types.WriteByte(h[0])
		switch h[0] {
		case 'E':
			t.Logf("error: %q", body)
		case 'Z':
			types.Write(body)
			ready--
		}
	}
	return types.String()
}
