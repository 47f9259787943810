package proxy_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/fenceproxy/fenceproxy/fencing"
	"github.com/fenceproxy/fenceproxy/proxy"
	"github.com/fenceproxy/fenceproxy/testharness/poll"
)

// sights are Locks in memory: what was seen is set by the test.
type sights struct {
	mu       sync.Mutex
	seen     map[string]fencing.Sighting
	followed map[string]int
}

func (s *sights) Follow(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.followed[key]++
}

func (s *sights) Unfollow(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.followed[key]--; s.followed[key] == 0 {
		delete(s.followed, key)
	}
}

func (s *sights) Seen(_ context.Context, key string) (fencing.Sighting, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	seen, known := s.seen[key]
	return seen, known && s.followed[key] > 0
}

func (s *sights) see(key string, seen fencing.Sighting) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen[key] = seen
}

func (s *sights) follows() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.followed)
}

// newWatched makes a stack with a proxy for each Fencing.
func newWatched(t *testing.T) (*stack, *sights) {
	t.Helper()
	s := newStack(t, 0)
	locks := &sights{seen: map[string]fencing.Sighting{}, followed: map[string]int{}}
	for f := proxy.FenceAccepted; f <= proxy.FenceLive; f++ {
		s.addProxy(s.pg.Addr(), func(server *proxy.Server) {
			server.Locks = locks
			server.Policies.Default.Fencing = f
		})
	}
	return s, locks
}

// What was seen of a lock refuses a statement as far as the policy says, and no
// further: neither what is unknown nor what is older than the token does.
func TestSession_FencedBySight(t *testing.T) {
	s, locks := newWatched(t)
	for name, c := range map[string]struct {
		seen         *fencing.Sighting
		issued, live string
	}{
		"nothing":                {nil, "", ""},
		"the holder":             {&fencing.Sighting{Holder: 10, Revision: 20}, "", ""},
		"a newer holder":         {&fencing.Sighting{Holder: 11, Revision: 20}, "LF001", "LF001"},
		"no holder":              {&fencing.Sighting{Revision: 20}, "", "LF001"},
		"the holder before":      {&fencing.Sighting{Holder: 7, Revision: 20}, "", ""},
		"no holder, long before": {&fencing.Sighting{Revision: 9}, "", ""},
	} {
		for f, want := range map[proxy.Fencing]string{proxy.FenceAccepted: "", proxy.FenceIssued: c.issued, proxy.FenceLive: c.live} {
			for _, p := range protocols {
				t.Run(fmt.Sprintf("%s/%v/%s", name, f, p), func(t *testing.T) {
					key := t.Name()
					s.holders.hold(key, 10)
					conn := s.session(int(f), key, 10)
					if c.seen != nil {
						locks.see(key, *c.seen)
					}
					for _, sql := range []string{"UPDATE t SET v = 'x'", "SELECT 1", "BEGIN; SELECT 1"} {
						if p != simple && sql == "BEGIN; SELECT 1" {
							continue
						}
						if got := code(p.run(t.Context(), conn, sql)); got != want {
							t.Errorf("%s: got %q, want %q", sql, got, want)
						}
					}
				})
			}
		}
	}
	if got := locks.follows(); got == 0 {
		t.Error("no lock was followed")
	}
}

// A transaction whose lock is lost while it is open commits nothing: not at its
// COMMIT, not after the tag was taken off, not at the Sync of a pipeline. One
// that wrote nothing ends as ever.
func TestSession_LostInTransaction(t *testing.T) {
	s, locks := newWatched(t)
	lost := fencing.Sighting{Revision: 20}
	for name, c := range map[string]struct {
		before []string
		after  []string
		want   []string // codes
		status byte
	}{
		"commit":              {[]string{"BEGIN", "INSERT INTO t VALUES (1, 'x')"}, []string{"COMMIT"}, []string{"LF001"}, 'I'},
		"commit and chain":    {[]string{"BEGIN", "INSERT INTO t VALUES (1, 'x')"}, []string{"COMMIT AND CHAIN"}, []string{"LF001"}, 'I'},
		"hidden write":        {[]string{"BEGIN", "SELECT writes()"}, []string{"COMMIT"}, []string{"LF001"}, 'I'},
		"unseen write":        {[]string{"BEGIN", "SELECT * FROM sneaky"}, []string{"COMMIT"}, []string{"LF001"}, 'I'},
		"rollback":            {[]string{"BEGIN", "INSERT INTO t VALUES (1, 'x')"}, []string{"ROLLBACK"}, []string{""}, 'I'},
		"read":                {[]string{"BEGIN", "SELECT 1"}, []string{"COMMIT"}, []string{""}, 'I'},
		"another statement":   {[]string{"BEGIN", "SELECT 1"}, []string{"SELECT 1", "COMMIT"}, []string{"LF001", ""}, 'I'},
		"tag taken off":       {[]string{"BEGIN", "INSERT INTO t VALUES (1, 'x')"}, []string{"RESET fence.key", "COMMIT"}, []string{"LF001", ""}, 'I'},
		"all taken off":       {[]string{"BEGIN", "INSERT INTO t VALUES (1, 'x')"}, []string{"RESET ALL", "COMMIT"}, []string{"LF001", ""}, 'I'},
		"taken off, no write": {[]string{"BEGIN", "SELECT 1"}, []string{"RESET fence.key", "RESET fence.token", "COMMIT"}, []string{"", "", ""}, 'I'},
		"back to savepoint":   {[]string{"BEGIN", "INSERT INTO t VALUES (1, 'x')", "SAVEPOINT a"}, []string{"ROLLBACK TO a", "COMMIT"}, []string{"", "LF001"}, 'I'},
		"release":             {[]string{"BEGIN", "SAVEPOINT a", "INSERT INTO t VALUES (1, 'x')"}, []string{"RELEASE a", "COMMIT"}, []string{"", "LF001"}, 'I'},
		"new tag afterwards":  {nil, []string{"SET fence.token = 11", "INSERT INTO t VALUES (2, 'new')", "DELETE FROM t WHERE id = 2"}, []string{"", "", ""}, 'I'},
		"reset afterwards":    {nil, []string{"RESET ALL", "INSERT INTO t VALUES (2, 'new')", "DELETE FROM t WHERE id = 2"}, []string{"", "", ""}, 'I'},
	} {
		for _, p := range protocols {
			t.Run(name+"/"+string(p), func(t *testing.T) {
				key := t.Name()
				s.holders.hold(key, 10)
				conn := s.session(int(proxy.FenceLive), key, 10)
				for _, sql := range c.before {
					if err := p.run(t.Context(), conn, sql); err != nil {
						t.Fatalf("%s: %v", sql, err)
					}
				}
				s.holders.hold(key, 11)
				locks.see(key, lost)
				for i, sql := range c.after {
					if sql == "SET fence.token = 11" {
						locks.see(key, fencing.Sighting{Holder: 11, Revision: 21})
					}
					if got := code(p.run(t.Context(), conn, sql)); got != c.want[i] {
						t.Errorf("%s: got %q, want %q", sql, got, c.want[i])
					}
				}
				if got := conn.PgConn().TxStatus(); got != c.status {
					t.Errorf("status: got %q, want %q", got, c.status)
				}
				if got := s.count("true"); got != 0 {
					t.Errorf("rows left behind: %d", got)
				}
			})
		}
	}
}

// A pipeline whose lock is lost before its Sync commits nothing.
func TestSession_LostInPipeline(t *testing.T) {
	s, locks := newWatched(t)
	s.holders.hold("k", 10)
	f := s.taggedFrontend(int(proxy.FenceLive), "k", 10)
	f.send(append(execute("INSERT INTO t VALUES (1, 'x')"), &pgproto3.Flush{})...)
	f.until('C')
	locks.see("k", fencing.Sighting{Revision: 20})
	f.send(&pgproto3.Sync{})
	if got, want := f.ready(1), "LF001 ZI"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got := s.count("true"); got != 0 {
		t.Errorf("rows left behind: %d", got)
	}
}

// Each key is followed once by a session, whatever it does, and given up at its
// end.
func TestSession_FollowsItsLocks(t *testing.T) {
	s, locks := newWatched(t)
	conn := s.session(int(proxy.FenceIssued), "", 0)
	if err := simple.run(t.Context(), conn, "SELECT 1"); err != nil || locks.follows() != 0 {
		t.Errorf("untagged: got %v, %d locks followed, want none", err, locks.follows())
	}
	const many = 200
	for i := range many {
		key := fmt.Sprintf("k%d", i)
		s.holders.hold(key, 10)
		s.tag(conn, key, 10)
	}
	if got := locks.follows(); got < 1 || got > 70 {
		t.Errorf("got %d locks followed, want few", got)
	}
	conn.Close(context.Background())
	poll.Until(t, "the locks are given up", func() bool { return locks.follows() == 0 })
}
