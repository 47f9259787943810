package dashboard

import (
	"context"
	"crypto/rand"
	"embed"
	"html/template"
	"io/fs"
	"net/http"
	"path"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/fenceproxy/fenceproxy/fencing"
	"github.com/fenceproxy/fenceproxy/proxy/live"
)

// Server is the proxy that is shown. *proxy.Server is one.
type Server interface {
	// LiveSessions returns the sessions by their number.
	LiveSessions() []live.Session
}

// Marks reads what PostgreSQL has accepted. *fencing.Store is one.
type Marks interface {
	// MarksOf returns the marks of some keys of a database, of those that have one. The
	// error wraps fencing.ErrMayNotList where a right is missing.
	MarksOf(ctx context.Context, database string, keys []string) ([]fencing.ListedMark, error)
	// GrantListing is what gives that right.
	GrantListing() string
}

// Locks asks etcd who holds locks.
type Locks interface {
	// HeldLocks returns those of the keys that somebody holds.
	HeldLocks(ctx context.Context, keys []string) ([]live.Lock, error)
}

// The bounds of what is shown.
const (
	// MostKeys and MostSessions are how many of each one answer has.
	MostKeys     = 100
	MostSessions = 200
	// MostStreams is how many pages can follow what happens at a time.
	MostStreams = 16
	// DefaultSilence is how long a stream sends nothing at most: a line that means
	// nothing finds out whether the browser is there, and whether it still may look.
	DefaultSilence = 15 * time.Second
	// DefaultWriteWithin is how long a browser may take for what a stream sends.
	DefaultWriteWithin = 10 * time.Second
)

// A Dashboard is the page and what it asks for.
type Dashboard struct {
	Server  Server
	Journal *live.Journal
	Marks   Marks
	Locks   Locks
	Gate    *Gate
	Version string // of the program, for people
	// Counters are what the page shows at the top: nil shows none.
	Counters func() Counters

	Silence     time.Duration
	WriteWithin time.Duration

	// boot tells the events of this process from those of one before it.
	boot    string
	streams chan struct{} // one for each that is open

	signInForm *template.Template
	look       lookups
	now        snapshot
	closing    chan struct{}
	closed     sync.Once
}

// Counters count since the proxy started.
type Counters struct {
	Opened   int  `json:"opened"`   // sessions
	Claims   int  `json:"claims"`   // that were accepted anew
	Refused  int  `json:"refused"`  // statements
	Evicted  int  `json:"evicted"`  // sessions
	Draining bool `json:"draining"` // new sessions are refused
}

// New returns a Dashboard of a server on loopback; Marks, Locks and Gate may be set
// before it is used.
func New(server Server, journal *live.Journal) *Dashboard {
	return &Dashboard{
		Server: server, Journal: journal, Gate: NewGate(), Silence: DefaultSilence, WriteWithin: DefaultWriteWithin,
		signInForm: template.Must(template.ParseFS(page, "page/sign-in.html")),
		boot:       rand.Text()[:8], streams: make(chan struct{}, MostStreams), closing: make(chan struct{}),
	}
}

// Close ends the streams.
func (d *Dashboard) Close() { d.closed.Do(func() { close(d.closing) }) }

//go:embed page
var page embed.FS

// Handler answers for the page. What may be seen by everybody is the form to sign in
// by, and how it looks.
func (d *Dashboard) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", d.front)
	for _, name := range ofForm() {
		mux.HandleFunc("GET /page/"+name, func(w http.ResponseWriter, r *http.Request) { d.file(w, r, name, http.StatusOK) })
	}
	for _, name := range scripts() {
		mux.Handle("GET /page/"+name, d.Gate.Protect(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			d.file(w, r, name, http.StatusOK)
		})))
	}
	mux.Handle("GET /api/state", d.Gate.Protect(http.HandlerFunc(d.state)))
	mux.Handle("GET /api/events", d.Gate.Protect(http.HandlerFunc(d.events)))
	d.signIns(mux)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		harden(w.Header())
		mux.ServeHTTP(w, r)
	})
}

// ofForm are the files that the form to sign in by needs.
func ofForm() []string { return []string{"style.css", "icon.svg", "sign-in.js"} }

// scripts are the names of the page's own.
func scripts() (names []string) {
	found, err := fs.Glob(page, "page/*.js")
	if err != nil {
		return nil // not reached: the pattern is right
	}
	for _, name := range found {
		if name = path.Base(name); !slices.Contains(ofForm(), name) {
			names = append(names, name)
		}
	}
	return names
}

// front sends who is unknown to the form.
func (d *Dashboard) front(w http.ResponseWriter, r *http.Request) {
	switch v := d.Gate.judge(r); v {
	case admitted:
		d.file(w, r, "index.html", http.StatusOK)
	case unknown, heldOff, unsure:
		if v == unknown {
			forgetCookie(w, r)
		}
		http.Redirect(w, r, signInPath, http.StatusSeeOther)
	default:
		d.Gate.refuse(w, r, v)
	}
}

// file answers with one that is embedded.
func (d *Dashboard) file(w http.ResponseWriter, _ *http.Request, name string, status int) {
	text, err := page.ReadFile("page/" + name)
	if err != nil {
		http.Error(w, "no such page", http.StatusNotFound)
		return
	}
	kind := map[string]string{
		".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8",
		".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml",
	}[path.Ext(name)]
	w.Header().Set("Content-Type", kind)
	w.Header().Set("Content-Length", strconv.Itoa(len(text)))
	w.WriteHeader(status)
	_, _ = w.Write(text)
}
