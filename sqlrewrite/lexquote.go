package sqlrewrite

import (
	"bytes"
	"fmt"
)

// quoted reads a string literal whose opening quote is prefix bytes on, with
// the parts that continue it on later lines.
func (l *lexer) quoted(k kind, prefix int) kind {
	start := l.pos
	escapes := k == kindEscapeString || k == kindString && l.opts.BackslashQuotes
	doubled := k != kindBitString
	l.pos += prefix
	for {
		l.pos++
		if !l.stringBody(escapes, doubled) {
			return l.unterminated("string", start)
		}
		next, ok := continuation(l.text, l.pos)
		if !ok {
			break
		}
		l.pos = next
	}
	if k == kindUnicodeString && l.opts.BackslashQuotes {
		l.err = fmt.Errorf("%w: U&'' at byte %d with standard_conforming_strings off", ErrUnsafe, start)
	}
	return k
}

// stringBody goes from behind an opening quote to behind the closing one. It
// reports whether there is one. It looks for each quote once only, so that a
// string of nothing but backslashes costs no more than its length.
func (l *lexer) stringBody(escapes, doubled bool) bool {
	for {
		n := bytes.IndexByte(l.text[l.pos:], '\'')
		if n < 0 {
			l.pos = len(l.text)
			return false
		}
		quote := l.pos + n
		if escapes && l.escapePast(quote) {
			continue
		}
		l.pos = quote + 1
		if !doubled || l.at(0) != '\'' {
			return true
		}
		l.pos++
	}
}

// escapePast takes the backslashes before a quote, each with the byte behind
// it. It reports whether the last took the quote.
func (l *lexer) escapePast(quote int) bool {
	for l.pos < quote {
		b := bytes.IndexByte(l.text[l.pos:quote], '\\')
		if b < 0 {
			return false
		}
		l.pos += b + 2
	}
	return l.pos > quote
}

// continuation finds the quote that continues a string literal which was
// closed just before pos: they may stand apart by white space with a newline
// in it, and by line comments (scan.l, quotecontinue).
func continuation(text []byte, pos int) (quote int, ok bool) {
	newline := false
	for i := pos; i < len(text); {
		switch c := text[i]; {
		case c == '\'':
			return i, newline
		case c == '\n' || c == '\r':
			newline = true
			i++
		case isSpace(c):
			i++
		case c == '-' && i+1 < len(text) && text[i+1] == '-':
			i = lineEnd(text, i)
		default:
			return 0, false
		}
	}
	return 0, false
}

// delimited reads a quoted identifier whose opening quote is prefix bytes on.
func (l *lexer) delimited(k kind, prefix int) kind {
	start := l.pos
	l.pos += prefix + 1
	for {
		n := bytes.IndexByte(l.text[l.pos:], '"')
		if n < 0 {
			return l.unterminated("quoted identifier", start)
		}
		l.pos += n + 1
		if l.at(0) != '"' {
			return k
		}
		l.pos++
	}
}

func (l *lexer) unterminated(what string, start int) kind {
	l.pos = len(l.text)
	l.err = fmt.Errorf("%w: %s that begins at byte %d", ErrUnterminated, what, start)
	return kindEnd
}

// lineEnd returns where the line that holds pos ends.
func lineEnd(text []byte, pos int) int {
	for i := pos; i < len(text); i++ {
		if text[i] == '\n' || text[i] == '\r' {
			return i
		}
	}
	return len(text)
}
