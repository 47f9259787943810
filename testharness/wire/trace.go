package wire

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// firstUserOID is the lowest OID of what is made after initdb
// (FirstNormalObjectId in transam.h); such OIDs differ from run to run.
const firstUserOID = 16384

// An Event is one message that came, or one that was sent, as it stands in a
// trace.
type Event struct {
	Session string
	Sent    bool
	Letter  string
	Detail  string // what a Want compares; of a message that came
	Text    string // the body, less what differs from run to run
}

func (e Event) String() string {
	arrow := " < "
	if e.Sent {
		arrow = " > "
	}
	return e.Session + arrow + strings.TrimRight(e.Letter+" "+e.Text, " ")
}

// A Trace is everything that was sent and came, in the order of the script.
type Trace []Event

// Lines is the trace as text.
func (t Trace) Lines() []string {
	lines := make([]string, len(t))
	for i, e := range t {
		lines[i] = e.String()
	}
	return lines
}

// settled is the trace with settings that were reported together in the order
// of their names. PostgreSQL 18 reports them in the order of a list in which
// search_path moves when a function sets it for itself, as fence.check does.
func (t Trace) settled() Trace {
	t = slices.Clone(t)
	for from := 0; from < len(t); from++ {
		to := from
		for to < len(t) && t[to].Letter == "S" && !t[to].Sent && t[to].Session == t[from].Session {
			to++
		}
		slices.SortStableFunc(t[from:to], func(a, b Event) int {
			nameA, _, _ := strings.Cut(a.Detail, "=")
			nameB, _, _ := strings.Cut(b.Detail, "=")
			return strings.Compare(nameA, nameB)
		})
		from = max(from, to-1)
	}
	return t
}

// Difference shows where two traces part, with a few lines before it; "" if
// they don't.
func Difference(nameA string, a Trace, nameB string, b Trace) string {
	const context = 6
	as, bs := a.settled().Lines(), b.settled().Lines()
	at := 0
	for at < len(as) && at < len(bs) && as[at] == bs[at] {
		at++
	}
	if at == len(as) && at == len(bs) {
		return ""
	}
	var out strings.Builder
	for _, line := range as[max(0, at-context):at] {
		fmt.Fprintf(&out, "  both: %s\n", line)
	}
	show := func(name string, lines []string) {
		if at == len(lines) {
			fmt.Fprintf(&out, "! %s: nothing more\n", name)
		}
		for _, line := range lines[at:min(len(lines), at+3)] {
			fmt.Fprintf(&out, "! %s: %s\n", name, line)
		}
	}
	show(nameA, as)
	show(nameB, bs)
	return out.String()
}

// read makes an Event of a message from the server. pids names sessions by
// their process ids.
func read(letter byte, body []byte, pids map[uint32]string) Event {
	e := Event{Letter: string(letter)}
	d := decoder{body: body}
	switch letter {
	case 'E', 'N':
		e.Detail, e.Text = d.report(letter)
	case 'Z':
		e.Detail = string(d.rest())
	case 'C':
		e.Detail = d.text()
	case 'S':
		e.Detail = d.text() + "=" + d.text()
	case 'D':
		e.Detail = d.row()
	case 'T':
		e.Detail, e.Text = d.columns()
	case 't':
		e.Detail = d.parameters()
	case 'K':
		d.take(4)
		e.Text = fmt.Sprintf("key of %d bytes", len(d.rest()))
	case 'A':
		from := pids[d.number(4)]
		e.Detail = d.text()
		e.Text = fmt.Sprintf("%s from %s: %q", e.Detail, from, d.text())
	case 'R':
		code := d.number(4)
		e.Detail = strconv.Itoa(int(code))
		if rest := d.rest(); code == authSASL {
			e.Text = quoted(rest)
		}
	case 'V':
		e.Detail = "null"
		if n := d.number(4); n != null {
			e.Detail = string(d.take(int(n)))
		}
	case 'v':
		e.Detail = strconv.Itoa(int(d.number(4)))
		d.rest()
		e.Text = quoted(body)
	case 'd':
		e.Detail = strings.TrimSuffix(string(d.rest()), "\n")
		e.Text = quoted(body)
	default:
		e.Text = quoted(d.rest())
	}
	if d.bad || len(d.body) > 0 {
		e.Text = "malformed: " + quoted(body)
	} else if e.Text == "" {
		e.Text = quoted([]byte(e.Detail))
	}
	return e
}

// authSASL is the authentication request whose body, the names of mechanisms,
// is the same each time; others carry salts.
const authSASL = 10

// null is the length of a value that is none.
const null = 0xffffffff

// quoted shows bytes, by their number and digest if they are many.
func quoted(b []byte) string {
	const most = 400
	if len(b) > most {
		return fmt.Sprintf("%d bytes %x", len(b), sha256.Sum256(b))
	}
	return strconv.Quote(string(b))
}

// A decoder takes a body apart. bad stays once something didn't fit.
type decoder struct {
	body []byte
	bad  bool
}

func (d *decoder) take(n int) []byte {
	if n < 0 || n > len(d.body) {
		d.bad = true
		d.body = nil
		return make([]byte, min(max(n, 0), 8))
	}
	b := d.body[:n]
	d.body = d.body[n:]
	return b
}

func (d *decoder) rest() []byte { return d.take(len(d.body)) }

// number reads a number of 1, 2 or 4 bytes.
func (d *decoder) number(size int) (n uint32) {
	for _, b := range d.take(size) {
		n = n<<8 | uint32(b)
	}
	return n
}

func (d *decoder) text() string {
	end := bytes.IndexByte(d.body, 0)
	if end < 0 {
		d.bad = true
		return ""
	}
	b := d.take(end + 1)
	return string(b[:end])
}

// oid shows an OID, if it is the same each time.
func (d *decoder) oid() string {
	if n := d.number(4); n < firstUserOID {
		return strconv.Itoa(int(n))
	}
	return "own"
}

// report shows the fields of an error or notice, less where in the server's
// source it was raised.
func (d *decoder) report(letter byte) (detail, text string) {
	var severity, code string
	for len(d.body) > 1 {
		field := string(d.take(1))
		value := d.text()
		switch field {
		case "F", "L", "R":
			continue
		case "V":
			severity = value
		case "C":
			code = value
		}
		text += field + quoted([]byte(value)) + " "
	}
	d.bad = d.bad || d.number(1) != 0
	if letter == 'N' {
		return code, text
	}
	return severity + " " + code, text
}

func (d *decoder) row() string {
	values := make([]string, d.number(2))
	for i := range values {
		values[i] = `\N`
		if n := d.number(4); n != null {
			values[i] = string(d.take(int(n)))
		}
	}
	return strings.Join(values, "|")
}

func (d *decoder) columns() (names, text string) {
	list := make([]string, d.number(2))
	for i := range list {
		list[i] = d.text()
		text += fmt.Sprintf("%s(table %s.%d type %s/%d/%d format %d) ",
			list[i], d.oid(), d.number(2), d.oid(), d.number(2), d.number(4), d.number(2))
	}
	return strings.Join(list, "|"), text
}

func (d *decoder) parameters() string {
	list := make([]string, d.number(2))
	for i := range list {
		list[i] = d.oid()
	}
	return strings.Join(list, "|")
}
