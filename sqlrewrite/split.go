package sqlrewrite

import (
	"bytes"
	"fmt"
)

// Split appends the statements of text to dst, in order. Nothing between two
// semicolons yields nothing. text is what a message holds up to its first NUL.
//
// The error wraps ErrUnterminated, ErrUnsafe or ErrUncertain; dst comes back without any
// statement of text then. Text that PostgreSQL can't parse is split somehow.
func Split(dst []Statement, text []byte, o Options) ([]Statement, error) {
	if err := certain(text, o); err != nil {
		return dst, err
	}
	had := len(dst)
	s := splitter{lex: lexer{text: text, opts: o}, mentions: MentionsFence(text)}
	for {
		t := s.lex.next()
		switch {
		case t.kind == kindEnd:
			if s.lex.err != nil {
				return dst[:had], s.lex.err
			}
			if s.n > 0 {
				dst = append(dst, s.statement())
			}
			return dst, nil
		case t.kind == kindSemicolon && s.depth == 0 && s.bodies == 0:
			if s.n > 0 {
				dst = append(dst, s.statement())
				s.reset()
			}
		default:
			s.add(t)
		}
	}
}

// certain refuses text whose bytes may not be the characters that they seem.
func certain(text []byte, o Options) error {
	if len(text) > maxText {
		return fmt.Errorf("%w: %d bytes are longer than any message", ErrUncertain, len(text))
	}
	if i := bytes.IndexByte(text, 0); i >= 0 {
		return fmt.Errorf("%w: NUL at byte %d", ErrUncertain, i)
	}
	if !o.UnsafeEncoding {
		return nil
	}
	for i, c := range text {
		if c >= 0x80 {
			return fmt.Errorf("%w: byte %d is above 0x7F in an encoding that hides quotes", ErrUncertain, i)
		}
	}
	return nil
}

// A splitter finds where statements end. A semicolon ends one unless it stands
// in parentheses (CREATE RULE … DO (a; b)) or in the body of an SQL function
// (BEGIN ATOMIC a; b; END).
type splitter struct {
	lex      lexer
	mentions bool

	// The statement so far.
	n          int // tokens in it
	start, end int32
	depth      int     // open parentheses
	bodies     int     // open BEGIN ATOMIC
	routine    routine // of the innermost body, or of the statement
	prev       keyword
	flags      Flags
	classifier classifier
}

// A routine is how much of CREATE [OR REPLACE] FUNCTION a statement has shown.
type routine uint8

const (
	routineStart   routine = iota // nothing yet
	routineCreate                 // CREATE
	routineOr                     // CREATE OR
	routineReplace                // CREATE OR REPLACE
	routineYes                    // it makes a function or procedure
	routineNo                     // it doesn't
)

func (r routine) next(kw keyword) routine {
	switch {
	case r == routineStart && kw == kwCreate:
		return routineCreate
	case r == routineCreate && kw == kwOr:
		return routineOr
	case r == routineOr && kw == kwReplace:
		return routineReplace
	case (r == routineCreate || r == routineReplace) && kw == kwFunction, r == routineYes:
		return routineYes
	}
	return routineNo
}

// reset makes ready for the next statement of the same text.
func (s *splitter) reset() {
	s.n, s.depth, s.bodies = 0, 0, 0
	s.routine, s.prev, s.flags = routineStart, kwNone, 0
	s.classifier = classifier{}
}

func (s *splitter) add(t token) {
	if s.n == 0 {
		s.start = t.start
	}
	s.n++
	s.end = t.end
	kw := kwNone
	switch t.kind {
	case kindWord:
		if s.classifier.done() {
			return
		}
		kw = keywordOf(t.in(s.lex.text))
	case kindString:
		if bytes.IndexByte(t.in(s.lex.text), '\\') >= 0 {
			s.flags |= Backslash
		}
	case kindOpen:
		s.depth++
	case kindClose:
		s.depth = max(s.depth-1, 0)
	}
	if s.classifier.done() {
		return
	}
	if s.routine != routineNo || s.bodies > 0 {
		s.body(t, kw)
		s.prev = kw
	}
	s.classifier.add(s.lex.text, t, kw)
}

// body follows BEGIN ATOMIC bodies. They nest as far as the grammar goes, and
// stand outside parentheses only. Each statement in one ends in a semicolon,
// so an END that begins a statement ends the body, and no other END does.
func (s *splitter) body(t token, kw keyword) {
	switch {
	case s.depth > 0:
	case t.kind == kindSemicolon:
		s.routine = routineStart
		return
	case s.routine == routineYes && s.prev == kwBegin && kw == kwAtomic:
		s.bodies++
		s.routine = routineStart
		return
	case s.bodies > 0 && s.routine == routineStart && kw == kwEnd:
		s.bodies--
	}
	s.routine = s.routine.next(kw)
}

// statement finishes the statement so far.
func (s *splitter) statement() Statement {
	st := Statement{Start: int(s.start), End: int(s.end)}
	st.Class, st.Flags, st.Why = s.classifier.verdict()
	st.Flags |= s.flags
	if s.mentions && MentionsFence(s.lex.text[s.start:s.end]) {
		st.Flags |= TouchesTag
	}
	if o := s.lex.opts; st.Class == Read && (o.BackslashQuotes || o.UnsafeEncoding) {
		st.Class = MayWrite
		st.Why = Why{ReasonOptions, st.Start, st.End}
	}
	return st
}
