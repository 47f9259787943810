package proxy_test

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/fenceproxy/fenceproxy/fencing"
	"github.com/fenceproxy/fenceproxy/testharness/poll"
)

// A claim through the same proxy that comes after a COMMIT was executed and
// before its Sync was sent: the client hears that it committed, and then that
// the session is over.
func TestSession_EvictedBetweenCommitAndSync(t *testing.T) {
	s := newStack(t, 1)
	for name, c := range map[string]struct {
		rest []pgproto3.FrontendMessage
		want string
	}{
		"sync":            {[]pgproto3.FrontendMessage{&pgproto3.Sync{}}, "COMMIT ZI"},
		"flush":           {[]pgproto3.FrontendMessage{&pgproto3.Sync{}}, "COMMIT ZI"},
		"more":            {segments("SELECT 1"), "COMMIT LF005 ZI"},
		"simple protocol": {[]pgproto3.FrontendMessage{query("SELECT 1")}, "COMMIT LF005 ZI"},
	} {
		t.Run(name, func(t *testing.T) {
			s.t = t
			s.exec("TRUNCATE t")
			key := t.Name()
			s.holders.hold(key, 1)
			c1 := s.taggedFrontend(0, key, 1)
			c1.send(query("BEGIN; INSERT INTO t VALUES (1, 'a')"))
			c1.ready(1)
			c1.send(execute("COMMIT")...)
			poll.Until(t, "commit", func() bool { return s.count("true") == 1 })
			s.raise(0, key, 2)
			got := ""
			if name == "flush" {
				c1.send(&pgproto3.Flush{})
				got = c1.until('C') + " "
			}
			c1.send(c.rest...)
			if got += c1.ready(1); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}

// A claim that ends a backend with several segments in flight: each of them
// gets its ReadyForQuery, or a client that counts them waits for ever.
func TestSession_PipelineEndedByClaim(t *testing.T) {
	s := newStack(t, 2)
	s.holders.hold("k", 1)
	c := s.taggedFrontend(0, "k", 1)
	s.exec("SELECT pg_advisory_lock(77)")
	c.send(segments("INSERT INTO t SELECT 1, 'a' FROM pg_advisory_xact_lock(77)", "INSERT INTO t VALUES (2, 'a')", "INSERT INTO t VALUES (3, 'a')")...)
	poll.Until(t, "the write waits behind its check", func() bool {
		var n int
		err := s.admin.QueryRow(t.Context(), "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted").Scan(&n)
		return err == nil && n == 1
	})
	s.raise(1, "k", 2)
	if got, want := c.ready(3), "LF005 ZI LF005 ZI LF005 ZI"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got := s.count("true"); got != 0 {
		t.Errorf("rows left behind: %d", got)
	}
}

// A tag that was set for one transaction is gone with it: a claim does not end
// the session of whoever uses the connection next.
func TestSession_PooledConnectionStays(t *testing.T) {
	s := newStack(t, 1)
	s.holders.hold("k", 1)
	for _, end := range []string{"COMMIT", "ROLLBACK"} {
		c := s.frontend(s.addrs[0])
		for _, sql := range []string{"BEGIN; SET LOCAL fence.key = 'k'; SET LOCAL fence.token = 1", "SELECT * FROM t", end, "BEGIN; INSERT INTO t VALUES (1, 'someone else''s')"} {
			c.send(query(sql))
			c.ready(1)
		}
		s.raise(0, "k", 2)
		c.send(query("COMMIT"))
		if got, want := c.ready(1), "COMMIT ZI"; got != want {
			t.Errorf("after %s: got %s, want %s", end, got, want)
		}
		s.exec("TRUNCATE t; DELETE FROM fence.mark")
		s.holders.hold("k", 1)
	}
}

// A COPY that holds no lock, and so isn't ended by a claim, can be finished.
func TestSession_EvictedInCopy(t *testing.T) {
	s := newStack(t, 1)
	for name, tail := range map[string][]pgproto3.FrontendMessage{
		"done": {&pgproto3.CopyData{Data: []byte("1\n")}, &pgproto3.CopyDone{}},
		"fail": {&pgproto3.CopyFail{Message: "enough"}},
	} {
		t.Run(name, func(t *testing.T) {
			s.t = t
			key := t.Name()
			s.holders.hold(key, 1)
			c := s.taggedFrontend(0, key, 1)
			c.send(query("CREATE TEMP TABLE tt (id int)"))
			c.ready(1)
			c.send(query("BEGIN READ ONLY"))
			c.ready(1)
			c.send(query("COPY tt FROM STDIN"))
			c.until('G')
			s.raise(0, key, 2)
			c.send(tail...)
			if got := c.ready(1); !strings.HasSuffix(got, "ZT") && !strings.HasSuffix(got, "ZE") {
				t.Errorf("got %s", got)
			}
			c.send(query("SELECT 1"))
			if got, want := c.ready(1), "LF005 ZI"; got != want {
				t.Errorf("next request: got %s, want %s", got, want)
			}
		})
	}
}

// A claim through the same proxy that comes while a long pipeline is read:
// what was taken from the client by then reaches PostgreSQL, and the client
// hears the end of it.
func TestSession_EvictedInLongPipeline(t *testing.T) {
	s := newStack(t, 1)
	s.holders.hold("k", 1)
	var pipeline []pgproto3.FrontendMessage
	for range 2000 {
		pipeline = append(pipeline, segments("SELECT 1")...)
	}
	for token := 1; token < 40; token += 2 {
		s.holders.hold("k", fencing.Token(token))
		c := s.taggedFrontend(0, "k", token)
		s.holders.hold("k", fencing.Token(token+1))
		next := s.session(0, "", 0)
		go func() {
			for _, m := range pipeline {
				c.fe.Send(m)
			}
			_ = c.fe.Flush() // it may be closed before all was read
		}()
		c.until('C')
		s.tag(next, "k", fencing.Token(token+1))
		for {
			m, err := c.fe.Receive()
			if errors.Is(err, os.ErrDeadlineExceeded) {
				t.Fatal("the client waits for ever")
			}
			if err != nil {
				break
			}
			if e, ok := m.(*pgproto3.ErrorResponse); ok && e.Code == "LF005" {
				break
			}
		}
		c.conn.Close()
	}
}

// An evicted session whose COPY begins only then gets its data to PostgreSQL,
// which would wait for it for ever if the claim that evicted came to nothing.
func TestSession_EvictedBeforeCopy(t *testing.T) {
	s := newStack(t, 1)
	for name, c := range map[string]struct{ copy, want string }{
		"done":    {"c", "SELECT 1 COPY 1 ZI"},
		"failed":  {"f", "SELECT 1 57014 ZI"},
		"no copy": {"Q", "SELECT 1 08P01"}, // as PostgreSQL ends the session
	} {
		t.Run(name, func(t *testing.T) {
			s.t = t
			s.exec("TRUNCATE t; SELECT pg_advisory_lock(77)")
			s.holders.hold(name, 1)
			f := s.taggedFrontend(0, name, 1)
			f.send(query("SELECT FROM pg_advisory_xact_lock_shared(77); COPY t FROM STDIN"))
			poll.Until(t, "the text runs", func() bool {
				var waits bool
				err := s.admin.QueryRow(t.Context(), "SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted)").Scan(&waits)
				return err == nil && waits
			})
			if got := s.servers[0].Evict("postgres", name, 2); got != 1 {
				t.Fatalf("evicted: got %d, want 1", got)
			}
			f.send(&pgproto3.CopyData{Data: []byte("1\ta\n")})
			switch c.copy {
			case "c":
				f.send(&pgproto3.CopyDone{})
			case "f":
				f.send(&pgproto3.CopyFail{})
			default:
				f.send(query("SELECT 1"))
			}
			s.exec("SELECT pg_advisory_unlock(77)")
			stop := byte('Z')
			if c.copy == "Q" {
				stop = 'E'
			}
			if got := f.until(stop); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}
