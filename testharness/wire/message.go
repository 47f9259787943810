package wire

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
)

// A Message is what one line of a script sends:
//
//	Q "SELECT 1"                   Query
//	P s1 "SELECT $1" int4          Parse: statement, text, parameter types
//	B p1 s1 "7" null in=1 out=0,1  Bind: portal, statement, values; formats in and out
//	D S s1, D P p1                 Describe
//	E p1 2                         Execute: portal, row limit (0: none)
//	C S s1, C P p1                 Close
//	H S X c                        Flush, Sync, Terminate, CopyDone
//	d "1\ta\n"                     CopyData
//	f "no more"                    CopyFail
//	F 1598 "7" null out=1          FunctionCall: OID, arguments; format of the result
//	p "secret"                     a password
//	startup 3.0 work_mem=1MB       a startup packet: version, and what the player's own
//	                               parameters are followed by
//	ssl, gss                       SSLRequest, GSSENCRequest
//	raw 7e 00000004 "text"         bytes as they stand
//	frame B 00 00 "text" ffff      a message of that type with that body
//	cancel a                       CancelRequest with the key of session a
//	cancel a wrong                 the same with a key that is wrong
//
// The name - is the unnamed statement or portal. A value is "text" as in Go,
// hex:00ff, null, or one of the first two repeated: 1000*"abc".
type Message struct {
	Text  string // the line
	bytes []byte
	// cancel names the session whose key a CancelRequest carries; wrong
	// changes the key.
	cancel string
	wrong  bool
	// startup: bytes are a version and params, which the player's own go before.
	startup bool
	params  []string
}

// Codes in place of a version in the first packet of a connection.
const (
	codeCancel = 80877102
	codeSSL    = 80877103
	codeGSS    = 80877104
)

// types are the names that a Parse may call parameter types by.
var types = map[string]uint32{
	"unspecified": 0, "bool": 16, "bytea": 17, "int8": 20, "int2": 21, "int4": 23, "text": 25,
	"oid": 26, "json": 114, "float8": 701, "unknown": 705, "numeric": 1700,
}

// ParseMessage reads a line.
func ParseMessage(line string) (Message, error) {
	m := Message{Text: strings.TrimSpace(line)}
	words, err := fields(m.Text)
	if err != nil {
		return m, err
	}
	if len(words) == 0 {
		return m, fmt.Errorf("no message")
	}
	e := encoder{words: words[1:]}
	switch verb := words[0]; verb {
	case "cancel":
		m.cancel = e.word()
		m.wrong = len(e.words) > 0 && e.word() == "wrong"
	case "ssl":
		m.bytes = packet(codeSSL)
	case "gss":
		m.bytes = packet(codeGSS)
	case "startup":
		m.startup = true
		m.bytes, m.params = e.startup()
	case "raw":
		m.bytes = e.raw()
	case "frame":
		t := e.word()
		if len(t) != 1 {
			e.fail("%q is no message type", t)
			t = "?"
		}
		m.bytes = framed(t[0], e.raw())
	default:
		if len(verb) != 1 {
			return m, fmt.Errorf("unknown message %q", verb)
		}
		m.bytes = e.frame(verb[0])
	}
	if e.err == nil && len(e.words) > 0 {
		e.err = fmt.Errorf("%q is too much", e.words[0])
	}
	if e.err != nil {
		return m, fmt.Errorf("%s: %w", m.Text, e.err)
	}
	return m, nil
}

// packet makes a first packet: a length, a code or version, and the rest.
func packet(code uint32, rest ...byte) []byte {
	b := binary.BigEndian.AppendUint32(nil, uint32(8+len(rest)))
	return append(binary.BigEndian.AppendUint32(b, code), rest...)
}

// version30 is protocol 3.0 in a startup packet.
const version30 = 3 << 16

// startupPacket makes a packet of a version and pairs of names and values.
func startupPacket(version uint32, params []string) []byte {
	var rest []byte
	for _, p := range params {
		rest = append(append(rest, p...), 0)
	}
	return packet(version, append(rest, 0)...)
}

// An encoder turns the words of a line into bytes. The first error stays.
type encoder struct {
	words []string
	err   error
}

func (e *encoder) fail(format string, args ...any) {
	if e.err == nil {
		e.err = fmt.Errorf(format, args...)
	}
}

func (e *encoder) word() string {
	if len(e.words) == 0 {
		e.fail("a word is missing")
		return ""
	}
	w := e.words[0]
	e.words = e.words[1:]
	return w
}

// cstring reads a word, or a value, that ends in a NUL.
func (e *encoder) cstring() []byte { return append(e.value(), 0) }

// name reads the name of a statement or portal.
func (e *encoder) name() []byte {
	if len(e.words) > 0 && e.words[0] == "-" {
		e.words = e.words[1:]
		return []byte{0}
	}
	return e.cstring()
}

// value reads a value: quoted, in hex, a bare word, or one of them repeated.
func (e *encoder) value() []byte {
	w := e.word()
	times := 1
	if n, rest, ok := strings.Cut(w, "*"); ok {
		if count, err := strconv.Atoi(n); err == nil {
			times, w = count, rest
		}
	}
	var one []byte
	switch {
	case strings.HasPrefix(w, `"`):
		text, err := strconv.Unquote(w)
		if err != nil {
			e.fail("%s is not a quoted text", w)
		}
		one = []byte(text)
	case strings.HasPrefix(w, "hex:"):
		b, err := hex.DecodeString(w[len("hex:"):])
		if err != nil {
			e.fail("%s is not in hex", w)
		}
		one = b
	default:
		one = []byte(w)
	}
	return []byte(strings.Repeat(string(one), times))
}

// rest reads values up to the end of the line.
func (e *encoder) rest() (b []byte) {
	for len(e.words) > 0 {
		b = append(b, e.value()...)
	}
	return b
}

// raw reads bytes in hex and quoted.
func (e *encoder) raw() (b []byte) {
	for len(e.words) > 0 {
		if w := e.words[0]; !strings.ContainsAny(w, `"*`) {
			e.words[0] = "hex:" + w
		}
		b = append(b, e.value()...)
	}
	return b
}

func (e *encoder) startup() (version []byte, params []string) {
	major, minor, _ := strings.Cut(e.word(), ".")
	high, err := strconv.ParseUint(major, 10, 16)
	low, err2 := strconv.ParseUint(minor, 10, 16)
	if err != nil || err2 != nil {
		e.fail("a version is missing")
	}
	for len(e.words) > 0 {
		params = append(params, e.pair()...)
	}
	return binary.BigEndian.AppendUint32(nil, uint32(high<<16|low)), params
}

// pair reads name=value.
func (e *encoder) pair() []string {
	name, _, ok := strings.Cut(e.words[0], "=")
	if !ok {
		e.fail("%q is not name=value", e.words[0])
	}
	e.words[0] = strings.TrimPrefix(e.words[0], name+"=")
	return []string{name, string(e.value())}
}

// frame makes a message of the given type.
func (e *encoder) frame(t byte) []byte {
	var body []byte
	switch t {
	case 'Q', 'f', 'p':
		body = e.cstring()
	case 'd':
		body = e.rest()
	case 'H', 'S', 'X', 'c':
	case 'P':
		body = append(e.name(), e.cstring()...)
		body = append(body, e.types()...)
	case 'B':
		body = append(e.name(), e.name()...)
		body = append(body, e.bound(false)...)
	case 'F':
		body = append(e.number(), e.bound(true)...)
	case 'D', 'C':
		kind := e.word()
		if kind != "S" && kind != "P" {
			e.fail("%q is neither S nor P", kind)
		}
		body = append([]byte(kind), e.name()...)
	case 'E':
		body = e.name()
		if len(e.words) == 0 {
			e.words = []string{"0"}
		}
		body = append(body, e.number()...)
	default:
		e.fail("unknown message type")
	}
	return framed(t, body)
}

// framed puts a header before a body.
func framed(t byte, body []byte) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{t}, uint32(4+len(body))), body...)
}

func (e *encoder) number() []byte {
	w := e.word()
	n, err := strconv.ParseInt(w, 10, 64)
	if err != nil {
		e.fail("%q is not a number", w)
	}
	return binary.BigEndian.AppendUint32(nil, uint32(n))
}

// types reads the parameter types of a Parse.
func (e *encoder) types() []byte {
	b := binary.BigEndian.AppendUint16(nil, uint16(len(e.words)))
	for len(e.words) > 0 {
		if oid, ok := types[e.words[0]]; ok {
			e.words[0] = strconv.Itoa(int(oid))
		}
		b = append(b, e.number()...)
	}
	return b
}

// bound reads the values and formats of a Bind, or of a FunctionCall, which
// has one result.
func (e *encoder) bound(call bool) []byte {
	var values []byte
	var in, out []uint16
	count := 0
	for len(e.words) > 0 {
		switch w := e.words[0]; {
		case strings.HasPrefix(w, "in="), strings.HasPrefix(w, "out="):
			e.words = e.words[1:]
			name, list, _ := strings.Cut(w, "=")
			formats := e.formats(list)
			if name == "in" {
				in = formats
			} else {
				out = formats
			}
			continue
		case w == "null":
			e.words = e.words[1:]
			values = append(values, 0xff, 0xff, 0xff, 0xff)
		default:
			v := e.value()
			values = append(binary.BigEndian.AppendUint32(values, uint32(len(v))), v...)
		}
		count++
	}
	b := shorts(in)
	b = append(binary.BigEndian.AppendUint16(b, uint16(count)), values...)
	if call {
		if len(out) == 0 {
			out = []uint16{0}
		}
		return binary.BigEndian.AppendUint16(b, out[0])
	}
	return append(b, shorts(out)...)
}

func (e *encoder) formats(list string) (out []uint16) {
	for _, f := range strings.Split(list, ",") {
		n, err := strconv.ParseUint(f, 10, 16)
		if err != nil {
			e.fail("%q is not a format", f)
		}
		out = append(out, uint16(n))
	}
	return out
}

// shorts is a list of numbers after its length.
func shorts(list []uint16) []byte {
	b := binary.BigEndian.AppendUint16(nil, uint16(len(list)))
	for _, n := range list {
		b = binary.BigEndian.AppendUint16(b, n)
	}
	return b
}

// fields cuts a line into words; a quoted text, with what stands close before
// it, is one word.
func fields(line string) (words []string, err error) {
	for line = strings.TrimLeft(line, " "); line != ""; line = strings.TrimLeft(line, " ") {
		end := strings.IndexByte(line, ' ')
		if end < 0 {
			end = len(line)
		}
		if quote := strings.IndexByte(line, '"'); quote >= 0 && quote < end {
			text, err := strconv.QuotedPrefix(line[quote:])
			if err != nil {
				return nil, fmt.Errorf("a quote is not closed in %q", line)
			}
			end = quote + len(text)
		}
		words = append(words, line[:end])
		line = line[end:]
	}
	return words, nil
}
