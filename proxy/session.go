package proxy

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/fenceproxy/fenceproxy/fencing"
	"github.com/fenceproxy/fenceproxy/proxy/console"
	"github.com/fenceproxy/fenceproxy/proxy/lobby"
	"github.com/fenceproxy/fenceproxy/proxy/queue"
	"github.com/fenceproxy/fenceproxy/proxy/wire"
	"github.com/fenceproxy/fenceproxy/sqlrewrite"
)

// A session is one client with a backend session of its own. Its two pumps run at
// the same time, each in one goroutine at a time: see resting.go.
type session struct {
	srv       *Server
	id        uint64
	running   *sync.WaitGroup // of those that the server waits for
	socket    net.Conn        // the client's, and client what is spoken over it: the same, or TLS
	client    net.Conn
	backend   net.Conn
	host      *Host    // where backend goes, and endpoint the way that it took;
	endpoint  Endpoint // both set before the cancel key is known
	came      time.Time
	newcomer  place // guarded by srv.mu
	admitted  bool  // counts towards the server's limit; guarded by srv.mu
	cancelKey string
	deadline  time.Time // of the login
	binding   []byte    // channel-binding data of the certificate that the client was shown
	database  string
	user      string
	policy    Policy          // set by the end of the startup
	console   bool            // it is with the console, which has no backend; set by then too,
	talk      *console.Client // as this is
	began     time.Time       // the end of the login; set with opened
	measured  measures
	observed  *observation // nil unless the policy says so

	fromClient  *wire.Reader // request pump
	toBackend   *wire.Writer // request pump
	fromBackend *wire.Reader // reply pump
	toClient    *wire.Writer // reply pump until replied is closed, then request pump
	parted      bool         // the client has been sent a FATAL; goes with toClient
	refusals    uint64       // statements that were refused; goes with toClient
	lastCode    string       // of PostgreSQL's FATAL; goes with toClient

	// The request pump's own.
	parent      string // traceparent of the statement at hand, "" if there is none or no Tracer
	awaits      bool   // it has begun to wait for a message
	asked       uint64 // statements: Query, Execute and function call messages
	tagged      bool   // may have been tagged, so it is looked at; never unset
	presented   bool   // a tag was presented, whatever became of it; never unset
	installed   bool   // the database is known to have schema fence; never unset
	opaque      bool   // something was prepared or defined that can change the tag unseen; never unset
	txn         txn
	portals     portals
	segment     segment
	reopening   reopening
	midway      bool // a Query or a call went into an open segment that had no Sync yet: see implicit
	refused     *refusal
	stale       *fencing.Error // why the tag is stale by what was seen in etcd
	followed    map[string]struct{}
	unread      *fencing.Error // why the tag could not be read back for the segment at hand
	own         own
	stmts       []sqlrewrite.Statement // scratch
	checking    batch                  // scratch of inject
	rewritten   []byte                 // scratch of sendGuarded
	awaitCommit bool                   // a late check stands before a COMMIT in flight

	listed fencing.Tag // guarded by srv.mu: what Evict finds the session by

	backendEnded bool // PostgreSQL has closed the connection; goes with fromBackend

	// How the pumps rest; set before they run, but for who has the watch.
	requesting, replying pump
	lobby                *lobby.Lobby // where, nil: nowhere
	rests                bool         // whenever they wait for a message

	replied  chan struct{} // closed when the reply pump has ended
	progress chan struct{} // holds one token when replies have come in

	mu          sync.Mutex
	tracing     []openSpan
	queue       queue.Queue
	status      byte           // of the last ReadyForQuery
	checked     bool           // a check covers the transaction that was open then
	ran         bool           // something ran under its tag that no check covers
	failed      bool           // a segment failed since the request pump looked
	withheld    bool           // a ReadyForQuery waits for a ROLLBACK
	lost        bool           // replies can't be told apart any more; only while untagged
	owed        int            // ReadyForQuery that are due then, as far as can be told
	guarded     bool           // tagged, for the reply pump
	former      []fencing.Pair // what the tag was before, in the open transaction
	forgotten   bool           // the backend doesn't know the proxy's own statements
	captured    []string
	overlong    bool         // what was to be captured is longer than any tag
	missed      *wire.Report // the error of a readback, until the client has heard it
	mirror      mirror
	coming      fencing.Tag             // what a claim under way will add to the mirror
	loans       map[string]fencing.Loan // by key: the locks that the session took by fence.acquire
	names       names
	params      sqlrewrite.Options
	confirm     int       // generation of the proxy's own statements known to exist
	draining    bool      // the session is to end between transactions
	killed      *killing  // the session is about to be cut off by an administrator
	cut         error     // why the session is to end at once,
	cutWord     *lastWord // and what the client hears; set with cut
	closing     bool      // all is said; only the client's socket is open yet
	opened      bool      // the login is done
	idle        idleness
	victim      *fencing.Error          // set once: a higher claim ended this session
	spared      bool                    // the victim's backend was left to answer what it was sent
	ending      *ending                 // set when the backend is gone and the client is owed an answer
	over        bool                    // the reply pump takes no more entries
	asking      bool                    // the startup asks the backend for itself
	claiming    context.CancelCauseFunc // breaks off the claim that the client waits for; nil: there is none
	waiting     context.CancelCauseFunc // breaks off the wait for a lock
	delivery    delivery                // of cancel requests
	hotStandby  string                  // what the backend says of in_hot_standby, "" if nothing
	application string                  // what the backend says of application_name
	role        string                  // of session_authorization,
	version     string                  // and of server_version
}

// A segment is what a client sends between two Syncs.
type segment struct {
	number   int  // counts the segments that were sent before
	open     bool // something was sent since the last Sync or Query
	executed bool // an Execute was, or a Bind that may write
	called   bool // an Execute was
	tagged   bool // a setting of the tag changes in it
	unknown  bool // a statement that the proxy can't be sure of ran in it
	loose    bool // no block can be put around what ran in it
	enclosed bool // the proxy has put a block around it
	lent     bool // a lock was taken or given back in it
	dropping bool // it has failed, and what comes up to its Sync is dropped here
}

// How a session can end, besides the client's leaving.
var (
	// errOver: the message at hand was not announced, because the backend is
	// gone or is about to be.
	errOver = errors.New("session is over")
	// errGone: the backend went away after the message at hand was announced.
	errGone = errors.New("backend went away")
	// errBackend: the backend ended the session, and the client knows.
	errBackend = errors.New("PostgreSQL ended the session")
	// errLost: a session whose replies can't be told apart wants to be tagged.
	errLost error = fencing.Refuse(fencing.CodeNotFenceable, "fenceproxy lost track of the session's replies, so it can't be tagged").
		With("", "Connect again and tag the new session.")
)

func newSession(srv *Server, client net.Conn, id uint64) *session {
	return &session{
		srv: srv, id: id, socket: client, client: client, came: time.Now(),
		fromClient: wire.NewReader(client),
		toClient:   wire.NewWriter(client),
		replied:    make(chan struct{}),
		progress:   make(chan struct{}, 1),
		status:     wire.StatusIdle,
		own:        own{generation: 1},
	}
}

// run is the life of a session up to its login. What follows gets a goroutine
// of its own, for a handshake leaves a large stack behind.
func (s *session) run() {
	if !s.login() {
		s.end(!s.parted)
		return
	}
	go s.serve()
}

// end gives back all that the session has. left says that nothing was sent to
// the client that it must still get, or that it said goodbye itself.
func (s *session) end(left bool) {
	if s.backend != nil {
		s.backend.Close()
	}
	s.giveAllBack()
	s.srv.release(s)
	s.unfollow()
	if !left {
		s.linger()
	}
	s.client.Close()
	s.srv.ended(s)
}

// serve runs a session that has been opened, until its end.
func (s *session) serve() {
	s.tellStart()
	if s.console {
		s.leave(s.serveConsole())
		return
	}
	s.startPumps()
}

// serveOn runs the request pump, from the beginning or after a rest, which the
// watch may come with.
func (s *session) serveOn(watch *lobby.Shift) {
	if s.requesting.watch = watch; watch == nil {
		s.dropScratch() // it was idle for long, or hasn't begun
	}
	err := s.requests()
	if errors.Is(err, errResting) {
		return
	}
	s.requesting.leave()
	s.finish(err)
	s.leave(err)
}

func (s *session) leave(err error) {
	s.tellEnd(err)
	s.end(clientLeft(err))
}

// clientLeft reports whether a request pump that ended with err had its end from
// the client: a Terminate, or the end of what it sends, be it within a message.
func clientLeft(err error) bool {
	return err == nil || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}

// finish ends both directions after the request pump has ended with err. A
// client that half-closed after its last request, or in the middle of one, still
// gets its answers: the half-close is passed on, and PostgreSQL ends the session
// when it has answered. It runs nothing of a message that was cut short.
func (s *session) finish(err error) {
	var last *lastWord
	switch {
	case errors.As(err, &last):
		s.toBackend.Write(wire.AppendTerminate(nil))
		s.toBackend.Flush()
		s.partBackend()
		s.farewell(last.report())
	case clientLeft(err):
		s.sayEnd()
	default:
		var refused *fencing.Error
		if errors.Is(err, wire.ErrLength) || errors.Is(err, wire.ErrTooLarge) {
			s.countProtocol("08P01")
		}
		if errors.Is(err, errHiddenTag) {
			s.sayEnd() // what was asked before is answered
		}
		s.partBackend()
		switch {
		case errors.As(err, &refused):
			s.farewell(report("FATAL", refused))
		case s.cutFor() != nil:
			s.farewell(s.cutFor().report())
		}
	}
}

// push announces replies before the bytes that cause them are sent. It fails
// when the session is over: then nothing more may be sent.
func (s *session) push(entries ...queue.Entry) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.mayPushLocked(); err != nil {
		return err
	}
	for _, e := range entries {
		s.pushLocked(e)
	}
	return nil
}

// pushChange is push of a request that changes what a prepared statement is. One
// that the backend discards changes nothing, and no reply would ever tell.
func (s *session) pushChange(e queue.Entry, c change) error {
	if strings.HasPrefix(c.name, reserved) {
		s.own.generation++ // it may be one of the proxy's own
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.mayPushLocked(); err != nil {
		return err
	}
	if !s.lost && !s.queue.Drops(e.Kind) {
		e.Confirms = s.names.add(c)
	}
	s.pushLocked(e)
	return nil
}

func (s *session) mayPushLocked() error {
	s.awaitDeliveryLocked()
	if s.over || s.victim != nil {
		return errOver
	}
	return nil
}

func (s *session) pushLocked(e queue.Entry) {
	if s.lost { // nobody would take it off again
		if e.Kind.Ready() {
			s.owed++
		}
		return
	}
	if e.Kind.Ready() {
		e.Confirms = s.names.last
	}
	s.queue.Push(e)
}

// send pushes a batch of the proxy's own messages and gathers their bytes.
func (s *session) send(b *batch) error {
	if err := s.push(b.entries...); err != nil {
		return err
	}
	return s.write(b.bytes)
}

// write gathers bytes for the backend. A backend that takes no more is gone.
func (s *session) write(p []byte) error {
	if err := s.toBackend.Write(p); err != nil {
		return s.gone()
	}
	return nil
}

// writeMessage is write of one message.
func (s *session) writeMessage(t byte, body []byte) error {
	if err := s.toBackend.WriteMessage(t, body); err != nil {
		return s.gone()
	}
	return nil
}

func (s *session) flush() error {
	if err := s.toBackend.Flush(); err != nil {
		return s.gone()
	}
	return nil
}

// gone waits until the reply pump has said what became of the session after
// a write to the backend failed. What PostgreSQL said before it went may not
// have been read yet: it comes to an end, since a socket that can't be written
// to any more is closed for both ways. A client that doesn't take it is waited
// for no longer than partWithin: it may itself wait until it can send.
func (s *session) gone() error {
	s.requesting.leave()
	s.boundWrites(time.Now().Add(partWithin))
	<-s.replied
	s.boundWrites(noDeadline)
	s.backend.Close()
	return errGone
}

// await sends what was gathered and waits until done holds, looking again
// whenever replies have come in.
func (s *session) await(done func() bool) error {
	if err := s.flush(); err != nil {
		return err
	}
	for {
		s.mu.Lock()
		ok := done()
		s.mu.Unlock()
		if ok {
			return nil
		}
		s.requesting.leave()
		select {
		case <-s.progress:
		case <-s.replied:
			return errOver
		}
	}
}

// awaitAll waits until no reply is due.
func (s *session) awaitAll() error {
	return s.await(func() bool { return s.queue.Len() == 0 })
}

// errCopying ends a session whose client sends a request where a COPY waits for
// data, as PostgreSQL does. Passing it on could have it run unchecked: the COPY
// may have failed in the meantime.
var errCopying error = &fencing.Error{Code: "08P01", Message: "unexpected request during COPY from stdin"}

// awaitIdle is awaitAll before a request, which must not come where a COPY waits
// for data.
func (s *session) awaitIdle() error {
	if err := s.awaitEarlier(func() bool { return s.queue.Len() == 0 || s.queue.Starving() }); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.queue.Len() > 0 {
		return errCopying
	}
	return nil
}

// awaitEarlier is await for what earlier segments decide. A Sync during a COPY
// was ignored, so that the backend needs a Flush to answer.
func (s *session) awaitEarlier(done func() bool) error {
	s.mu.Lock()
	ok := done()
	s.mu.Unlock()
	if ok {
		return nil
	}
	if err := s.write(wire.AppendFlush(nil)); err != nil {
		return err
	}
	return s.await(done)
}

// awaitSegments waits until no ReadyForQuery of an earlier segment is due.
func (s *session) awaitSegments() error {
	return s.awaitEarlier(func() bool { return s.queue.ReadyDue() == 0 || s.queue.Starving() })
}

// awaitReady waits until no ReadyForQuery is due: replies to a segment that
// has no Sync yet may be.
func (s *session) awaitReady() error {
	return s.await(func() bool { return s.queue.ReadyDue() == 0 })
}

// signal tells the request pump that replies have come in.
func (s *session) signal() {
	select {
	case s.progress <- struct{}{}:
	default:
	}
}
