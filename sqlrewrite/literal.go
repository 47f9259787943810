package sqlrewrite

import (
	"unicode/utf16"
	"unicode/utf8"
)

// stringValue returns what a string constant stands for. It reports false for
// those whose value can't be told here: U&'…', and escapes that PostgreSQL
// refuses.
func stringValue(text []byte, t token, o Options) (string, bool) {
	raw := t.in(text)
	switch t.kind {
	case kindDollarString:
		tag := dollarTag(raw)
		return string(raw[tag : len(raw)-tag]), true
	case kindString:
		return unquote(raw, 0, o.BackslashQuotes)
	case kindEscapeString:
		return unquote(raw, 1, true)
	}
	return "", false
}

// unquote decodes a literal, with its continuations, whose quote is prefix
// bytes on.
func unquote(raw []byte, prefix int, escapes bool) (string, bool) {
	var out []byte
	for i := prefix + 1; i < len(raw); {
		switch c := raw[i]; {
		case c == '\'' && i+1 < len(raw) && raw[i+1] == '\'':
			out = append(out, '\'')
			i += 2
		case c == '\'':
			next, more := continuation(raw, i+1)
			if !more {
				return string(out), i+1 == len(raw)
			}
			i = next + 1
		case c == '\\' && escapes:
			var n int
			if out, n = unescape(out, raw[i+1:]); n == 0 {
				return "", false
			}
			i += 1 + n
		default:
			out = append(out, c)
			i++
		}
	}
	return "", false
}

// unescape appends what a backslash and the bytes of rest stand for, and
// returns how many of them it took; 0 if PostgreSQL refuses them or its version
// matters.
func unescape(out, rest []byte) ([]byte, int) {
	if len(rest) == 0 {
		return out, 0
	}
	switch c := rest[0]; c {
	case 'b':
		return append(out, '\b'), 1
	case 'f':
		return append(out, '\f'), 1
	case 'n':
		return append(out, '\n'), 1
	case 'r':
		return append(out, '\r'), 1
	case 't':
		return append(out, '\t'), 1
	case 'v': // a vertical tab from PostgreSQL 16 on, a v before
		return out, 0
	case '0', '1', '2', '3', '4', '5', '6', '7':
		v, n := digits(rest, 8, 3)
		return escapedByte(out, v, n)
	case 'x':
		v, n := digits(rest[1:], 16, 2)
		if n == 0 {
			return append(out, 'x'), 1
		}
		return escapedByte(out, v, 1+n)
	case 'u', 'U':
		return escapedRune(out, rest)
	default:
		return append(out, c), 1
	}
}

func escapedByte(out []byte, v rune, n int) ([]byte, int) {
	if byte(v) == 0 {
		return out, 0
	}
	return append(out, byte(v)), n
}

// escapedRune decodes \uXXXX and \UXXXXXXXX, surrogate pairs too.
func escapedRune(out, rest []byte) ([]byte, int) {
	v, n := unicodeEscape(rest)
	if n == 0 {
		return out, 0
	}
	if utf16.IsSurrogate(v) {
		if len(rest) <= n || rest[n] != '\\' {
			return out, 0
		}
		low, m := unicodeEscape(rest[n+1:])
		v = utf16.DecodeRune(v, low)
		if m == 0 || v == utf8.RuneError {
			return out, 0
		}
		n += 1 + m
	}
	if v == 0 || !utf8.ValidRune(v) {
		return out, 0
	}
	return utf8.AppendRune(out, v), n
}

func unicodeEscape(rest []byte) (v rune, n int) {
	if len(rest) == 0 {
		return 0, 0
	}
	want := 0
	switch rest[0] {
	case 'u':
		want = 4
	case 'U':
		want = 8
	}
	v, n = digits(rest[1:], 16, want)
	if want == 0 || n != want {
		return 0, 0
	}
	return v, 1 + n
}

// digits reads at most most digits of a base up to 16.
func digits(b []byte, base rune, most int) (v rune, n int) {
	for n < most && n < len(b) {
		d := rune(16)
		switch c := b[n]; {
		case isDigit(c):
			d = rune(c - '0')
		case c|0x20 >= 'a' && c|0x20 <= 'f':
			d = rune(c|0x20-'a') + 10
		}
		if d >= base {
			break
		}
		v = v*base + d
		n++
	}
	return v, n
}

// identValue returns the name that an identifier stands for; false for
// U&"…" and for unquoted ones whose case a server may fold otherwise.
func identValue(text []byte, t token) (string, bool) {
	raw := t.in(text)
	switch t.kind {
	case kindWord:
		out := make([]byte, len(raw))
		for i, c := range raw {
			if c >= 0x80 {
				return "", false
			}
			out[i] = lower(c)
		}
		return string(out), len(out) <= maxIdent
	case kindQuoted:
		var out []byte
		for i := 1; i < len(raw)-1; i++ {
			if raw[i] == '"' {
				i++
			}
			out = append(out, raw[i])
		}
		return string(out), len(out) <= maxIdent
	}
	return "", false
}

// maxIdent is the length that PostgreSQL cuts identifiers to, in bytes
// (NAMEDATALEN in src/include/pg_config_manual.h, less one).
const maxIdent = 63
