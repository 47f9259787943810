package proxy

import (
	"strings"
	"sync"
	"time"

	"github.com/fenceproxy/fenceproxy/fencing"
	"github.com/fenceproxy/fenceproxy/proxy/queue"
	"github.com/fenceproxy/fenceproxy/proxy/wire"
	"github.com/fenceproxy/fenceproxy/sqlrewrite"
)

// Under ObserveUntagged a session is relayed as under AllowUntagged, and its
// requests are read on their way: what would be refused is logged and counted.
// Nothing is asked of PostgreSQL for it, so that the client sees nothing of it
// whatever happens; what fails, is rolled back or changes no row counts too.

// An observation is what an observed session remembers.
type observation struct {
	portals portals // only as far as no reply is needed to know them
}

// observes reports whether untagged writes of the session are to be told.
func (s *session) observes() bool { return s.observed != nil }

// An action is what became of an untagged write: the metric's label.
type action string

const (
	// actionObserved: it went through, and would be refused.
	actionObserved action = "observed"
	// actionUnsure: it went through, and would be refused if it wrote.
	actionUnsure action = "unsure"
	// actionRejected: it was refused.
	actionRejected action = "rejected"
)

// actionOn returns what is to be told of a statement, "" if it is a read.
func actionOn(class sqlrewrite.Class, flags sqlrewrite.Flags) action {
	switch {
	case class != sqlrewrite.MayWrite, flags&configures != 0:
		return ""
	case flags&doubtful != 0:
		return actionUnsure
	}
	return actionObserved
}

// observeQuery looks at the body of a Query of an untagged session.
func (s *session) observeQuery(body []byte) {
	text, _, ok := wire.CString(body)
	if !ok {
		return // PostgreSQL refuses it
	}
	stmts, err := sqlrewrite.Split(s.stmts[:0], text, s.options())
	s.stmts = stmts[:0]
	if err != nil {
		s.tellWrite("unreadable", actionUnsure)
		return
	}
	for _, st := range stmts {
		if isDoubtful(text, st) {
			st.Flags |= doubtful
		}
		s.tellWrite(commandOf(text, st), actionOn(st.Class, st.Flags))
	}
}

// observeGuarded looks at statements of a session that was tagged before and is
// not any more.
func (s *session) observeGuarded(text []byte, stmts []sqlrewrite.Statement, m meaning) {
	if !s.observes() || len(m.settings) > 0 || s.hasTag() {
		return
	}
	for _, st := range stmts {
		if isDoubtful(text, st) {
			st.Flags |= doubtful // weighed and taken off
		}
		s.tellWrite(commandOf(text, st), actionOn(st.Class, st.Flags))
	}
}

// observeBind remembers what a portal runs, as far as that is certain now.
func (s *session) observeBind() error {
	body, err := s.fromClient.Prefix()
	if err != nil {
		return err
	}
	portal, rest, ok := wire.CString(body)
	name, _, ok2 := wire.CString(rest)
	if !ok || !ok2 {
		return nil
	}
	s.mu.Lock()
	st, _ := s.names.stands(name, s.segment.number)
	s.mu.Unlock()
	s.observed.portals.bind(portal, st, s.segment.number)
	return nil
}

// observeExecute looks at what an Execute runs.
func (s *session) observeExecute() error {
	if s.tagged && s.hasTag() {
		return nil
	}
	body, err := s.fromClient.Prefix()
	if err != nil {
		return err
	}
	portal, _, ok := wire.CString(body)
	if !ok {
		return nil
	}
	switch st, _ := s.observed.portals.of(portal, s.segment.number); {
	case st.known && !st.empty:
		s.tellWrite(st.command, actionOn(st.class, st.flags))
	case !st.known:
		s.tellWrite("unreadable", actionUnsure)
	}
	return nil
}

// observe looks at a message on its way.
func (s *session) observe(t byte) error {
	switch {
	case !s.observes():
	case t == wire.Bind:
		return s.observeBind()
	case t == wire.Execute:
		return s.observeExecute()
	case t == wire.FunctionCall && !(s.tagged && s.hasTag()):
		s.tellWrite("function call", actionUnsure)
	}
	return nil
}

// tellWrite counts an untagged write, and logs it unless the like was logged just now.
func (s *session) tellWrite(command string, what action) {
	if what == "" {
		return
	}
	s.mu.Lock()
	failed := s.status == wire.StatusFailed && s.queue.ReadyDue() == 0
	application := s.application
	s.mu.Unlock()
	if failed {
		return // PostgreSQL refuses it
	}
	s.srv.Metrics.UntaggedWrites.WithLabelValues(string(what)).Inc()
	seen := untaggedWrite{s.database, s.user, application, command, what}
	unlogged, ok := s.srv.observer.first(seen, time.Now())
	if !ok {
		return
	}
	s.logger().Info(LogUntaggedWrite, "action", string(what), "statement", command,
		"user", s.user, "database", s.database, "application_name", application, "unlogged", unlogged)
}

// countRejected counts a write that was refused because it has no tag.
func (s *session) countRejected(p queue.Purpose, code string) {
	if p != queue.Raise && code == string(fencing.CodeTokenRequired) {
		s.srv.Metrics.UntaggedWrites.WithLabelValues(string(actionRejected)).Inc()
	}
}

// An untaggedWrite is what a line of the log tells of one. There is no text of
// the client's in it but the names that it goes by.
type untaggedWrite struct {
	database, user, application, command string
	what                                 action
}

const (
	// observeWindow is how long a like write isn't logged again.
	observeWindow = time.Minute
	// maxObserved bounds the lines for that time.
	maxObserved = 100
)

// An observer keeps the log from being flooded.
type observer struct {
	mu       sync.Mutex
	begun    time.Time
	logged   map[untaggedWrite]struct{}
	unlogged int // since the last line
}

// first reports whether a write is to be logged, and how many weren't since the
// last one that was.
func (o *observer) first(w untaggedWrite, now time.Time) (unlogged int, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.logged == nil || now.Sub(o.begun) >= observeWindow {
		o.begun, o.logged = now, map[untaggedWrite]struct{}{}
	}
	if _, had := o.logged[w]; had || len(o.logged) >= maxObserved {
		o.unlogged++
		return 0, false
	}
	o.logged[w] = struct{}{}
	unlogged, o.unlogged = o.unlogged, 0
	return unlogged, true
}

// commandOf names the command of a statement, out of a list: what stands there
// in a text that PostgreSQL will refuse may be anything.
func commandOf(text []byte, st sqlrewrite.Statement) string {
	word := text[st.Start:st.End]
	for i, c := range word {
		if c|0x20 < 'a' || c|0x20 > 'z' {
			word = word[:i]
			break
		}
	}
	const longest = len("materialized")
	if len(word) <= longest {
		for _, command := range [...]string{
			"select", "insert", "update", "delete", "merge", "with", "copy", "truncate", "create", "alter", "drop", "call", "do",
			"execute", "fetch", "lock", "grant", "revoke", "comment", "vacuum", "analyze", "cluster", "reindex", "refresh",
			"explain", "declare", "notify", "listen", "unlisten", "move", "set", "values", "table", "import", "reassign", "security",
		} {
			if strings.EqualFold(string(word), command) {
				return command
			}
		}
	}
	return "other"
}
