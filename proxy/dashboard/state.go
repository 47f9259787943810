package dashboard

import (
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/fenceproxy/fenceproxy/fencing"
	"github.com/fenceproxy/fenceproxy/proxy/live"
)

// snapshotFor is how long one look at the sessions serves all who ask: a proxy with
// thousands isn't asked for them by each page.
const snapshotFor = time.Second

// A snapshot is the last look at the sessions.
type snapshot struct {
	mu       sync.Mutex
	at       time.Time
	sessions []live.Session
	keys     []live.Key
	counters *Counters
}

// take returns a look that is no older than snapshotFor.
func (d *Dashboard) take() (at time.Time, sessions []live.Session, keys []live.Key, counters *Counters) {
	s := &d.now
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Since(s.at) > snapshotFor {
		s.at, s.sessions = time.Now(), d.Server.LiveSessions()
		s.keys = live.Keys(s.sessions)
		if d.Counters != nil {
			c := d.Counters()
			s.counters = &c
		}
	}
	return s.at, s.sessions, s.keys, s.counters
}

// stateAnswer is what /api/state answers with. Tokens are texts, for JavaScript's
// numbers end before theirs.
type stateAnswer struct {
	Boot     string         `json:"boot"`
	Version  string         `json:"version"`
	SignOut  bool           `json:"sign_out"` // there is a token to have signed in by
	At       int64          `json:"at"`       // ms
	Full     bool           `json:"full"`     // no other page can follow what happens
	Counters *Counters      `json:"counters,omitempty"`
	Keys     []keyAnswer    `json:"keys"`
	Sessions []sessionShown `json:"sessions"`
	// How many there are, and how many of them go with the filter.
	KeysTotal, SessionsTotal, SessionsTagged int
	KeysFound, SessionsFound                 int
	Marks, Locks                             string `json:",omitempty"` // why they can't be told
}

type keyAnswer struct {
	Database     string   `json:"database"`
	Key          string   `json:"key"`
	Token        string   `json:"token"`
	Mark         string   `json:"mark,omitempty"`   // "": there is none, or it isn't known
	Holder       string   `json:"holder,omitempty"` // the same
	Waiting      int      `json:"waiting,omitempty"`
	Left         int64    `json:"left,omitempty"`  // ms of the holder's lease
	Asked        int64    `json:"asked,omitempty"` // ms, when mark and holder were looked up
	Sessions     int      `json:"sessions"`
	Transactions int      `json:"transactions"`
	Claimed      int64    `json:"claimed,omitempty"` // ms
	State        string   `json:"state"`
	Standing     standing `json:"standing"`
	Words        string   `json:"words"`
}

type sessionShown struct {
	ID          uint64 `json:"id"`
	PID         uint32 `json:"pid,omitempty"`
	User        string `json:"user"`
	Database    string `json:"database"`
	Application string `json:"application,omitempty"`
	Remote      string `json:"remote"`
	State       string `json:"state"`
	Since       int64  `json:"since,omitempty"`       // ms
	Transaction int64  `json:"transaction,omitempty"` // ms
	Console     bool   `json:"console,omitempty"`
	Tag         []pair `json:"tag,omitempty"`
}

type pair struct {
	Key   string `json:"key"`
	Token string `json:"token"`
}

// state answers with how things stand now. ?key= keeps to keys that have a text in
// them, and to sessions with such a key.
func (d *Dashboard) state(w http.ResponseWriter, r *http.Request) {
	filter := strings.ToLower(r.URL.Query().Get("key"))
	at, sessions, keys, counters := d.take()
	a := stateAnswer{
		Boot: d.boot, Version: d.Version, SignOut: d.Gate.Token != nil, Full: len(d.streams) == cap(d.streams), At: at.UnixMilli(), Counters: counters,
		Keys: []keyAnswer{}, Sessions: []sessionShown{}, KeysTotal: len(keys), SessionsTotal: len(sessions),
	}
	var shown []live.Key
	for _, k := range keys {
		if !strings.Contains(strings.ToLower(k.Key), filter) {
			continue
		}
		if a.KeysFound++; len(shown) < MostKeys {
			shown = append(shown, k)
		}
	}
	known := d.lookUp(r.Context(), shown)
	a.Marks, a.Locks = known.marksFault, known.locksFault
	for _, k := range shown {
		a.Keys = append(a.Keys, known.answer(k))
	}
	a.addSessions(sessions, filter)
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(a) // to a browser that may have gone
}

// addSessions adds those with a tag first.
func (a *stateAnswer) addSessions(sessions []live.Session, filter string) {
	var rest []live.Session
	for _, s := range sessions {
		tag := shownTag(s)
		if len(tag) > 0 {
			a.SessionsTagged++
		}
		if !hasKey(tag, filter) {
			continue
		}
		switch a.SessionsFound++; {
		case len(tag) == 0:
			rest = append(rest, s)
		case len(a.Sessions) < MostSessions:
			a.Sessions = append(a.Sessions, showSession(s, tag))
		}
	}
	for _, s := range rest[:min(len(rest), MostSessions-len(a.Sessions))] {
		a.Sessions = append(a.Sessions, showSession(s, nil))
	}
}

// shownTag is what the session has claimed, or is about to.
func shownTag(s live.Session) fencing.Tag {
	if len(s.Coming) > 0 {
		return s.Coming
	}
	return s.Tag
}

// hasKey reports whether a key of the tag has a text in it; every tag has "".
func hasKey(tag fencing.Tag, filter string) bool {
	if filter == "" {
		return true
	}
	for _, p := range tag {
		if strings.Contains(strings.ToLower(p.Key), filter) {
			return true
		}
	}
	return false
}

func showSession(s live.Session, tag fencing.Tag) sessionShown {
	shown := sessionShown{
		ID: s.ID, PID: s.PID, User: s.User, Database: s.Database, Application: s.Application, Remote: s.Remote,
		State: s.State.String(), Since: milliseconds(s.Since), Transaction: milliseconds(s.Transaction), Console: s.Console,
	}
	for _, p := range tag {
		shown.Tag = append(shown.Tag, pair{p.Key, p.Token.String()})
	}
	return shown
}

// milliseconds are since 1970; 0 for no time.
func milliseconds(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

// number is a token as text, "" where there is none.
func number(t fencing.Token) string {
	if t == 0 {
		return ""
	}
	return t.String()
}
