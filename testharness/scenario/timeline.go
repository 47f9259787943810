package scenario

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/fenceproxy/fenceproxy/fencing"
)

// A Timeline prints a history as it grows, one line an event.
type Timeline struct {
	Out    io.Writer
	Colour bool

	highest map[string]fencing.Token // of sessions that had an answer, by key
}

// NewTimeline prints to out.
func NewTimeline(out io.Writer, colour bool) *Timeline {
	return &Timeline{Out: out, Colour: colour, highest: map[string]fencing.Token{}}
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

// Print prints an event. It is a History's Observe.
func (t *Timeline) Print(e Event) {
	text, c := e.Text, plain
	switch e.Kind {
	case KindNote:
		c = dim
	case KindLock:
		c = cyan
	case KindConnected:
		t.highest[e.Key] = max(t.highest[e.Key], e.Token)
	case KindPause, KindExpired, KindResume:
		c = yellow
	case KindCommit:
		text, c = text+": accepted", green
		if newest := t.highest[e.Key]; e.Token < newest {
			text, c = fmt.Sprintf("%s, though token %d is at work: a STALE WRITE", text, newest), red
		}
	case KindRefused:
		text, c = fmt.Sprintf("%s: REFUSED %s %s", e.Story, e.Code, text), green
	case KindFailed:
		text, c = fmt.Sprintf("%s: failed %s %s", e.Story, e.Code, text), red
	case KindRows:
		text = "in the database: " + text
	case KindHeld, KindRead, KindStep:
	}
	who := e.Actor
	if e.Token > 0 && e.Actor != "etcd" {
		who = fmt.Sprintf("%s/%d", e.Actor, e.Token)
	}
	fmt.Fprintf(t.Out, "  %7.3fs  %-6s %s\n", e.At.Round(time.Millisecond).Seconds(), who, t.paint(c, text))
}

func (t *Timeline) paint(c colour, text string) string {
	if !t.Colour || c == plain {
		return text
	}
	return string(c) + strings.ReplaceAll(text, "\n", "\n"+string(c)) + string(normal)
}
