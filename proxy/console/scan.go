package console

import (
	"strings"
)

// A symbol is what a token is.
type symbol uint8

const (
	symEnd symbol = iota
	symWord
	symQuoted // "name"
	symString // 'text'
	symNumber // digits
	symParam  // $1
	symOther  // one character
)

// A token is a piece of a statement.
type token struct {
	symbol symbol
	text   string // a word in lower case; a string or name without quotes
}

// maxWord is how much of a token an error repeats, and the longest that is
// compared with what is known.
const maxWord = 64

func (t token) String() string {
	if t.symbol == symEnd {
		return "the end"
	}
	if len(t.text) > maxWord {
		return `"` + strings.ToValidUTF8(t.text[:maxWord], "") + `…"`
	}
	return `"` + t.text + `"`
}

// scan cuts one statement into tokens, which a symEnd follows. It reads what the
// console's own statements have; of others it makes something.
func scan(text string) (tokens []token) {
	for {
		text = skipGap(text)
		if text == "" {
			return append(tokens, token{symbol: symEnd})
		}
		t, n := first(text)
		tokens, text = append(tokens, t), text[n:]
	}
}

// first returns the token that text begins with, and its length.
func first(text string) (token, int) {
	switch c := text[0]; {
	case c == '\'', c == '"':
		value, n := quoted(text, c)
		if c == '"' {
			return token{symQuoted, value}, n
		}
		return token{symString, value}, n
	case isDigit(c):
		n := span(text, isDigit)
		return token{symNumber, text[:n]}, n
	case c == '$' && len(text) > 1 && isDigit(text[1]):
		n := 1 + span(text[1:], isDigit)
		return token{symParam, text[1:n]}, n
	case isLetter(c):
		n := span(text, func(c byte) bool { return isLetter(c) || isDigit(c) || c == '$' })
		return token{symWord, strings.ToLower(text[:n])}, n
	}
	return token{symOther, text[:1]}, 1
}

// quoted reads what stands between two quotes, in which a double quote is one. A
// missing end is the text's.
func quoted(text string, quote byte) (value string, n int) {
	var b strings.Builder
	for n = 1; n < len(text); n++ {
		if text[n] == quote {
			if n+1 == len(text) || text[n+1] != quote {
				return b.String(), n + 1
			}
			n++
		}
		b.WriteByte(text[n])
	}
	return b.String(), n
}

// skipGap drops spaces and comments.
func skipGap(text string) string {
	for {
		text = strings.TrimLeft(text, " \t\r\n\f\v")
		switch {
		case strings.HasPrefix(text, "--"):
			_, text, _ = strings.Cut(text, "\n")
		case strings.HasPrefix(text, "/*"):
			text = afterComment(text)
		default:
			return text
		}
	}
}

// afterComment drops a comment, in which others may stand.
func afterComment(text string) string {
	depth := 0
	for n := 0; n+1 < len(text); n++ {
		switch text[n : n+2] {
		case "/*":
			depth++
			n++
		case "*/":
			depth--
			n++
			if depth == 0 {
				return text[n+1:]
			}
		}
	}
	return ""
}

func span(text string, of func(byte) bool) int {
	n := 0
	for n < len(text) && of(text[n]) {
		n++
	}
	return n
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

func isLetter(c byte) bool { return c|0x20 >= 'a' && c|0x20 <= 'z' || c == '_' || c >= 0x80 }
