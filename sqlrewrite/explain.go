package sqlrewrite

import "unicode/utf8"

// In returns the words of a text that decided a statement's class, or "" where
// a setting of the session did.
func (w Why) In(text []byte) string {
	if w.Reason == ReasonOptions {
		return ""
	}
	return string(text[w.Start:w.End])
}

// Position tells where a byte of a text stands: in which line, and at which
// character of it, both from 1.
func Position(text []byte, at int) (line, column int) {
	line, begin := 1, 0
	for i, c := range text[:at] {
		if c == '\n' {
			line, begin = line+1, i+1
		}
	}
	return line, utf8.RuneCount(text[begin:at]) + 1
}
