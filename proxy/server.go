package proxy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fenceproxy/fenceproxy/fencing"
	"github.com/fenceproxy/fenceproxy/proxy/console"
	"github.com/fenceproxy/fenceproxy/proxy/live"
	"github.com/fenceproxy/fenceproxy/proxy/lobby"
	"github.com/fenceproxy/fenceproxy/proxy/scram"
)

// Defaults of a Server.
const (
	DefaultLoginTimeout = 30 * time.Second
	DefaultDialTimeout  = 10 * time.Second
	// DefaultCancelTimeout bounds the delivery of a cancel request.
	DefaultCancelTimeout = 5 * time.Second
	DefaultRestAfter     = 10 * time.Second
)

// Claims carries claims out. *fencing.Claimer is one.
type Claims interface {
	// Claim makes the pair the newest for its key in the database, or says
	// why not with a *fencing.Error.
	Claim(ctx context.Context, database string, p fencing.Pair) error
	// Superseded returns a *fencing.Error with CodeStale if a token of the tag
	// is below its mark, or gets below it by a claim that is under way, before
	// ctx ends; one with CodeLineage if it is of an etcd history that is over;
	// nil if none is, and another error if that can't be told.
	Superseded(ctx context.Context, database string, pairs []fencing.Pair) error
}

// A Server accepts clients and gives each a session of its own with the
// upstream. Fields may be set before Serve; Settings afterwards too, by Reload.
type Server struct {
	Settings
	Upstream Upstream
	Claims   Claims
	Locks    Locks   // nil: every session's fencing is FenceAccepted
	Lender   Lender  // nil: sessions take no locks
	Secrets  Secrets // nil: SCRAM is relayed only
	// Mock makes up salts for users who don't exist. NewServer's is of its own;
	// proxies behind one address need one that they share.
	Mock        *scram.Mock
	Logger      *slog.Logger
	Metrics     *Metrics
	Journal     *live.Journal
	Console     *console.Console // nil: there is none
	Tracer      Tracer           // nil: nothing is recorded
	DialTimeout time.Duration
	// CancelTimeout bounds how long a cancel request on its way keeps its session
	// from its next request. What PostgreSQL reads later may hit that one, as it
	// may without a proxy: the client's cancel request stays open till then.
	CancelTimeout time.Duration
	// MaxNewcomers and NewcomerPatience bound those who haven't said who they are:
	// see newcomers.
	MaxNewcomers     int
	NewcomerPatience time.Duration
	// RestAfter is how long a session is idle before it gives up what it has kept for
	// its next message, where the system allows it. 0 is never.
	RestAfter time.Duration
	// Patience is how long a session that works or waits may keep those waiting that are
	// served by the same thread. 0 is for ever: then it must not wait for anything unless
	// it has handed them on.
	Patience time.Duration

	reloaded atomic.Pointer[Settings] // nil: Settings count

	mu        sync.Mutex
	resweep   chan struct{} // closed, and another, when settings have changed
	listeners map[net.Listener]struct{}
	sessions  map[*session]struct{}
	cancels   keyring
	newcomers newcomers
	holders   map[lock]map[*session]struct{} // tagged sessions
	draining  bool                           // no more sessions are taken
	closed    bool                           // nor anything else
	nextID    uint64
	relayed   traffic // of sessions that have ended
	admitted  int     // sessions that count towards MaxConnections

	lobbies     []*lobby.Lobby // where sessions rest, each in one; none: nowhere; set before there are any
	relief      relief
	handshaking handshaking
	observer    observer

	road     road
	peering  chan struct{} // holds a token for each cancel request that peers are asked about
	refusing chan struct{} // and one for each client that PostgreSQL is to refuse

	wg     sync.WaitGroup // sessions
	late   sync.WaitGroup // what has come since draining, of which none becomes a session
	ctx    context.Context
	cancel context.CancelFunc
}

// A lock names a resource key in one database.
type lock struct{ database, key string }

// NewServer returns a Server with defaults filled in.
func NewServer(upstream Upstream, claims Claims) *Server {
	ctx, cancel := context.WithCancel(context.Background())
	return &Server{
		Upstream: upstream, Claims: claims,
		Mock:          scram.NewMock(nil, 0),
		Logger:        slog.New(slog.DiscardHandler),
		Metrics:       NewMetrics(nil),
		Journal:       live.NewJournal(),
		Settings:      Settings{LoginTimeout: DefaultLoginTimeout, Sockets: DefaultSockets(), Lending: DefaultLending()},
		DialTimeout:   DefaultDialTimeout,
		CancelTimeout: DefaultCancelTimeout,
		RestAfter:     DefaultRestAfter,
		Patience:      lobby.DefaultPatience,
		MaxNewcomers:  DefaultMaxNewcomers, NewcomerPatience: DefaultNewcomerPatience,
		newcomers: newcomers{left: make(chan struct{})},
		resweep:   make(chan struct{}),
		listeners: map[net.Listener]struct{}{},
		sessions:  map[*session]struct{}{},
		cancels:   keyring{},
		holders:   map[lock]map[*session]struct{}{},
		peering:   make(chan struct{}, maxPeering),
		refusing:  make(chan struct{}, maxRefusing),
		ctx:       ctx, cancel: cancel,
	}
}

// Serve accepts clients on ln until Shutdown has seen the last session end, or
// Close, and then returns nil. It closes ln.
func (s *Server) Serve(ln net.Listener) error {
	s.mu.Lock()
	if s.draining {
		s.mu.Unlock()
		ln.Close()
		return nil
	}
	s.listeners[ln] = struct{}{}
	s.openLobbiesLocked()
	s.mu.Unlock()
	defer ln.Close()
	defer s.startSweeper()()
	for {
		conn, err := ln.Accept()
		switch {
		case err != nil && s.isClosed():
			return nil
		case errors.Is(err, net.ErrClosed):
			return err
		case err != nil:
			// Out of descriptors, or a client that went away at once: the
			// listener lives on.
			s.Logger.Warn("accept client", "error", err)
			select {
			case <-s.ctx.Done():
			case <-time.After(10 * time.Millisecond):
			}
			continue
		}
		s.makeRoom()
		s.start(conn)
	}
}

// admit counts a session that is about to log in, unless there are too many, or it
// took too long to say so. A cancel request is none.
func (s *Server) admit(ses *session) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.newcomers.leave(ses) {
		return false
	}
	if most := s.settings().MaxConnections; most > 0 && s.admitted >= most {
		return false
	}
	ses.admitted = true
	s.admitted++
	return true
}

// start runs a session for a client; it returns at once.
func (s *Server) start(conn net.Conn) {
	s.settings().Sockets.tune(conn)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		conn.Close()
		return
	}
	s.nextID++
	ses := newSession(s, lobby.Wrap(conn), s.nextID)
	s.sessions[ses] = struct{}{}
	s.newcomers.add(ses)
	ses.running = &s.wg
	if s.draining {
		ses.running = &s.late
	}
	ses.running.Add(1)
	go ses.run()
}

// release makes room for others in place of a session that is over.
func (s *Server) release(ses *session) {
	s.mu.Lock()
	s.cancels.drop(ses)
	s.newcomers.leave(ses)
	if ses.admitted {
		s.admitted--
	}
	s.mu.Unlock()
	s.retag(ses, nil, nil)
}

// ended forgets a session. The session calls it last.
func (s *Server) ended(ses *session) {
	s.mu.Lock()
	delete(s.sessions, ses)
	s.mu.Unlock()
	ses.running.Done()
}

// Sessions is how many there are, those that are logging in included. It waits
// for the lock under which they begin and end.
func (s *Server) Sessions() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.sessions)
}

func (s *Server) isDraining() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.draining
}

func (s *Server) isClosed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}

// Shutdown takes no more sessions, ends those that there are as soon as they
// are between transactions, and waits for all of them. Up to then it goes on
// taking cancel requests, for they still have something to cancel. When ctx ends
// first it ends the rest at once and returns a *CutOffError with ctx's cause.
func (s *Server) Shutdown(ctx context.Context) error {
	s.mu.Lock()
	s.draining = true
	for ses := range s.sessions {
		ses.drain()
	}
	s.mu.Unlock()

	done := make(chan struct{})
	go s.waitFor(done)
	select {
	case <-done:
		s.cancel()
		s.road.close()
		s.closeLobbies()
		return nil
	case <-ctx.Done():
		cut := s.cutOff(context.Cause(ctx), done)
		_ = s.Close()
		<-done
		return cut
	}
}

// A CutOffError says that sessions had to be ended before they were between
// transactions.
type CutOffError struct {
	Sessions int
	Cause    error // why there was no more time
}

func (e *CutOffError) Error() string {
	return fmt.Sprintf("%d sessions were cut off: %v", e.Sessions, e.Cause)
}

func (e *CutOffError) Unwrap() error { return e.Cause }

// cutOff ends every session, with a last word to those clients that take it
// within farewellWithin.
func (s *Server) cutOff(cause error, done <-chan struct{}) *CutOffError {
	cut := &CutOffError{Cause: cause}
	s.mu.Lock()
	for ses := range s.sessions {
		if ses.cutOff(cause) {
			cut.Sessions++
		}
	}
	s.mu.Unlock()
	select {
	case <-done:
	case <-time.After(2 * farewellWithin):
	}
	return cut
}

// waitFor closes done when every session has ended, and then whoever has said
// nothing yet.
func (s *Server) waitFor(done chan struct{}) {
	s.wg.Wait()
	s.mu.Lock()
	s.closeLocked()
	for ses := range s.sessions {
		ses.drain()
	}
	s.mu.Unlock()
	s.late.Wait()
	close(done)
}

// closeLocked stops accepting. The caller holds mu.
func (s *Server) closeLocked() {
	s.draining, s.closed = true, true
	for ln := range s.listeners {
		ln.Close()
	}
}

// Close ends every session at once and waits for them.
func (s *Server) Close() error {
	s.mu.Lock()
	s.closeLocked()
	for ses := range s.sessions {
		ses.abort()
	}
	s.mu.Unlock()
	s.cancel()
	s.wg.Wait()
	s.late.Wait()
	s.road.close()
	s.closeLobbies()
	return nil
}

// retag records which locks a session is tagged with, in place of those
// before. Those of the former tags stay findable: until the settings have run and
// their transaction is over, a rollback may bring them back. A nil tag takes the
// session out.
func (s *Server) retag(ses *session, tag fencing.Tag, former []fencing.Pair) {
	all := slices.Clone(tag)
	for _, p := range former {
		if all.Token(p.Key) == 0 {
			all = append(all, p)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range ses.listed {
		l := lock{ses.database, p.Key}
		delete(s.holders[l], ses)
		if len(s.holders[l]) == 0 {
			delete(s.holders, l)
		}
	}
	ses.listed = all
	for _, p := range all {
		l := lock{ses.database, p.Key}
		if s.holders[l] == nil {
			s.holders[l] = map[*session]struct{}{}
		}
		s.holders[l][ses] = struct{}{}
	}
}

// union has each pair of two lists once.
func union(a, b []fencing.Pair) []fencing.Pair {
	all := slices.Clone(a)
	for _, p := range b {
		if !slices.Contains(all, p) {
			all = append(all, p)
		}
	}
	return all
}

// Evict starts to end every session that is tagged with key at a token below
// the given one; it doesn't wait. It returns how many there were.
func (s *Server) Evict(database, key string, below fencing.Token) int {
	s.mu.Lock()
	victims := map[*session]fencing.Token{}
	for ses := range s.holders[lock{database, key}] {
		if had := ses.listed.Token(key); had < below {
			victims[ses] = had
		}
	}
	s.mu.Unlock()
	n := 0
	for ses, had := range victims {
		if ses.evict(key, had, below) {
			n++
		}
	}
	return n
}
