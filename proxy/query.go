package proxy

import (
	"bytes"
	"errors"
	"slices"

	"github.com/fenceproxy/fenceproxy/proxy/queue"
	"github.com/fenceproxy/fenceproxy/proxy/wire"
	"github.com/fenceproxy/fenceproxy/sqlrewrite"
)

// guardQuery takes a Query: it splits the text, claims what it says of the
// tag, and puts checks into it.
func (s *session) guardQuery(body []byte) error {
	text, rest, ok := wire.CString(body)
	if !ok || len(rest) > 0 {
		s.endSegment()
		return s.sendQuery(body, queue.Entry{Kind: queue.Query}) // PostgreSQL refuses it: 08P01
	}
	skipping, err := s.beforeWhole()
	if err != nil {
		return err
	}
	if skipping {
		return s.sendQuery(body, queue.Entry{Kind: queue.Query})
	}
	if s.segment.open && bytes.IndexByte(text, '\\') >= 0 {
		// What a backslash means can have changed since the last ReadyForQuery.
		return s.refuseText(text, sqlrewrite.ErrUncertain)
	}
	options := s.options()
	s.parent = s.tracedBy(text)
	stmts, err := sqlrewrite.Split(s.stmts[:0], text, options)
	s.stmts = stmts[:0]
	if err != nil {
		return s.refuseText(text, err)
	}
	m := s.meaningOf(text, stmts, options)
	refused := s.unfenceable(stmts, len(m.settings) > 0)
	if refused == nil && s.segment.lent {
		refused = besideLock()
	}
	var g grant
	if refused == nil {
		m, g, refused = s.lend(m, len(stmts) == 1 && !s.segment.open)
	}
	if refused == nil {
		refused = s.admitLent(g, m)
	}
	if refused != nil {
		return s.refuseMessage(wire.Query, refused)
	}
	s.observeGuarded(text, stmts, m)
	return s.sendGuarded(body, stmts, len(m.settings) > 0 || s.segment.tagged, g)
}

// fewText is what a session holds on to for the texts that it makes, in bytes.
const fewText = 1 << 10

// sendGuarded sends a Query whose text, all of body but its NUL, was admitted, with
// its grant and its checks.
func (s *session) sendGuarded(body []byte, stmts []sqlrewrite.Statement, tagged bool, g grant) error {
	text := body[:len(body)-1]
	const unmixed = sqlrewrite.NotInBlock | sqlrewrite.MayCommit
	unplanned := len(stmts) == 1 && stmts[0].Flags&unmixed != 0 && s.txn.block == blockNone && (!s.fences() || stmts[0].Class == sqlrewrite.Discard)
	// Nothing can be added to an empty text without changing its answer, nor to
	// a statement that needs a block, beside which another makes one.
	alone := len(stmts) == 0 || len(stmts) == 1 && stmts[0].Flags&sqlrewrite.NeedsBlock != 0
	if alone || unplanned {
		if err := s.injectLate(); err != nil {
			return err
		}
	}
	within := s.txn.block
	var p plan
	if !unplanned {
		p = planQuery(&s.txn, s.checks(), stmts, len(text))
	}
	if g.text != "" {
		p.begin(stmts[0].Start, g.inText(), queue.Grant)
	}
	s.count(p.purposes)
	e := queue.Entry{Kind: queue.Query, Plan: p.purposes, Tagged: tagged}
	e.Ends = uint8(s.txn.sync())
	e.Checked, e.Ran = s.txn.checked && s.txn.block == blockOpen, s.txn.ran
	if p.insertions != nil {
		positions := sqlrewrite.NewPositions(text, p.insertions)
		e.Shift, e.Separator = positions.Original, positions.Separator()
		if within == blockNone && len(stmts) == 1 && !s.segment.open {
			e.Alone = uint8(aloneAs(stmts[0].Flags))
		}
		room := slices.Grow(s.rewritten[:0], len(text)+256)
		body = append(sqlrewrite.Insert(room, text, p.insertions), 0)
		if s.rewritten = body; cap(body) > fewText {
			s.rewritten = nil
		}
	}
	s.sentMidway()
	s.endSegment()
	if err := s.sendQuery(body, e); err != nil {
		return err
	}
	s.dropped(text, stmts)
	if p.lateCommit {
		return s.finishCommit()
	}
	return nil
}

// dropped notes which prepared statements the statements of a text may drop.
func (s *session) dropped(text []byte, stmts []sqlrewrite.Statement) {
	for _, st := range stmts {
		if st.Flags&sqlrewrite.DropsPrepared != 0 {
			s.dropPrepared(dropsName(text[st.Start:st.End]))
		}
	}
}

// dropPrepared notes that the prepared statement of a name may not be left, or
// with "" that none may.
func (s *session) dropPrepared(name string) {
	if name == "" {
		s.own.generation++
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.names.drop(name)
}

// refuseText answers a Query that can't be split. One that PostgreSQL
// refuses whole gets its own syntax error: it is parsed there and run nowhere.
func (s *session) refuseText(text []byte, why error) error {
	e := unsplit(why)
	if !errors.Is(why, sqlrewrite.ErrUnterminated) && !errors.Is(why, sqlrewrite.ErrUnsafe) {
		return s.refuseMessage(wire.Query, e)
	}
	s.endSegment()
	var b batch
	b.add(queue.Close, queue.Raise, wire.AppendClose(b.bytes, 'S', "")) // as every Query does
	b.add(queue.Close, queue.Raise, wire.AppendClose(b.bytes, 'S', raiseName))
	b.add(queue.Parse, queue.Examine, wire.AppendParse(b.bytes, raiseName, string(text)))
	b.raise(e)
	b.add(queue.Sync, queue.Client, wire.AppendSync(b.bytes))
	return s.send(&b)
}
