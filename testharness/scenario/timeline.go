package scenario

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// A Timeline prints the events of a run, one line each.
type Timeline struct {
	Out    io.Writer
	Colour bool

	teller *Teller
}

// NewTimeline prints to out.
func NewTimeline(out io.Writer, colour bool) *Timeline {
	return &Timeline{Out: out, Colour: colour, teller: NewTeller()}
}

// Begin is called before the first event of each run.
func (t *Timeline) Begin() { t.teller = NewTeller() }

// A colour is an ANSI escape sequence (ECMA-48, SGR).
type colour string

const (
	plain  colour = ""
	bold   colour = "\x1b[1m"
	dim    colour = "\x1b[2m"
	red    colour = "\x1b[31m"
	green  colour = "\x1b[32m"
	yellow colour = "\x1b[33m"
	cyan   colour = "\x1b[36m"
	normal colour = "\x1b[0m"
)

// Heading prints a line of its own.
func (t *Timeline) Heading(format string, args ...any) {
	fmt.Fprintf(t.Out, "\n%s\n", t.paint(bold, fmt.Sprintf(format, args...)))
}

// Say prints text as it is.
func (t *Timeline) Say(text string) { fmt.Fprintln(t.Out, text) }

// Good and Bad print a verdict.
func (t *Timeline) Good(format string, args ...any) {
	fmt.Fprintln(t.Out, t.paint(green, fmt.Sprintf(format, args...)))
}

// Bad is Good for bad news.
func (t *Timeline) Bad(format string, args ...any) {
	fmt.Fprintln(t.Out, t.paint(red, fmt.Sprintf(format, args...)))
}

// Print prints an event.
func (t *Timeline) Print(e Event) {
	told := t.teller.Tell(e)
	fmt.Fprintf(t.Out, "  %7.3fs  %-10s %s\n", e.At.Round(time.Millisecond).Seconds(), told.Who, t.paint(told.Tone.colour(), told.Text))
}

func (t Tone) colour() colour {
	switch t {
	case ToneNote:
		return dim
	case ToneLock:
		return cyan
	case ToneFault:
		return yellow
	case ToneGood:
		return green
	case ToneBad:
		return red
	default:
		return plain
	}
}

func (t *Timeline) paint(c colour, text string) string {
	if !t.Colour || c == plain {
		return text
	}
	return string(c) + strings.ReplaceAll(text, "\n", "\n"+string(c)) + string(normal)
}
