package report

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/fenceproxy/fenceproxy/testharness/scenario"
)

// Sizes, in the units of the drawing, which are CSS pixels at its natural
// size. The room for the text is enough for DejaVu Sans, the widest of the
// fonts that browsers take for sans-serif.
const (
	lineHeight  = 14.0
	rowGap      = 5.0  // between the texts of two events
	laneLeft    = 46.0 // of the first lane; the times stand left of it
	laneWidth   = 22.0
	laneTop     = 74.0 // the names of the lanes stand above
	textGap     = 14.0 // right of the last lane
	textWidth   = 256.0
	textColumns = 38   // characters in it
	waitScale   = 9.0  // how much room waiting takes
	waitMost    = 44.0 // at most
	leaseGap    = 8.0  // between two that a worker holds at once
	shownScale  = 1.15
)

// A diagram is a run as shapes. Classes are those of the page's style sheet.
type diagram struct {
	Width, Height float64
	Shown         float64 // the width at which the page shows it, if there is room
	Label         string  // for who can't see it
	Lines         []line
	Boxes         []box
	Dots          []dot
	Texts         []text
}

type line struct {
	X1, Y1, X2, Y2 float64
	Class          string
}

type box struct {
	X, Y, W, H float64
	Class      string
}

type dot struct {
	X, Y, R float64
	Class   string
}

// A text that is Turned runs upwards, for the names of lanes.
type text struct {
	X, Y   float64
	Class  string
	Who    string // stands before Text, in bold
	Text   string
	Turned bool
}

// A drawing is a diagram in the making.
type drawing struct {
	diagram
	lanes  []string
	teller *scenario.Teller
	y      float64 // of the event at hand
	at     time.Duration
	bottom float64 // of what has been written

	pauses map[string]float64 // where a pause began, by lane
	leases map[scenario.Hold]lease
	hues   int
}

// A lease is a bar that has begun. It stands right of the others that its
// lane has at that time, in a place of its own.
type lease struct {
	lane  string
	top   float64
	hue   int
	place int
}

// hues is how many colours leases have.
const hues = 4

// draw draws the history of a run.
func draw(events []scenario.Event) diagram {
	d := &drawing{lanes: lanesOf(events), teller: scenario.NewTeller(), bottom: laneTop,
		pauses: map[string]float64{}, leases: map[scenario.Hold]lease{}}
	d.Width = d.textLeft() + textWidth
	d.Shown = math.Round(d.Width * shownScale)
	d.Label = fmt.Sprintf("%d events in %d lanes, time running downwards", len(events), len(d.lanes))
	for _, e := range events {
		d.event(e)
	}
	d.finish()
	return d.diagram
}

func (d *drawing) x(lane string) float64 {
	return laneLeft + laneWidth*float64(slices.Index(d.lanes, lane))
}

func (d *drawing) textLeft() float64 {
	return laneLeft + laneWidth*float64(len(d.lanes)-1) + textGap
}

// event draws an event: its text first, which makes the room for it.
func (d *drawing) event(e scenario.Event) {
	told := d.teller.Tell(e)
	d.y = d.bottom + rowGap + lineHeight + wait(e.At-d.at)
	d.at = e.At
	if shows := e.Kind != scenario.KindRows && e.Kind != scenario.KindWrong; shows {
		d.Texts = append(d.Texts, text{X: laneLeft - 12, Y: d.y, Class: "time", Text: seconds(e.At)})
	}
	d.write(e, told)
	d.mark(e, told)
}

// write writes an event's text, in as many lines as it needs.
func (d *drawing) write(e scenario.Event, told scenario.Telling) {
	class := told.Tone.String()
	if e.Kind == scenario.KindRefused {
		class = "refused"
	}
	who := told.Who
	if who != "" {
		who += " "
	}
	lines := wrap(who+told.Text, textColumns)
	for i, l := range lines {
		t := text{X: d.textLeft(), Y: d.y + float64(i)*lineHeight, Class: class, Text: l}
		if runes := []rune(l); i == 0 && who != "" && len(runes) >= len([]rune(who)) {
			t.Who, t.Text = who, string(runes[len([]rune(who)):])
		}
		d.Texts = append(d.Texts, t)
	}
	d.bottom = d.y + float64(len(lines)-1)*lineHeight
}

// middle is where the shapes of the event at hand are: halfway up its first
// line of text.
func (d *drawing) middle() float64 { return d.y - 4 }

// mark draws an event's shapes.
func (d *drawing) mark(e scenario.Event, told scenario.Telling) {
	class := told.Tone.String()
	switch e.Kind {
	case scenario.KindNote, scenario.KindRows, scenario.KindWrong:
		return
	case scenario.KindLock:
		d.beginLease(scenario.Hold{Key: e.Key, Token: e.Token}, e.Actor)
	case scenario.KindExpired:
		d.endLease(scenario.Hold{Key: e.Key, Token: e.Token})
	case scenario.KindRenewed:
		d.endLeases()
	case scenario.KindReleased:
		for _, h := range append([]scenario.Hold{{Key: e.Key, Token: e.Token}}, e.Also...) {
			d.endLease(h)
		}
	case scenario.KindPause:
		d.pauses[e.Actor] = d.middle()
	case scenario.KindResume:
		d.endPause(e.Actor)
	case scenario.KindCrash:
		d.cross(e.Actor, "bad")
		return
	case scenario.KindConnected, scenario.KindRead, scenario.KindStep:
		d.send(e, scenario.LanePostgres, class)
	case scenario.KindCommit:
		d.send(e, scenario.LanePostgres, class+" strong")
		d.token(e)
		d.Dots = append(d.Dots, dot{d.x(scenario.LanePostgres), d.middle(), 4.5, class})
	case scenario.KindRefused:
		d.send(e, refuser(e), "refused strong")
		d.token(e)
		d.cross(refuser(e), "refused")
		class = "refused"
	case scenario.KindFailed:
		d.send(e, scenario.LanePostgres, class)
		d.cross(scenario.LanePostgres, class)
	}
	d.Dots = append(d.Dots, dot{d.x(e.Actor), d.middle(), 3.5, class})
}

// refuser is the lane where a refusal is drawn: the proxy that answered, or
// PostgreSQL itself.
func refuser(e scenario.Event) string {
	if e.Via != "" {
		return e.Via
	}
	return scenario.LanePostgres
}

// send draws a statement on its way from the actor to a lane, and a dot
// where a proxy takes it on.
func (d *drawing) send(e scenario.Event, to, class string) {
	d.Lines = append(d.Lines, line{d.x(e.Actor), d.middle(), d.x(to), d.middle(), class})
	if e.Via != "" && e.Via != to {
		d.Dots = append(d.Dots, dot{d.x(e.Via), d.middle(), 2, class})
	}
}

// token writes the number that a write carries onto its way, or all of them: any
// of them may be the stale one.
func (d *drawing) token(e scenario.Event) {
	if e.Token == 0 {
		return
	}
	carried := e.Token.String()
	for _, h := range e.Also {
		carried += "+" + h.Token.String()
	}
	d.Texts = append(d.Texts, text{X: d.x(e.Actor) + 6, Y: d.middle() - 3, Class: "token", Text: carried})
}

func (d *drawing) cross(lane, class string) {
	const r = 4.5
	x, y := d.x(lane), d.middle()
	d.Lines = append(d.Lines, line{x - r, y - r, x + r, y + r, class + " strong"}, line{x - r, y + r, x + r, y - r, class + " strong"})
}

func (d *drawing) beginLease(h scenario.Hold, lane string) {
	taken := map[int]bool{}
	for _, l := range d.leases {
		taken[l.place] = taken[l.place] || l.lane == lane
	}
	place := 0
	for taken[place] {
		place++
	}
	d.leases[h] = lease{lane, d.middle(), d.hues % hues, place}
	d.hues++
}

func (d *drawing) endLease(h scenario.Hold) {
	l, held := d.leases[h]
	if !held {
		return
	}
	delete(d.leases, h)
	d.Boxes = append(d.Boxes, box{d.x(l.lane) - 4 + leaseGap*float64(l.place), l.top, 8, d.middle() - l.top, fmt.Sprintf("lease hue%d", l.hue)})
}

func (d *drawing) endLeases() {
	for h := range d.leases {
		d.endLease(h)
	}
}

func (d *drawing) endPause(lane string) {
	top, paused := d.pauses[lane]
	if !paused {
		return
	}
	delete(d.pauses, lane)
	d.Boxes = append(d.Boxes, box{d.x(lane) - 9, top, 18, d.middle() - top, "pause"})
}

// finish draws what goes on to the end, and the lanes.
func (d *drawing) finish() {
	d.y = d.bottom + lineHeight
	d.endLeases()
	for lane := range d.pauses {
		d.endPause(lane)
	}
	// A map has no order, and a report is to be the same for the same runs.
	slices.SortFunc(d.Boxes, func(a, b box) int { return compare(a.Y, b.Y, a.X, b.X) })
	d.Height = d.y + lineHeight
	lanes := make([]line, len(d.lanes))
	for i, name := range d.lanes {
		x := d.x(name)
		lanes[i] = line{x, laneTop, x, d.y, "lane"}
		d.Texts = append(d.Texts, text{X: x + 4, Y: laneTop - 8, Class: "name", Text: name, Turned: true})
	}
	d.Lines = append(lanes, d.Lines...)
}

func compare(a1, b1, a2, b2 float64) int {
	switch {
	case a1 != b1 && a1 < b1, a1 == b1 && a2 < b2:
		return -1
	case a1 == b1 && a2 == b2:
		return 0
	default:
		return 1
	}
}

// wait is how much room a time in which nothing happens takes: more for more,
// but not in proportion.
func wait(t time.Duration) float64 {
	const from = 100 * time.Millisecond
	if t < from {
		return 0
	}
	return math.Min(waitMost, waitScale*(1+math.Log2(float64(t)/float64(from))))
}

func seconds(t time.Duration) string { return fmt.Sprintf("%.3f", t.Seconds()) }
