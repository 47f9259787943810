package dashboard_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/fencing"
	"github.com/fenceproxy/fenceproxy/proxy/dashboard"
	"github.com/fenceproxy/fenceproxy/proxy/live"
)

// A world is all that a dashboard looks at.
type world struct {
	sessions []live.Session

	mu     sync.Mutex
	looked int // at the sessions
	asked  int // for holders
	marks  map[string]fencing.Token
	locks  map[string]live.Lock
	failed error // of both questions
	listed error // of marks
}

func (w *world) LiveSessions() []live.Session {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.looked++
	return w.sessions
}

func (w *world) GrantListing() string { return "GRANT it" }

func (w *world) MarksOf(ctx context.Context, database string, keys []string) (all []fencing.ListedMark, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := errors.Join(ctx.Err(), w.failed, w.listed); err != nil {
		return nil, err
	}
	for _, key := range keys {
		if mark, ok := w.marks[key]; ok {
			all = append(all, fencing.ListedMark{Database: database, Key: key, Token: mark, Current: key != "another lineage"})
		}
	}
	return all, nil
}

func (w *world) HeldLocks(ctx context.Context, keys []string) (all []live.Lock, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asked++
	if len(keys) > dashboard.MostKeys {
		return nil, fmt.Errorf("%d keys at once", len(keys))
	}
	for _, key := range keys {
		if l, ok := w.locks[key]; ok {
			l.Key = key
			all = append(all, l)
		}
	}
	return all, errors.Join(ctx.Err(), w.failed)
}

func (w *world) dashboard() *dashboard.Dashboard {
	d := dashboard.New(w, live.NewJournal())
	d.Marks, d.Locks, d.Version = w, w, "v1"
	return d
}

func newDashboard() *dashboard.Dashboard { return (&world{}).dashboard() }

// A state is what the page is told.
type state struct {
	Boot, Version string
	Keys          []struct {
		Database, Key, Token, Mark, Holder, Standing, Words string
		Waiting, Sessions                                   int
		Left                                                int64
	}
	Sessions []struct {
		ID    uint64
		State string
		Tag   []struct{ Key, Token string }
	}
	KeysTotal, KeysFound, SessionsTotal, SessionsFound, SessionsTagged int
	Marks, Locks                                                       string
}

func stateOf(t *testing.T, d *dashboard.Dashboard, query string) (s state) {
	t.Helper()
	w := get(d.Handler(), "/api/state"+query)
	if w.Code != 200 {
		t.Fatalf("got %d %s", w.Code, w.Body)
	}
	if err := json.Unmarshal(w.Body.Bytes(), &s); err != nil {
		t.Fatal(err)
	}
	return s
}

// tagged is a session that has claimed a key.
func tagged(id uint64, key string, token fencing.Token) live.Session {
	return live.Session{
		ID: id, User: "u", Database: "app", State: live.Idle, Since: time.Now(), At: time.Now(),
		Tag: fencing.Tag{{Key: key, Token: token}},
	}
}

func TestDashboard_Standing(t *testing.T) {
	coming := live.Session{ID: 9, Database: "app", State: live.Claiming, Coming: fencing.Tag{{Key: "coming", Token: 5}}}
	w := &world{
		sessions: []live.Session{
			tagged(1, "holder", 5), tagged(2, "stale", 5), tagged(3, "gone", 5), tagged(4, "passed", 5), tagged(5, "unclaimed", 5),
			tagged(6, "another lineage", 5), coming,
		},
		marks: map[string]fencing.Token{"holder": 5, "stale": 8, "gone": 5, "passed": 5, "another lineage": 5},
		locks: map[string]live.Lock{
			"holder": {Token: 5, Waiting: 2, Left: 9 * time.Second}, "stale": {Token: 8}, "passed": {Token: 9}, "unclaimed": {Token: 5},
		},
	}
	got := map[string]string{}
	for _, k := range stateOf(t, w.dashboard(), "").Keys {
		got[k.Key] = strings.Join([]string{k.Standing, k.Mark, k.Holder}, " ")
		if k.Key == "holder" && (k.Waiting != 2 || k.Left != 9000 || k.Token != "5") {
			t.Errorf("got %+v", k)
		}
		if k.Key == "stale" && !strings.Contains(k.Words, "token 8 was accepted") {
			t.Errorf("stale: got %q", k.Words)
		}
	}
	for key, want := range map[string]string{
		"holder": "holder 5 5", "stale": "stale 8 8", "gone": "gone 5 ", "passed": "passed 5 9", "unclaimed": "unclaimed  5",
		"another lineage": "unclaimed  ", "coming": "claiming  ",
	} {
		if got[key] != want {
			t.Errorf("%s: got %q, want %q", key, got[key], want)
		}
	}
}

// What can't be asked is said, and the rest is shown.
func TestDashboard_Faults(t *testing.T) {
	for name, c := range map[string]struct {
		w            *world
		marks, locks string // in what is said
		standing     string
	}{
		"both away":   {&world{failed: errors.New("no answer in time")}, "no answer", "no answer", "unknown"},
		"no right":    {&world{listed: fencing.ErrMayNotList}, "GRANT it", "", "unknown"},
		"nobody away": {&world{}, "", "", "unclaimed"},
	} {
		t.Run(name, func(t *testing.T) {
			c.w.sessions = []live.Session{tagged(1, "k", 5)}
			s := stateOf(t, c.w.dashboard(), "")
			if !strings.Contains(s.Marks, c.marks) || (c.marks == "") != (s.Marks == "") {
				t.Errorf("marks: got %q, want %q", s.Marks, c.marks)
			}
			if !strings.Contains(s.Locks, c.locks) || (c.locks == "") != (s.Locks == "") {
				t.Errorf("locks: got %q, want %q", s.Locks, c.locks)
			}
			if len(s.Keys) != 1 || s.Keys[0].Standing != c.standing {
				t.Errorf("got %+v, want it %s", s.Keys, c.standing)
			}
		})
	}
}

// A page that is closed while it asks leaves no fault for the others.
func TestDashboard_AskerGone(t *testing.T) {
	w := &world{sessions: []live.Session{tagged(1, "k", 5)}, marks: map[string]fencing.Token{"k": 5}, locks: map[string]live.Lock{"k": {Token: 5}}}
	d := w.dashboard()
	gone, leave := context.WithCancel(t.Context())
	leave()
	d.Handler().ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "http://127.0.0.1/api/state", nil).WithContext(gone))
	if s := stateOf(t, d, ""); s.Marks+s.Locks != "" || s.Keys[0].Standing != "holder" {
		t.Errorf("got %q, %q, %+v, want what there is", s.Marks, s.Locks, s.Keys)
	}
}

// However many there are and whoever looks, an answer is bounded, and PostgreSQL, etcd
// and the server are asked now and then only.
func TestDashboard_Bounds(t *testing.T) {
	w := &world{}
	const many = 3 * dashboard.MostSessions
	for i := range uint64(many) {
		w.sessions = append(w.sessions, live.Session{ID: i, User: "u", Database: "app"}, tagged(many+i, fmt.Sprintf("order:%d", i), 5))
	}
	d := w.dashboard()
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() { get(d.Handler(), "/api/state") })
	}
	all.Wait()
	for range 20 {
		get(d.Handler(), "/api/state")
	}
	s := stateOf(t, d, "")
	if len(s.Keys) != dashboard.MostKeys || s.KeysTotal != many || s.KeysFound != many {
		t.Errorf("got %d keys of %d and %d", len(s.Keys), s.KeysFound, s.KeysTotal)
	}
	if len(s.Sessions) != dashboard.MostSessions || s.SessionsTotal != 2*many || s.SessionsTagged != many || len(s.Sessions[0].Tag) != 1 {
		t.Errorf("got %d sessions of %d, %d with a tag, first %+v", len(s.Sessions), s.SessionsTotal, s.SessionsTagged, s.Sessions[0])
	}
	w.mu.Lock()
	looked, asked := w.looked, w.asked
	w.mu.Unlock()
	if looked > 10 || asked > 10 { // a machine may be slow
		t.Errorf("41 answers: the sessions were looked at %d times, and etcd was asked %d times", looked, asked)
	}
	if s := stateOf(t, d, "?key=ORDER:59"); s.KeysFound != 11 || len(s.Keys) != 11 || s.SessionsFound != 11 || s.KeysTotal != many {
		t.Errorf("filtered: got %d keys and %d sessions, want 11", s.KeysFound, s.SessionsFound)
	}
}
