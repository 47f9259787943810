package sqlrewrite

import "bytes"

// Traceparent returns the value of traceparent in a comment of a text, as
// sqlcommenter writes it, /*traceparent='…'*/, beside others in any order; nil if
// there is none. It looks at comments only: what stands in a string or behind --
// is none. The value may be anything that has no quote in it.
func Traceparent(text []byte, o Options) []byte {
	if !bytes.Contains(text, []byte(traceparent)) {
		return nil
	}
	lex := lexer{text: text, opts: o}
	for {
		from := lex.pos
		t := lex.next()
		if found := inGap(text[from:t.start]); found != nil {
			return found
		}
		if t.kind == kindEnd {
			return nil
		}
	}
}

const traceparent = "traceparent='"

// inGap looks at what stands between two tokens: white space and whole comments.
func inGap(gap []byte) []byte {
	for i := 0; i < len(gap); {
		switch rest := gap[i:]; {
		case bytes.HasPrefix(rest, []byte("--")):
			i = lineEnd(gap, i)
		case bytes.HasPrefix(rest, []byte("/*")):
			lex := lexer{text: gap, pos: i}
			lex.comment()
			if lex.err != nil {
				return nil // not reached: it was lexed before
			}
			if found := inComment(gap[i+2 : lex.pos-2]); found != nil {
				return found
			}
			i = lex.pos
		default:
			i++
		}
	}
	return nil
}

// inComment looks for a field of that name, not for one whose name ends so.
func inComment(comment []byte) []byte {
	for at := 0; ; {
		next := bytes.Index(comment[at:], []byte(traceparent))
		if next < 0 {
			return nil
		}
		field := at + next
		at = field + len(traceparent)
		if field > 0 && comment[field-1] != ',' && !isSpace(comment[field-1]) {
			continue
		}
		if end := bytes.IndexByte(comment[at:], '\''); end >= 0 {
			return comment[at : at+end]
		}
		return nil
	}
}
