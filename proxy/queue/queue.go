package queue

import (
	"errors"
	"fmt"

	"github.com/fenceproxy/fenceproxy/proxy/wire"
)

// ErrUnexpected means that the backend sent what no entry waits for. Nothing
// after it can be told apart, so the session must end.
var ErrUnexpected = errors.New("unexpected reply")

// A Verdict says what becomes of a message from the backend.
type Verdict uint8

// The verdicts.
const (
	// Forward the message to the client.
	Forward Verdict = iota
	// Hide the message.
	Hide
	// Refuse: the error of a hidden statement; the client gets it as the
	// answer to its own.
	Refuse
	// Capture the message: the proxy asked for it.
	Capture
	// Withhold a ReadyForQuery: a ROLLBACK must follow before the client may
	// have one.
	Withhold
)

// An Outcome is what the queue says of one message.
type Outcome struct {
	Verdict Verdict
	// Purpose of the entry or statement that the message answers.
	Purpose Purpose
	// Entry that the message answers; nil for asynchronous messages and for
	// errors that answer nothing.
	Entry *Entry
	// Ready: the message was a ReadyForQuery.
	Ready bool
	// Failed, with Ready: something failed since the ReadyForQuery before, in
	// a part with purpose FailedIn.
	Failed   bool
	FailedIn Purpose
}

// A Queue holds the replies that are due on one session. The zero value is
// an empty queue.
type Queue struct {
	ring  []Entry
	head  int
	count int
	ready int // entries that end with a ReadyForQuery

	statement int  // terminators seen of the Query at the head
	answered  bool // a reply to the Query or Function at the head has come
	skipping  bool // the server discards everything until a Sync
	copying   bool // the head is in copy-in mode
	failed    bool // an error came since the last ReadyForQuery
	failedIn  Purpose

	// What the Syncs told that were dropped since the last ReadyForQuery.
	droppedEnds   uint8
	droppedTagged bool
	eaten         bool // a copy that is over has read Syncs, and none was answered since

	// doubt counts the Syncs that were dropped because a COPY failed that may
	// have read them, or not: then their ReadyForQuery comes. told: one has
	// come since the failure.
	doubt  int
	told   bool
	folded int // Syncs that Fold took out of the copy at the head

	last Entry // keeps the popped entry that an Outcome points to
}

// Len returns how many entries wait.
func (q *Queue) Len() int { return q.count }

// Current returns the entry that the next reply answers; nil if nothing is due.
func (q *Queue) Current() *Entry {
	if q.count == 0 {
		return nil
	}
	return q.at(0)
}

// ReadyDue returns how many ReadyForQuery are due.
func (q *Queue) ReadyDue() int { return q.ready }

// Skipping reports whether the server discards requests until a Sync.
func (q *Queue) Skipping() bool { return q.skipping }

// Drops reports whether an entry of the kind would be dropped: the server
// discards the request that it stands for.
func (q *Queue) Drops(k Kind) bool { return q.skipping && k != Sync }

// BlameClient says of the failure that was just answered that it is not that
// of the hidden statement it came at.
func (q *Queue) BlameClient() { q.failedIn = Client }

// Owed returns how many ReadyForQuery the client is still owed, and whether
// replies are due to a segment that has no Sync yet. Where it may be owed one
// it is.
func (q *Queue) Owed() (ready int, open bool) {
	for i := range q.count {
		if e := q.at(i); e.Kind.Ready() && e.Purpose != Readback && e.Purpose != Resolve {
			ready++
		}
	}
	if ready == 0 && q.doubt > 0 && !q.told {
		ready = 1
	}
	return ready, q.Open()
}

// Open reports whether replies are due to a segment that has no Sync yet.
func (q *Queue) Open() bool {
	for i := q.count - 1; i >= 0; i-- {
		if e := q.at(i); !e.Kind.marker() {
			return !e.Kind.Ready()
		}
	}
	return false
}

// Push adds an entry. While the server discards everything until a Sync, an
// entry that is none is dropped: no reply will come.
func (q *Queue) Push(e Entry) {
	if q.Drops(e.Kind) {
		return
	}
	q.skipping = false
	if e.Kind.marker() && (q.count == 0 || e.Kind == CopyData && q.at(q.count-1).Kind == CopyData) {
		return // stray, or one more of the same
	}
	if q.count == len(q.ring) {
		q.grow()
	}
	q.ring[(q.head+q.count)&(len(q.ring)-1)] = e
	q.count++
	if e.Kind.Ready() {
		q.ready++
	}
}

// Reply takes the type of the next message from the backend and says what
// becomes of it. A FATAL error is the caller's to see: it ends the session
// and isn't given to the queue.
func (q *Queue) Reply(t byte) (Outcome, error) {
	switch t {
	case wire.NoticeResponse, wire.ParameterStatus, wire.NotificationResponse:
		return Outcome{}, nil
	}
	if t != wire.ReadyForQuery {
		q.settle()
	} else if q.doubt > 0 && !q.readyFits() {
		return q.endDropped(), nil
	}
	if q.count == 0 {
		return Outcome{}, fmt.Errorf("%w: %q while nothing is due", ErrUnexpected, t)
	}
	if t == wire.ErrorResponse {
		return q.fail(), nil
	}
	e := q.at(0)
	var ok, done bool
	switch e.Kind {
	case Parse:
		ok, done = t == wire.ParseComplete, true
	case Bind:
		ok, done = t == wire.BindComplete, true
	case Close:
		ok, done = t == wire.CloseComplete, true
	case DescribeStatement:
		done = t == wire.RowDescription || t == wire.NoData
		ok = done || t == wire.ParameterDescription
	case DescribePortal:
		done = t == wire.RowDescription || t == wire.NoData
		ok = done
	case Execute:
		ok, done = q.executing(t)
	case Query:
		return q.querying(e, t)
	case Sync:
		ok, done = t == wire.ReadyForQuery, true
	case Function:
		done = t == wire.ReadyForQuery
		ok = done && q.readyFits() || t == wire.FunctionCallResponse && !q.answered
		q.answered = true
	}
	if !ok {
		return Outcome{}, fmt.Errorf("%w: %q while %v is due", ErrUnexpected, t, e.Kind)
	}
	if t == wire.ReadyForQuery {
		return q.end(e), nil
	}
	out := Outcome{Verdict: show(e.Purpose), Purpose: e.Purpose, Entry: e}
	if e.Purpose == Readback && t == wire.DataRow {
		out.Verdict = Capture
	}
	if done {
		out.Entry = q.pop()
	}
	return out, nil
}

// executing judges a reply to an Execute.
func (q *Queue) executing(t byte) (ok, done bool) {
	switch t {
	case wire.CommandComplete, wire.EmptyQuery, wire.PortalSuspended:
		q.endCopy(true)
		return true, true
	case wire.CopyInResponse:
		q.copying = true
		return true, false
	case wire.DataRow, wire.CopyOutResponse, wire.CopyData, wire.CopyDone:
		return true, false
	}
	return false, false
}

// querying judges a reply to a Query, statement by statement.
func (q *Queue) querying(e *Entry, t byte) (Outcome, error) {
	purpose := e.purposeAt(q.statement)
	if t == wire.ReadyForQuery {
		if !q.readyFits() {
			return Outcome{}, fmt.Errorf("%w: %q after %d statements of a %v", ErrUnexpected, t, q.statement, e.Kind)
		}
		return q.end(e), nil
	}
	if e.Plan != nil && q.statement == len(e.Plan) || q.failed {
		return Outcome{}, fmt.Errorf("%w: %q after the end of a %v", ErrUnexpected, t, e.Kind)
	}
	q.answered = true
	switch t {
	case wire.CommandComplete, wire.EmptyQuery:
		q.endCopy(true)
		q.statement++
	case wire.CopyInResponse:
		q.copying = true
	case wire.RowDescription, wire.DataRow, wire.CopyOutResponse, wire.CopyData, wire.CopyDone:
	default:
		return Outcome{}, fmt.Errorf("%w: %q while %v is due", ErrUnexpected, t, e.Kind)
	}
	return Outcome{Verdict: show(purpose), Purpose: purpose, Entry: e}, nil
}

// fail takes an error: extended requests are discarded up to the next Sync,
// which is answered; a Query, a function call and a Sync are answered still.
func (q *Queue) fail() Outcome {
	e := q.at(0)
	purpose := e.Purpose
	if e.Kind == Query {
		purpose = e.purposeAt(q.statement)
	}
	q.failed, q.failedIn = true, purpose
	q.endCopy(false)
	verdict := Refuse
	switch purpose {
	case Client, Examine:
		verdict = Forward
	case Readback, Rollback:
		verdict = Hide
	}
	out := Outcome{Verdict: verdict, Purpose: purpose, Entry: e}
	if e.Kind.Ready() {
		return out
	}
	out.Entry = q.pop()
	kept := *out.Entry
	for q.count > 0 && q.at(0).Kind != Sync {
		q.pop()
	}
	q.skipping = q.count == 0
	q.last = kept
	return out
}

// readyFits reports whether a ReadyForQuery may be the head's: the answer to a
// Query or a function call has something before it, and a Query whose
// statements are known has an answer to each of them.
func (q *Queue) readyFits() bool {
	if q.count == 0 {
		return false
	}
	switch e := q.at(0); e.Kind {
	case Sync:
		return true
	case Query:
		return q.failed || q.statement > 0 && (e.Plan == nil || q.statement == len(e.Plan))
	case Function:
		return q.failed || q.answered
	}
	return false
}

// end takes a ReadyForQuery.
func (q *Queue) end(e *Entry) Outcome {
	out := Outcome{
		Purpose: e.Purpose, Ready: true,
		Failed: q.failed, FailedIn: q.failedIn,
	}
	switch {
	case e.Purpose == Readback, e.Purpose == Resolve, e.Purpose == Probe && !q.failed:
		out.Verdict = Hide
	case q.failed && (q.failedIn == LateCommit || e.Enclosed):
		out.Verdict = Withhold
	}
	q.told = q.told || e.Purpose != Resolve
	out.Entry = q.pop()
	q.closeSegment()
	return out
}

// endDropped takes the ReadyForQuery of a Sync that was dropped in doubt.
func (q *Queue) endDropped() Outcome {
	q.doubt--
	q.skipping, q.told = false, true
	q.last = Entry{Kind: Sync}
	out := Outcome{Ready: true, Failed: q.failed, FailedIn: q.failedIn, Entry: &q.last}
	q.closeSegment()
	return out
}

// closeSegment begins anew after a ReadyForQuery, whose entry is q.last.
func (q *Queue) closeSegment() {
	q.last.Ends |= q.droppedEnds
	q.last.Tagged = q.last.Tagged || q.droppedTagged
	q.droppedEnds, q.droppedTagged, q.eaten = 0, false, false
	q.statement, q.answered = 0, false
	q.failed, q.failedIn = false, Client
}

// show returns the verdict for a message that isn't an error.
func show(p Purpose) Verdict {
	if p == Client {
		return Forward
	}
	return Hide
}

// MayCommit reports whether what is due may still commit something: a
// transaction commits at a Sync, in a Query or a function call, or in an
// entry that says how it ends one.
func (q *Queue) MayCommit() bool {
	for i := range q.count {
		if e := q.at(i); e.Kind.Ready() || e.Ends != 0 {
			return true
		}
	}
	return false
}
