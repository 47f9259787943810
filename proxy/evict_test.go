package proxy_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fenceproxy/fenceproxy/fencing"
	"github.com/fenceproxy/fenceproxy/testharness/poll"
)

// A session that a higher claim ended hears LF005 at its next request, in
// every protocol form, and its open transaction has left nothing, whether the
// claim came through its own proxy or another.
func TestSession_Evicted(t *testing.T) {
	s := newStack(t, 2)
	n := 0
	for _, via := range []int{0, 1} {
		for _, mode := range protocols {
			for _, last := range []string{"UPDATE t SET v = 'later'", "SELECT 1", "COMMIT"} {
				t.Run(fmt.Sprintf("via%d/%v/%s", via, mode, last), func(t *testing.T) {
					n++
					key := fmt.Sprintf("k%d", n)
					s.holders.hold(key, 1)
					c := s.session(0, key, 1)
					if _, err := c.Exec(t.Context(), "BEGIN"); err != nil {
						t.Fatal(err)
					}
					if _, err := c.Exec(t.Context(), "INSERT INTO t VALUES (1, 'stale')"); err != nil {
						t.Fatal(err)
					}
					began := time.Now()
					s.raise(via, key, 2)
					t.Logf("claim took %v", time.Since(began))
					err := mode.run(t.Context(), c, last)
					if got, want := code(err), "LF005"; got != want {
						t.Errorf("got %s, want %s", got, want)
					}
					if err != nil && !strings.Contains(err.Error(), "evicted: ") {
						t.Errorf("message %q does not start with its code's name", err)
					}
					if c.IsClosed() {
						t.Error("the connection closed together with the error")
					}
					_, err = c.Exec(t.Context(), "SELECT 1")
					if got := code(err); got != "LF005" {
						t.Errorf("second request: got %v, want LF005 and a close", got)
					}
					if got := s.count("true"); got != 0 {
						t.Errorf("rows left behind: %d", got)
					}
				})
			}
		}
	}
}

// The barrier: at no step of a running transaction does a stale row become
// visible after the claim of a higher token was answered.
func TestSession_BarrierAtEveryStep(t *testing.T) {
	s := newStack(t, 2)
	steps := []string{"BEGIN", "SELECT 1", "INSERT INTO t VALUES (1, 'a')", "INSERT INTO t VALUES (2, 'a')", "COMMIT"}
	n := 0
	for _, mode := range protocols {
		for _, via := range []int{0, 1} {
			for at := range len(steps) + 1 {
				t.Run(fmt.Sprintf("%v/via%d/before-%d", mode, via, at), func(t *testing.T) {
					n++
					s.exec("TRUNCATE t")
					key := fmt.Sprintf("b%d", n)
					s.holders.hold(key, 1)
					c := s.session(0, key, 1)
					for i, sql := range steps {
						if i == at {
							s.raise(via, key, 2)
							before := s.count("true")
							defer func() {
								if got := s.count("true"); got != before {
									t.Errorf("rows after the claim was answered: %d, then %d", before, got)
								}
							}()
						}
						if err := mode.run(t.Context(), c, sql); err != nil && i < at {
							t.Fatal(err)
						}
					}
				})
			}
		}
	}
}

// A claim that waits lets no write of a stale transaction in while it waits,
// and is answered in bounded time.
func TestSession_ClaimAgainstRunningWrites(t *testing.T) {
	s := newStack(t, 2)
	s.holders.hold("k", 1)
	const writers = 4
	stop, stopAll := context.WithCancel(t.Context())
	done := make(chan error, writers)
	for w := range writers {
		c := s.session(w%2, "k", 1)
		go func() {
			for i := 0; ; i++ {
				if _, err := c.Exec(stop, "INSERT INTO t VALUES ($1, 'a')", w*1_000_000+i); err != nil {
					done <- err
					return
				}
			}
		}()
	}
	poll.Until(t, "writes", func() bool { return s.count("true") > 50 })
	s.raise(1, "k", 2)
	at := s.count("true")
	tooLong := time.AfterFunc(20*time.Second, stopAll)
	for range writers {
		err := <-done
		if got := code(err); got != "LF001" && got != "LF005" {
			t.Errorf("writer ended with %v", err)
		}
	}
	tooLong.Stop()
	stopAll()
	if got := s.count("true"); got != at {
		t.Errorf("rows after the claim was answered: %d, then %d", at, got)
	}
}

// Nobody evicts sessions of the same token, nor its own.
func TestSession_SameTokenStays(t *testing.T) {
	s := newStack(t, 2)
	s.holders.hold("k", 1)
	a := s.session(0, "k", 1)
	s.holders.hold("k", 2)
	if _, err := a.Exec(t.Context(), "SET fence.token = 2"); err != nil {
		t.Fatal(err)
	}
	b, c := s.session(0, "k", 2), s.session(1, "k", 2)
	for i, ses := range []*pgx.Conn{a, b, c} {
		if _, err := ses.Exec(t.Context(), "INSERT INTO t VALUES ($1, 'x')", i); err != nil {
			t.Errorf("session %d: %v", i, err)
		}
	}
}

// A higher token inside a transaction that was checked under a lower one is
// refused: the claim would wait for its own session.
func TestSession_RaisesOwnInsideTransaction(t *testing.T) {
	s := newStack(t, 1)
	s.holders.hold("k", 1)
	c := s.session(0, "k", 1)
	tx, err := c.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), "INSERT INTO t VALUES (1, 'x')"); err != nil {
		t.Fatal(err)
	}
	s.holders.hold("k", 2)
	_, err = tx.Exec(t.Context(), "SET LOCAL fence.token = 2")
	if got, want := code(err), "LF009"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// While etcd is away, sessions that are tagged go on and so do new ones with
// a pair that this proxy has verified; a new claim is LF003, and the mark is
// where it was.
func TestSession_EtcdAway(t *testing.T) {
	s := newStack(t, 1)
	s.holders.hold("k", 1)
	c := s.session(0, "k", 1)
	s.holders.stop()
	if _, err := c.Exec(t.Context(), "INSERT INTO t VALUES (1, 'x')"); err != nil {
		t.Error(err)
	}
	if _, err := s.session(0, "k", 1).Exec(t.Context(), "INSERT INTO t VALUES (2, 'x')"); err != nil {
		t.Error(err)
	}
	d := s.session(0, "", 0)
	_, err := d.Exec(t.Context(), "SET fence.key = 'k'; SET fence.token = 2")
	if got, want := code(err), "LF003"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	_, err = d.Exec(t.Context(), "SELECT 1")
	if got, want := code(err), "LF003"; got != want {
		t.Errorf("statement after a refused tag: got %s, want %s", got, want)
	}
	if _, err := c.Exec(t.Context(), "INSERT INTO t VALUES (3, 'x')"); err != nil {
		t.Errorf("after a refused claim: %v", err)
	}
}

// startup opens a session whose startup packet carries a tag.
func (s *stack) startup(proxy int, key string, token fencing.Token) *pgx.Conn {
	s.t.Helper()
	config, err := pgx.ParseConfig(s.dsn(proxy))
	if err != nil {
		s.t.Fatal(err)
	}
	config.RuntimeParams["options"] = fmt.Sprintf(`-c fence.key=%s -c fence.token=%d`, strings.ReplaceAll(key, " ", `\ `), token)
	c, err := pgx.ConnectConfig(s.t.Context(), config)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { c.Close(context.Background()) })
	return c
}

// A claim may end a session for a tag that its open transaction has had, and
// that isn't its own any more as far as the proxy has followed: its mark is
// locked still.
func TestSession_EvictedForFormerTag(t *testing.T) {
	s := newStack(t, 2)
	n := 0
	for name, after := range map[string][]string{
		"another tag":                   nil,
		"rolled back to the one before": {"ROLLBACK TO s"},
		"rolled back, and again":        {"ROLLBACK", "BEGIN", "SAVEPOINT s", "SET fence.token = 1", "ROLLBACK TO s"},
		"rolled back, and locked again": {"ROLLBACK", "BEGIN", "INSERT INTO t VALUES (1, 'stale')"},
	} {
		for _, via := range []int{0, 1} {
			for _, mode := range protocols {
				t.Run(fmt.Sprintf("%s/via%d/%v", name, via, mode), func(t *testing.T) {
					n++
					outer, inner := fmt.Sprintf("outer%d", n), fmt.Sprintf("inner%d", n)
					s.holders.hold(outer, 1)
					s.holders.hold(inner, 1)
					c := s.session(0, outer, 1)
					for _, sql := range append([]string{"BEGIN", "SAVEPOINT s", "SET fence.key = '" + inner + "'", "SET fence.token = 1"}, after...) {
						if err := mode.run(t.Context(), c, sql); err != nil {
							t.Fatalf("%s: %v", sql, err)
						}
					}
					s.raise(via, outer, 2)
					if got, want := code(mode.run(t.Context(), c, "INSERT INTO t VALUES (1, 'stale')")), "LF005"; got != want {
						t.Errorf("got %s, want %s", got, want)
					}
					if got := s.count("true"); got != 0 {
						t.Errorf("rows left behind: %d", got)
					}
				})
			}
		}
	}
}

// A tag that a rollback, or the end of SET LOCAL, has brought back is one that a
// higher claim ends the session for, before it reads on; one that was left for
// good isn't.
func TestSession_EvictedForTagBroughtBack(t *testing.T) {
	s := newStack(t, 1)
	for i, c := range []struct {
		name    string
		prepare []string
		want    string
	}{
		{"rolled back", []string{"BEGIN", "SET fence.key = '%s'", "SET fence.token = 1", "ROLLBACK"}, "LF005"},
		{"rolled back behind an error", []string{"BEGIN", "SET fence.key = '%s'", "SET fence.token = 1", "SELECT 1/0", "COMMIT"}, "LF005"},
		{"SET LOCAL", []string{"BEGIN", "SET LOCAL fence.key = '%s'", "SET LOCAL fence.token = 1", "COMMIT"}, "LF005"},
		{"a text that fails", []string{"SET fence.key = '%s'; SET fence.token = 1; SELECT 1/0"}, "LF005"},
		{"left", []string{"SET fence.key = '%s'", "SET fence.token = 1"}, ""},
		{"left in a transaction", []string{"BEGIN", "SET fence.key = '%s'", "SET fence.token = 1", "COMMIT"}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			outer, inner := fmt.Sprintf("outer%d", i), fmt.Sprintf("inner%d", i)
			s.holders.hold(outer, 1)
			s.holders.hold(inner, 1)
			conn := s.session(0, outer, 1)
			for _, sql := range c.prepare {
				_, err := conn.Exec(t.Context(), strings.ReplaceAll(sql, "%s", inner), pgx.QueryExecModeSimpleProtocol)
				if got := code(err); got != "" && got != "22012" {
					t.Fatalf("%s: %v", sql, err)
				}
			}
			s.raise(0, outer, 2)
			_, err := conn.Exec(t.Context(), "SELECT 1", pgx.QueryExecModeSimpleProtocol)
			if got := code(err); got != c.want {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}
