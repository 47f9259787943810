package sqlrewrite

import (
	"bytes"
	"unicode/utf8"
)

// MentionsFence reports whether text could set a setting that carries a tag:
// it names one, or a function that takes or gives back a lock, in any case, with
// quotes, space or comments in between; it calls set_config for a setting that the text doesn't name; or it spells
// names with escapes or may do so. RESET ALL, which only takes a tag away, is not a mention.
//
// Not seen are names that come from elsewhere: what EXECUTE, CALL or a user's
// function sets, and names that an expression other than || puts together.
func MentionsFence(text []byte) bool {
	return mentions(text) ||
		hit(text, '&', unicodeEscapesAt) && mentionsEscaped(text) ||
		hit(text, '\\', escapeAt) && hasWord(text, "do")
}

// mentions looks for names as they stand.
func mentions(text []byte) bool {
	return hit(text, 'f', settingAt) || hit(text, 'F', settingAt)
}

// mentionsEscaped looks for names behind the escapes of U&"…" and U&'…'. Where
// the escape character is another one, or the text is one of code that may
// hold a second layer of quotes, anything may be a name.
func mentionsEscaped(text []byte) bool {
	if hasWord(text, "uescape") || hasWord(text, "do") {
		return true
	}
	plain := withoutUnicodeEscapes(text)
	return mentions(plain) || hit(plain, '&', unicodeEscapesAt)
}

// hit reports whether at says yes for any place of c in text.
func hit(text []byte, c byte, at func([]byte, int) bool) bool {
	for i := 0; ; i++ {
		n := bytes.IndexByte(text[i:], c)
		if n < 0 {
			return false
		}
		if i += n; at(text, i) {
			return true
		}
	}
}

// settingAt looks at the f of fence or of set_config.
func settingAt(text []byte, i int) bool {
	if hasFold(text[i:], "fence") {
		return namesSetting(text[i+len("fence"):])
	}
	const call, f = "set_config", len("set_con")
	if i >= f && hasFold(text[i-f:], call) {
		return configuresAnything(text[i-f+len(call):])
	}
	return false
}

// namesSetting looks at what follows "fence". Where a dot does, a name that
// can't become key, token or tokens is some object of schema fence.
func namesSetting(rest []byte) bool {
	if len(rest) == 0 || isIdent(rest[0]) {
		return false
	}
	rest = skipQuotes(rest)
	if len(rest) == 0 {
		return false
	}
	if rest[0] != '.' {
		// Put together, a comment in between, or an escape for the dot.
		return hasFold(rest, "||") || hasFold(rest, "--") || hasFold(rest, "/*") || rest[0] == '\\'
	}
	rest = skipQuotes(rest[1:])
	n := 0
	for n < len(rest) && isIdent(rest[n]) {
		n++
	}
	const long, short = "tokens", "key"
	return n < len(rest) && rest[n] == '\\' ||
		namesVerb(rest[:n]) ||
		n <= len(long) && hasFold(rest, long[:n]) ||
		n <= len(short) && hasFold(rest, short[:n])
}

// namesVerb reports whether word is the function of a Verb.
func namesVerb(word []byte) bool {
	for _, v := range [...]Verb{AcquireLock, RenewLock, ReleaseLock} {
		if name := v.String(); len(word) == len(name) && hasFold(word, name) {
			return true
		}
	}
	return false
}

// configuresAnything looks at what follows "set_config": only a plain string
// constant as the first argument says which setting it is.
func configuresAnything(rest []byte) bool {
	if len(rest) > 0 && rest[0] == '"' {
		rest = rest[1:]
	}
	rest = skipSpace(rest)
	if len(rest) == 0 {
		return false
	}
	if rest[0] != '(' {
		return rest[0] == '/' || rest[0] == '-'
	}
	rest = skipSpace(rest[1:])
	if len(rest) == 0 || rest[0] != '\'' {
		return true
	}
	n := bytes.IndexByte(rest[1:], '\'')
	if n < 0 {
		return true
	}
	name, after := rest[1:1+n], skipSpace(rest[n+2:])
	return bytes.IndexByte(name, '\\') >= 0 || len(after) == 0 || after[0] != ','
}

// unicodeEscapesAt looks at the ampersand of U&"…" and U&'…'.
func unicodeEscapesAt(text []byte, i int) bool {
	return i > 0 && text[i-1]|0x20 == 'u' && i+1 < len(text) && (text[i+1] == '\'' || text[i+1] == '"')
}

// withoutUnicodeEscapes returns text as if it had none: U&"…" becomes "…",
// and \XXXX and \+XXXXXX the character that they stand for, wherever they are.
func withoutUnicodeEscapes(text []byte) []byte {
	plain := make([]byte, 0, len(text))
	for i := 0; i < len(text); i++ {
		switch rest := text[i+1:]; {
		case text[i]|0x20 == 'u' && len(rest) > 0 && rest[0] == '&' && unicodeEscapesAt(text, i+1):
			i++
		case text[i] != '\\' || len(rest) == 0:
			plain = append(plain, text[i])
		case rest[0] == '\\':
			plain = append(plain, '\\')
			i++
		default:
			sign := 0
			want := 4
			if rest[0] == '+' {
				sign, want = 1, 6
			}
			v, n := digits(rest[sign:], 16, want)
			if n < want {
				plain = append(plain, '\\')
				continue
			}
			plain = utf8.AppendRune(plain, v)
			i += sign + n
		}
	}
	return plain
}

// escapeAt looks at a backslash that may stand for a letter.
func escapeAt(text []byte, i int) bool {
	if i+1 >= len(text) {
		return false
	}
	c := text[i+1]
	return c >= '0' && c <= '7' || c == 'x' || c == 'u' || c == 'U'
}

// hasWord reports whether word, in lower case, stands anywhere in text.
func hasWord(text []byte, word string) bool {
	for i := range text {
		if hasFold(text[i:], word) &&
			(i == 0 || !isIdent(text[i-1])) &&
			(i+len(word) == len(text) || !isIdent(text[i+len(word)])) {
			return true
		}
	}
	return false
}

// hasFold reports whether text begins with want, which is in lower case,
// whatever the case of text.
func hasFold(text []byte, want string) bool {
	if len(text) < len(want) {
		return false
	}
	for i := range len(want) {
		if lower(text[i]) != want[i] {
			return false
		}
	}
	return true
}

func skipSpace(b []byte) []byte {
	for len(b) > 0 && isSpace(b[0]) {
		b = b[1:]
	}
	return b
}

func skipQuotes(b []byte) []byte {
	for len(b) > 0 && (isSpace(b[0]) || b[0] == '"' || b[0] == '\'') {
		b = b[1:]
	}
	return b
}
