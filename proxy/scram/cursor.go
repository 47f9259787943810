package scram

import "fmt"

// A cursor reads the attributes of a SCRAM message in their order. The first
// fault stays: its detail is what PostgreSQL says of it, and all later reads
// are empty.
type cursor struct {
	text   string
	at     int
	detail string
}

// peek returns the byte at the cursor; 0 at the end, which is how PostgreSQL
// shows it, and which nobody asks for.
func (c *cursor) peek() byte {
	if c.at >= len(c.text) {
		return 0
	}
	return c.text[c.at]
}

func (c *cursor) ended() bool { return c.at >= len(c.text) }

// fail keeps the first fault.
func (c *cursor) fail(format string, args ...any) {
	if c.detail == "" {
		c.detail = fmt.Sprintf(format, args...)
	}
}

// value reads the value of the attribute that must come next, and the comma
// behind it. PostgreSQL: read_attr_value in auth-scram.c.
func (c *cursor) value(attr byte) string {
	if c.detail != "" {
		return ""
	}
	if got := c.peek(); got != attr {
		c.fail("Expected attribute \"%c\" but found \"%s\".", attr, printable(got))
		return ""
	}
	return c.rest(attr)
}

// any reads whichever attribute comes next. PostgreSQL: read_any_attr.
func (c *cursor) any() (attr byte, value string) {
	if c.detail != "" {
		return 0, ""
	}
	attr = c.peek()
	if c.ended() {
		c.fail("Attribute expected, but found end of string.")
		return 0, ""
	}
	if lower := attr | 0x20; lower < 'a' || lower > 'z' {
		c.fail("Attribute expected, but found invalid character \"%s\".", printable(attr))
		return 0, ""
	}
	return attr, c.rest(attr)
}

// rest reads "=value" behind the name of attr.
func (c *cursor) rest(attr byte) string {
	c.at++
	if c.peek() != '=' {
		c.fail("Expected character \"=\" for attribute \"%c\".", attr)
		return ""
	}
	c.at++
	begin := c.at
	for !c.ended() && c.peek() != ',' {
		c.at++
	}
	value := c.text[begin:c.at]
	if !c.ended() {
		c.at++
	}
	return value
}

// comma reads a comma.
func (c *cursor) comma() {
	if c.detail != "" {
		return
	}
	if got := c.peek(); got != ',' {
		c.fail("Comma expected, but found character \"%s\".", printable(got))
		return
	}
	c.at++
}

// printable returns a byte as PostgreSQL shows it (sanitize_char).
func printable(b byte) string {
	if b >= 0x21 && b <= 0x7e {
		return fmt.Sprintf("'%c'", b)
	}
	return fmt.Sprintf("0x%02x", b)
}

// printableText returns the beginning of a text as PostgreSQL shows it
// (sanitize_str).
func printableText(text string) string {
	const most = 30
	out := []byte(text[:min(len(text), most)])
	for i, b := range out {
		if b < 0x21 || b > 0x7e {
			out[i] = '?'
		}
	}
	return string(out)
}

// isNonce reports whether all of text is what RFC 5802 calls printable, which
// leaves out the comma.
func isNonce(text string) bool {
	for i := range len(text) {
		if text[i] < 0x21 || text[i] > 0x7e || text[i] == ',' {
			return false
		}
	}
	return true
}
