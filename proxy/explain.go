package proxy

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/fenceproxy/fenceproxy/fencing"
	"github.com/fenceproxy/fenceproxy/sqlrewrite"
)

// A Placement is where the check of a statement goes.
type Placement uint8

const (
	// PlaceNone: it needs none, or one that is there already covers it.
	PlaceNone Placement = iota
	// PlaceEarly: before the statement.
	PlaceEarly
	// PlaceLate: at the end of its transaction, if that has written.
	PlaceLate
	// PlaceRefused: it can't be made atomic with a check.
	PlaceRefused
)

func (p Placement) String() string {
	switch p {
	case PlaceNone:
		return "none"
	case PlaceEarly:
		return "early"
	case PlaceLate:
		return "late"
	case PlaceRefused:
		return "refused"
	}
	return fmt.Sprintf("placement %d", uint8(p))
}

// An Explanation is what becomes of one statement in a tagged session.
type Explanation struct {
	Statement sqlrewrite.Statement
	Settings  []sqlrewrite.Setting // what it does to the tag
	Check     Placement
	Where     string         // where exactly, or why there is none
	Refusal   *fencing.Error // with PlaceRefused
}

// ExplainOptions say how a session reads a text, and how the text is sent.
type ExplainOptions struct {
	BackslashQuotes bool   // standard_conforming_strings is off
	ClientEncoding  string // "" is one that hides nothing, as UTF8
	Together        bool   // in one Query message, and not statement by statement
	Untagged        bool   // in a session without a tag, where untagged writes are rejected
}

// Explain tells what becomes of the statements of a text in a tagged session,
// if each of them succeeds. It decides as a session does, by the same code.
//
// The error is a *fencing.Error where the proxy refuses the whole text, and
// another one where PostgreSQL does.
func Explain(text []byte, how ExplainOptions) ([]Explanation, error) {
	o := sqlrewrite.Options{BackslashQuotes: how.BackslashQuotes, UnsafeEncoding: hidesASCII(how.ClientEncoding)}
	if len(text) >= maxText {
		return nil, tooLong(len(text))
	}
	if bytes.IndexByte(text, 0) >= 0 {
		return nil, errors.New("PostgreSQL refuses a text with a zero byte in it (08P01)")
	}
	stmts, err := sqlrewrite.Split(nil, text, o)
	switch {
	case errors.Is(err, sqlrewrite.ErrUnterminated), errors.Is(err, sqlrewrite.ErrUnsafe):
		return nil, fmt.Errorf("PostgreSQL refuses the whole text: %w", err)
	case err != nil:
		return nil, unsplit(err)
	}
	e := explainer{options: o}
	if how.Untagged {
		e.session.policy.UntaggedWrites = RejectUntagged
	}
	if how.Together {
		e.query(text, stmts)
		return e.out, nil
	}
	for i := range stmts {
		e.query(text, stmts[i:i+1])
	}
	return e.out, nil
}

// An explainer follows a session through Query messages without sending any.
type explainer struct {
	session session // for what it remembers of statements
	options sqlrewrite.Options
	txn     txn
	out     []Explanation
	waiting []int // that a check is still to come for, by place in out
	checked int   // before which of the statements the last check stands, from 1
}

// query takes the statements of one message.
func (e *explainer) query(text []byte, stmts []sqlrewrite.Statement) {
	e.session.meaningOf(text, stmts, e.options)
	first, in := len(e.out), e.txn.block
	fails := len(stmts) == 1 && in == blockNone && stmts[0].Flags&sqlrewrite.NeedsBlock != 0
	refused := 0
	for _, st := range stmts {
		x := Explanation{Statement: st, Settings: sqlrewrite.Settings(text, st, e.options), Refusal: e.unfenceable(in, st)}
		e.out = append(e.out, x)
		e.step(st, fails)
		if x.Refusal != nil && refused == 0 {
			refused = len(e.out)
		}
	}
	switch {
	case e.txn.needsLate() && !fails && len(stmts) > 1:
		e.settle(PlaceLate, "after the last statement, if one has written")
	case e.txn.needsLate() && !fails:
		e.settle(PlaceLate, "after the statement, if it has written")
	case e.txn.block == blockNone:
		e.waiting = nil
	}
	e.txn.sync()
	e.txn.settled(e.txn.block, e.txn.checked && e.txn.block == blockOpen, e.txn.ran)
	for i := first; refused > 0 && i < len(e.out); i++ {
		if x := &e.out[i]; x.Check != PlaceRefused {
			x.Check, x.Where = PlaceNone, fmt.Sprintf("not run: statement %d refuses the whole text", refused)
		}
	}
}

// unfenceable refuses as the session does.
func (e *explainer) unfenceable(in block, st sqlrewrite.Statement) *fencing.Error {
	if e.session.requires() && st.Class == sqlrewrite.Prepare2PC {
		return nil
	}
	return e.session.rightly(unfenceableIn(in, st.Class, st.Flags))
}

// step takes the statement that is last in out.
func (e *explainer) step(st sqlrewrite.Statement, fails bool) {
	number := len(e.out)
	x := &e.out[number-1]
	before := e.txn
	c := e.txn.step(st.Class, st.Flags)
	switch {
	case x.Refusal != nil:
		x.Check, x.Where = PlaceRefused, x.Refusal.Message
	case c == checkEarly:
		x.Check, x.Where = PlaceEarly, "before the statement"
		e.settle(PlaceLate, fmt.Sprintf("the check before statement %d covers it", number))
		e.checked = number
	case c != checkNone && st.Class == sqlrewrite.Commit:
		x.Check, x.Where = PlaceLate, "before the statement, if the transaction has written"
		e.settle(PlaceLate, fmt.Sprintf("before the COMMIT, statement %d, if the transaction has written", number))
	case c != checkNone:
		x.Check, x.Where = PlaceLate, "before the tag changes, if the transaction has written"
		e.settle(PlaceLate, fmt.Sprintf("before the tag changes in statement %d, if the transaction has written", number))
	default:
		e.unchecked(x, before, fails)
	}
}

// unchecked says why no check stands before a statement.
func (e *explainer) unchecked(x *Explanation, before txn, fails bool) {
	covered := fmt.Sprintf("the check before statement %d covers it", e.checked)
	st := x.Statement
	switch {
	case fails:
		x.Where = "PostgreSQL refuses it outside a transaction block"
	case st.Flags&sqlrewrite.NotInBlock != 0 && before.block == blockOpen:
		x.Where = "PostgreSQL refuses it inside a transaction block"
	case len(x.Settings) > 0:
		x.Where = "the tag is claimed before the statement is sent"
	case st.Class == sqlrewrite.Begin:
		x.Where = "a check comes before the first statement that may write"
	case st.Class == sqlrewrite.Rollback:
		x.Where = "nothing is committed"
		e.settle(PlaceNone, "the transaction is rolled back")
	case st.Class == sqlrewrite.RollbackTo, st.Class == sqlrewrite.Release:
		x.Where = "it writes nothing; what comes next is checked again"
	case st.Class == sqlrewrite.Commit && before.checked:
		x.Where = covered
	case st.Class == sqlrewrite.Commit:
		x.Where = "nothing has run that may write"
	case st.Class == sqlrewrite.SetOrShow, st.Class == sqlrewrite.Discard:
		x.Where = "it changes settings of the session only"
	case before.checked:
		x.Where = covered
	default:
		x.Check, x.Where = PlaceLate, "before the COMMIT, if the transaction has written"
		e.waiting = append(e.waiting, len(e.out)-1)
	}
}

// settle says where the check went that statements were waiting for.
func (e *explainer) settle(check Placement, where string) {
	for _, i := range e.waiting {
		e.out[i].Check, e.out[i].Where = check, where
	}
	e.waiting = nil
}
