package sqlrewrite

import "unicode/utf8"

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

// OriginalPosition maps the position of an ErrorResponse, in characters of the
// text that Insert made and counted from 1, to one in text, the original. It
// returns 0 for a position inside an insertion, which the client never wrote.
// One behind the end, or in an EXECUTE but not among its arguments, is of
// another text, that of the PREPARE, and stays.
//
// Characters are those of UTF-8, or bytes where text isn't valid UTF-8.
func OriginalPosition(ins []Insertion, text []byte, pos int) int {
	own := originalPosition(ins, text, pos)
	if first, last, ok := arguments(text); ok && (own <= first+1 || own > last) {
		return pos
	}
	return own
}

func originalPosition(ins []Insertion, text []byte, pos int) int {
	before, from := 0, 0 // characters and bytes of text passed
	at := pos - 1        // what is left of pos in text
	valid := utf8.Valid(text)
	for _, in := range ins {
		before += characters(text[from:in.At], valid)
		from = in.At
		if at < before {
			break
		}
		added := characters([]byte(in.Text), true)
		if at < before+added {
			return 0
		}
		at -= added
	}
	if at > before+characters(text[from:], valid) {
		return pos
	}
	return at + 1
}

// arguments returns the places of the parentheses of an EXECUTE, in characters,
// if text is one and nothing else. What only begins like one is refused as a
// whole, with a place of its own.
func arguments(text []byte) (first, last int, ok bool) {
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
	valid := utf8.Valid(text)
	return characters(text[:from], valid), characters(text[:to], valid), t.kind == kindEnd
}

func characters(b []byte, valid bool) int {
	if !valid {
		return len(b)
	}
	return utf8.RuneCount(b)
}
