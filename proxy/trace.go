package proxy

import (
	"fmt"
	"time"

	"github.com/fenceproxy/fenceproxy/fencing"
	"github.com/fenceproxy/fenceproxy/proxy/queue"
	"github.com/fenceproxy/fenceproxy/proxy/wire"
	"github.com/fenceproxy/fenceproxy/sqlrewrite"
)

// A SpanKind says what a Span is of.
type SpanKind uint8

const (
	// SpanClaim is a claim of one pair, from its begin to its answer.
	SpanClaim SpanKind = iota
	// SpanTransaction is a transaction from its first check, or refusal, to its end.
	// Checks of one pipeline, sent before any of it was answered, may be of spans
	// of their own.
	SpanTransaction
)

func (k SpanKind) String() string {
	switch k {
	case SpanClaim:
		return "claim"
	case SpanTransaction:
		return "transaction"
	}
	return fmt.Sprintf("SpanKind(%d)", uint8(k))
}

// A Span is what a session did under a tag, for those who trace their statements.
// It has nothing of their text.
type Span struct {
	Kind SpanKind
	// Parent is what a comment of the statement says of traceparent, whatever that
	// is; "" if it says nothing.
	Parent     string
	Begin, End time.Time
	Session    uint64
	Database   string
	Tag        fencing.Tag // of a claim, one pair
	Checks     int         // of a transaction
	Code       string      // SQLSTATE of the refusal, or of the end of the session; "" for none
}

// A Tracer takes spans. Record is called with locks held: it must not wait.
type Tracer interface{ Record(Span) }

// An openSpan is that of a transaction that has not ended.
type openSpan struct {
	Span
	due int // how many ReadyForQuery come up to the one of its check
}

// maxOpenSpans bounds those of one pipeline. What comes above isn't recorded.
const maxOpenSpans = 64

// tracedBy takes the text of the statement at hand, and returns what it says of
// its trace.
func (s *session) tracedBy(text []byte) string {
	if s.srv.Tracer == nil {
		return ""
	}
	found := sqlrewrite.Traceparent(text, s.options())
	if len(found) > maxParent {
		return ""
	}
	return string(found)
}

// maxParent is the longest traceparent that is kept, in bytes. Those of version 00
// have 55, and later ones may have more.
const maxParent = 128

// traceClaim records a claim that has ended.
func (s *session) traceClaim(begin time.Time, p fencing.Pair, refused *fencing.Error) {
	if s.srv.Tracer == nil {
		return
	}
	span := Span{
		Kind: SpanClaim, Parent: s.parent, Begin: begin, End: time.Now(),
		Session: s.id, Database: s.database, Tag: fencing.Tag{p},
	}
	if refused != nil {
		span.Code = string(refused.Code)
	}
	s.srv.Tracer.Record(span)
}

// traceChecks takes checks, or a refusal if there are none, that are about to be
// announced: they are of the transaction at hand, or begin it.
func (s *session) traceChecks(n int) {
	if s.srv.Tracer == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	due := s.queue.ReadyDue() + 1
	if last := len(s.tracing) - 1; last >= 0 && (s.tracing[last].due == 0 || s.tracing[last].due == due) {
		s.tracing[last].Checks += n
		return
	}
	if len(s.tracing) >= maxOpenSpans {
		return
	}
	tag, _, _ := s.mirror.tag()
	s.tracing = append(s.tracing, openSpan{due: due, Span: Span{
		Kind: SpanTransaction, Parent: s.parent, Begin: time.Now(), Session: s.id, Database: s.database, Tag: tag, Checks: n,
	}})
}

// traceRefusal takes the refusal of a statement, whose replies come in order: it is
// of the transaction that is the first to end.
func (s *session) traceRefusal(code string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.tracing) > 0 {
		s.tracing[0].Code = code
	}
}

// traceReadyLocked takes a ReadyForQuery. The caller holds mu.
func (s *session) traceReadyLocked(status byte) {
	if len(s.tracing) == 0 {
		return
	}
	kept := s.tracing[:0]
	for _, open := range s.tracing {
		open.due = max(0, open.due-1)
		if open.due > 0 || status != wire.StatusIdle {
			kept = append(kept, open)
			continue
		}
		open.End = time.Now()
		s.srv.Tracer.Record(open.Span)
	}
	clear(s.tracing[len(kept):])
	s.tracing = kept
}

// traceEnd records what is open when the session has ended.
func (s *session) traceEnd(code string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, open := range s.tracing {
		open.End = time.Now()
		if open.Code == "" {
			open.Code = code
		}
		s.srv.Tracer.Record(open.Span)
	}
	s.tracing = nil
}

// checksIn is how many checks a plan has.
func checksIn(purposes []queue.Purpose) (n int) {
	for _, p := range purposes {
		switch p {
		case queue.Early, queue.Probe, queue.Late, queue.LateCommit:
			n++
		}
	}
	return n
}
