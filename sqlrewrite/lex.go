package sqlrewrite

import (
	"bytes"
	"math"
)

// A kind says what a token is, as far as splitting and classifying need it.
type kind uint8

const (
	kindEnd           kind = iota // the end of the text, or an error in it
	kindWord                      // an unquoted identifier or a keyword
	kindQuoted                    // "…"
	kindUnicodeQuoted             // U&"…"
	kindString                    // '…'
	kindEscapeString              // E'…'
	kindUnicodeString             // U&'…'
	kindBitString                 // B'…' and X'…'
	kindDollarString              // $tag$…$tag$
	kindNumber                    // 1, 1.5e3, 0x1F, and whatever junk clings to it
	kindParam                     // $1
	kindOperator                  // +, <>, =, @>, …
	kindCast                      // ::
	kindOpen                      // (
	kindClose                     // )
	kindSemicolon                 // ;
	kindComma                     // ,
	kindDot                       // .
	kindOther                     // any other single byte
)

// A token is a piece of the text without the space before it.
type token struct {
	kind       kind
	start, end int32
}

// maxText is the longest text that positions fit. PostgreSQL takes no message
// over 1 GB (PQ_LARGE_MESSAGE_LIMIT in src/include/libpq/libpq.h).
const maxText = math.MaxInt32

// in returns the bytes of a token.
func (t token) in(text []byte) []byte { return text[t.start:t.end] }

// A lexer cuts a text into tokens, one method per state of PostgreSQL's
// src/backend/parser/scan.l. The states are called directly, not through
// function values, so that a lexer stays on its caller's stack.
type lexer struct {
	text []byte
	opts Options
	pos  int
	err  error
}

// next returns the next token. After kindEnd, err tells whether the text ended
// or can't be lexed.
func (l *lexer) next() token {
	text, start := l.text, l.pos
	for start < len(text) && isSpace(text[start]) {
		start++
	}
	l.pos = start
	k := kindEnd
	if start < len(text) {
		switch c := text[start]; {
		case isIdentStart(c):
			k = l.word(c) // most are words: no detour for them
		case c == '-', c == '/':
			l.gap()
			if start = l.pos; l.err == nil && start < len(text) {
				k = l.start()
			}
		default:
			k = l.start()
		}
	}
	if l.err != nil {
		k = kindEnd
	}
	return token{k, int32(start), int32(l.pos)}
}

// start looks at the first byte of a token and enters the state for it.
func (l *lexer) start() kind {
	c := l.text[l.pos]
	switch {
	case isIdentStart(c):
		return l.word(c)
	case isDigit(c):
		return l.number()
	case isOperator(c):
		return l.operator()
	}
	switch c {
	case '\'':
		return l.quoted(kindString, 0)
	case '"':
		return l.delimited(kindQuoted, 0)
	case '$':
		return l.dollar()
	case '.':
		if isDigit(l.at(1)) {
			return l.number()
		}
		return l.single(kindDot)
	case ':':
		if l.at(1) == ':' {
			l.pos++
			return l.single(kindCast)
		}
		return l.single(kindOther)
	case '(':
		return l.single(kindOpen)
	case ')':
		return l.single(kindClose)
	case ';':
		return l.single(kindSemicolon)
	case ',':
		return l.single(kindComma)
	}
	return l.single(kindOther)
}

// at returns the byte n places on, or 0 behind the end.
func (l *lexer) at(n int) byte {
	if l.pos+n < len(l.text) {
		return l.text[l.pos+n]
	}
	return 0
}

func (l *lexer) single(k kind) kind {
	l.pos++
	return k
}

// gap skips white space and comments.
func (l *lexer) gap() {
	text, pos := l.text, l.pos
	for pos < len(text) {
		c := text[pos]
		if isSpace(c) {
			pos++
			continue
		}
		if c != '-' && c != '/' {
			break
		}
		l.pos = pos
		switch {
		case c == '-' && l.at(1) == '-':
			l.pos = lineEnd(text, pos)
		case c == '/' && l.at(1) == '*':
			l.comment()
		}
		if l.err != nil || l.pos == pos {
			return
		}
		pos = l.pos
	}
	l.pos = pos
}

// comment skips a block comment; they nest.
func (l *lexer) comment() {
	start, depth := l.pos, 1
	for i := l.pos + 2; i < len(l.text); i++ {
		rest := bytes.IndexAny(l.text[i:], "*/")
		if rest < 0 {
			break
		}
		i += rest
		if i+1 >= len(l.text) {
			break
		}
		switch {
		case l.text[i] == '/' && l.text[i+1] == '*':
			depth++
			i++
		case l.text[i] == '*' && l.text[i+1] == '/':
			depth--
			i++
		}
		if depth == 0 {
			l.pos = i + 1
			return
		}
	}
	l.unterminated("comment", start)
}

// word reads an identifier or keyword; a letter that touches a quote makes it
// a string of another kind instead.
func (l *lexer) word(c byte) kind {
	text, pos := l.text, l.pos+1
	for pos < len(text) && isIdent(text[pos]) {
		pos++
	}
	if pos == l.pos+1 && pos < len(text) && (text[pos] == '\'' || text[pos] == '&') {
		return l.letter(c)
	}
	l.pos = pos
	return kindWord
}

// letter reads a word of one letter with a quote or an ampersand behind it.
func (l *lexer) letter(c byte) kind {
	switch next := l.at(1); {
	case next == '\'' && (c == 'e' || c == 'E'):
		return l.quoted(kindEscapeString, 1)
	case next == '\'' && (c == 'b' || c == 'B' || c == 'x' || c == 'X'):
		return l.quoted(kindBitString, 1)
	case next == '&' && (c == 'u' || c == 'U'):
		switch l.at(2) {
		case '\'':
			return l.quoted(kindUnicodeString, 2)
		case '"':
			return l.delimited(kindUnicodeQuoted, 2)
		}
	}
	return l.single(kindWord)
}

// number reads a decimal number. What clings to one (0x1F, 1_000, 1a) comes as
// a word of its own, as PostgreSQL 14 reads it; later versions refuse it or
// take it into the number, and it holds no boundary either way.
func (l *lexer) number() kind {
	l.digits()
	if l.at(0) == '.' && l.at(1) != '.' {
		l.pos++
		l.digits()
	}
	if c := l.at(0); c == 'e' || c == 'E' {
		sign := 1
		if s := l.at(1); s == '+' || s == '-' {
			sign = 2
		}
		if isDigit(l.at(sign)) {
			l.pos += sign
			l.digits()
		}
	}
	return kindNumber
}

func (l *lexer) digits() {
	for isDigit(l.at(0)) {
		l.pos++
	}
}

// dollar reads a parameter, a dollar-quoted string or a lone dollar sign.
func (l *lexer) dollar() kind {
	start := l.pos
	if isDigit(l.at(1)) {
		l.pos++
		l.digits()
		return kindParam
	}
	tag := dollarTag(l.text[start:])
	if tag == 0 {
		return l.single(kindOther)
	}
	body := start + tag
	end := bytes.Index(l.text[body:], l.text[start:body])
	if end < 0 {
		return l.unterminated("dollar-quoted string", start)
	}
	l.pos = body + end + tag
	return kindDollarString
}

// dollarTag returns the length of the opening $tag$ that text begins with, or
// 0. A digit behind the first dollar sign makes a parameter, which is not asked for
// here.
func dollarTag(text []byte) int {
	for i := 1; i < len(text); i++ {
		switch c := text[i]; {
		case c == '$':
			return i + 1
		case !isIdent(c):
			return 0
		}
	}
	return 0
}

// operator reads the longest run of operator characters, cut where a comment
// begins in it, and without a trailing + or - unless one of ~ ! @ # ^ & | ` ?
// % makes the run an operator of a user's making (scan.l, rule {operator}).
func (l *lexer) operator() kind {
	start := l.pos
	n := 0
	for isOperator(l.at(n)) {
		c, d := l.at(n), l.at(n+1)
		if n > 0 && (c == '-' && d == '-' || c == '/' && d == '*') {
			break
		}
		n++
	}
	run := l.text[start : start+n]
	if n > 1 && !bytes.ContainsAny(run, "~!@#^&|`?%") {
		for n > 1 && (run[n-1] == '+' || run[n-1] == '-') {
			n--
		}
	}
	l.pos = start + n
	return kindOperator
}
