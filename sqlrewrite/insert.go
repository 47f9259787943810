package sqlrewrite

import (
	"strings"
	"unicode/utf8"
)

// An Insertion is text to put in before byte At of an original.
type Insertion struct {
	At   int
	Text string
}

// Insert appends text with every insertion put in to dst. ins ascend by At;
// those of the same place come out in their order.
func Insert(dst, text []byte, ins []Insertion) []byte {
	from := 0
	for _, in := range ins {
		dst = append(dst, text[from:in.At]...)
		dst = append(dst, in.Text...)
		from = in.At
	}
	return append(dst, text[from:]...)
}

// Positions maps places in a text that Insert made to places in the original.
// It keeps neither of them.
//
// Characters are those of UTF-8, or bytes where the original isn't valid UTF-8.
type Positions struct {
	places []place // in the order of the insertions
	few    [2]place
	length int // of the original, in characters
	// separator is the position of the ";" that stands between the end of the
	// original and what Insert put there, in what it made; 0 if nothing does.
	separator int
	// The parentheses of an EXECUTE, which is all of the original.
	execute     bool
	first, last int
}

// A place is where an insertion stands, in characters.
type place struct{ before, added int }

// NewPositions returns the Positions of what Insert makes of text.
func NewPositions(text []byte, ins []Insertion) *Positions {
	p := &Positions{}
	p.places = p.few[:0] // as a rule they fit
	valid := utf8.Valid(text)
	from, added := 0, 0
	for _, in := range ins {
		p.length += characters(text[from:in.At], valid)
		from = in.At
		here := place{p.length, characters([]byte(in.Text), true)}
		if in.At == len(text) && strings.HasPrefix(in.Text, Separator) {
			p.separator = p.length + added + len(Separator)
		}
		p.places = append(p.places, here)
		added += here.added
	}
	p.length += characters(text[from:], valid)
	p.first, p.last, p.execute = arguments(text, valid)
	return p
}

// Separator is what an insertion at the end of a text begins with: on a line of
// its own, for the text may end in a comment.
const Separator = "\n;"

// Separator returns the position of the ";" of a Separator in what Insert made,
// 0 if there is none. A syntax error there is one at the end of the original,
// which ends too early.
func (p *Positions) Separator() int { return p.separator }

// Original maps the position of an ErrorResponse, in characters counted from 1.
// It returns 0 for a position inside an insertion, which the client never wrote,
// but the end for one where the text ends too early.
// One behind the end, or in an EXECUTE but not among its arguments, is of
// another text, that of the PREPARE, and stays.
func (p *Positions) Original(pos int) int {
	if pos == p.separator && pos > 0 {
		return p.length + 1
	}
	own := p.original(pos)
	if p.execute && (own <= p.first+1 || own > p.last) {
		return pos
	}
	return own
}

func (p *Positions) original(pos int) int {
	at := pos - 1 // what is left of pos in the original
	for _, in := range p.places {
		if at < in.before {
			break
		}
		if at < in.before+in.added {
			return 0
		}
		at -= in.added
	}
	if at > p.length {
		return pos
	}
	return at + 1
}

// arguments returns the places of the parentheses of an EXECUTE, in characters,
// if text is one and nothing else. What only begins like one is refused as a
// whole, with a place of its own.
func arguments(text []byte, valid bool) (first, last int, ok bool) {
	lex := lexer{text: text}
	if t := lex.next(); t.kind != kindWord || keywordOf(t.in(text)) != kwExecute {
		return 0, 0, false
	}
	if t := lex.next(); t.kind != kindWord && t.kind != kindQuoted {
		return 0, 0, false
	}
	var from, to int32
	t := lex.next()
	if t.kind == kindOpen {
		from = t.start
		for depth := 1; depth > 0; {
			switch t = lex.next(); t.kind {
			case kindOpen:
				depth++
			case kindClose:
				depth--
			case kindSemicolon, kindEnd:
				return 0, 0, false
			}
		}
		to = t.start
		t = lex.next()
	}
	for t.kind == kindSemicolon {
		t = lex.next()
	}
	return characters(text[:from], valid), characters(text[:to], valid), t.kind == kindEnd
}

func characters(b []byte, valid bool) int {
	if !valid {
		return len(b)
	}
	return utf8.RuneCount(b)
}
