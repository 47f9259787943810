package sqlrewrite

import "fmt"

// Explain tells in one line how a statement of text is classified, and because
// of which of its words.
func (s Statement) Explain(text []byte) string {
	line := fmt.Sprintf("%v: %v", s.Class, s.Why.Reason)
	if s.Why.Reason != ReasonOptions {
		line = fmt.Sprintf("%v: %q: %v", s.Class, text[s.Why.Start:s.Why.End], s.Why.Reason)
	}
	if s.Flags != 0 {
		line += fmt.Sprintf(" (%v)", s.Flags)
	}
	return line
}
