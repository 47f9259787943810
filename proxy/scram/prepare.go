package scram

import (
	"strings"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// prepare puts a password into the form that is hashed: SASLprep (RFC 4013)
// as PostgreSQL does it (saslprep.c), which leaves a password as it is if it
// isn't UTF-8 or holds what SASLprep prohibits. Like PostgreSQL it looks for
// that before normalization, where the RFC says after. Unlike PostgreSQL's,
// the normalization breaks up runs of over 30 combining marks.
func prepare(password string) string {
	if isASCII(password) || !utf8.ValidString(password) {
		return password // nothing to map: control characters stay too
	}
	mapped := strings.Map(mapRune, password)
	if mapped == "" || strings.ContainsFunc(mapped, func(r rune) bool { return within(prohibited, r) }) || mixesDirections(mapped) {
		return password
	}
	return norm.NFKC.String(mapped)
}

func isASCII(text string) bool {
	for i := range len(text) {
		if text[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// mapRune makes spaces of spaces (RFC 3454, table C.1.2) and drops what is
// commonly mapped to nothing (table B.1). U+200B is in both: it is a space.
func mapRune(r rune) rune {
	switch {
	case r == 0x00a0, r == 0x1680, r >= 0x2000 && r <= 0x200b, r == 0x202f, r == 0x205f, r == 0x3000:
		return ' '
	case r == 0x00ad, r == 0x034f, r == 0x1806, r >= 0x180b && r <= 0x180d,
		r == 0x200c, r == 0x200d, r == 0x2060, r >= 0xfe00 && r <= 0xfe0f, r == 0xfeff:
		return -1
	}
	return r
}

// mixesDirections reports whether text, which is not empty, breaks the rules
// for right-to-left text (RFC 3454, section 6).
func mixesDirections(text string) bool {
	rtl := func(r rune) bool { return within(rightToLeft, r) }
	if !strings.ContainsFunc(text, rtl) {
		return false
	}
	first, _ := utf8.DecodeRuneInString(text)
	last, _ := utf8.DecodeLastRuneInString(text)
	return !rtl(first) || !rtl(last) || strings.ContainsFunc(text, func(r rune) bool { return within(leftToRight, r) })
}
