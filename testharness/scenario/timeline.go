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

	granted granted
	at      *front
}

// NewTimeline prints to out.
func NewTimeline(out io.Writer, colour bool) *Timeline {
	t := &Timeline{Out: out, Colour: colour}
	t.Begin()
	return t
}

// Begin is called before the first event of each run.
func (t *Timeline) Begin() {
	t.granted = granted{}
	t.at = newFront(t.granted)
}

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
	text, c := e.Text, plain
	switch e.Kind {
	case KindNote, KindLine, KindSent:
		c = dim
	case KindLock:
		t.granted[Hold{e.Key, e.Token}] = true
		c = cyan
	case KindConnected:
		t.at.advance(e)
	case KindPause, KindExpired, KindResume, KindCrash, KindFault, KindHeal:
		c = yellow
	case KindCommit:
		text, c = t.commit(e)
	case KindRefused:
		text, c = fmt.Sprintf("%s: REFUSED %s %s", e.Story, e.Code, text), green
	case KindFailed:
		text, c = fmt.Sprintf("%s: failed %s %s", e.Story, e.Code, text), red
	case KindRows:
		text = "in the database: " + text
	case KindWrong:
		text, c = "WRONG: "+text, red
	case KindHeld, KindRead, KindStep, KindReleased:
	}
	who := e.Actor
	switch {
	case e.Kind == KindRows || e.Kind == KindWrong:
		who = ""
	case e.Token > 0 && e.Kind != KindExpired:
		who = fmt.Sprintf("%s/%d", e.Actor, e.Token)
	}
	fmt.Fprintf(t.Out, "  %7.3fs  %-10s %s\n", e.At.Round(time.Millisecond).Seconds(), who, t.paint(c, text))
}

// commit tells a commit, and whether it should have been accepted.
func (t *Timeline) commit(e Event) (string, colour) {
	if !t.granted.all(e) {
		return e.Text + ": accepted, though no lock gave that number: a FORGED WRITE", red
	}
	if newest := t.at.stale(e); newest != 0 {
		return fmt.Sprintf("%s: accepted, though token %d is at work: a STALE WRITE", e.Text, newest), red
	}
	return e.Text + ": accepted", green
}

func (t *Timeline) paint(c colour, text string) string {
	if !t.Colour || c == plain {
		return text
	}
	return string(c) + strings.ReplaceAll(text, "\n", "\n"+string(c)) + string(normal)
}
