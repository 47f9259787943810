package fault

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// A Card is a kind of fault, as a plan deals it.
type Card struct {
	Kind    string
	Targets []string // one of them is drawn
	// Least and Most bound how long the fault lasts.
	Least, Most time.Duration
	// Copies is how many of this card are in the deck; 0 is one.
	Copies int
}

// A Track is a line of faults that come one after the other; those of different
// tracks overlap. Its cards are shuffled, dealt out, and shuffled again, so that
// even a short run sees most of them; the first one comes in its first quarter.
type Track struct {
	Name  string
	Cards []Card
	// Least and Most bound the pause between two faults.
	Least, Most time.Duration
	// Worker says that the faults harm a worker only; a calm doesn't concern
	// them.
	Worker bool
}

// A Calm is a time without faults, but for those of workers, at the end of each
// period: in it, what was broken must work once more.
type Calm struct {
	Every, Length time.Duration
}

// An Event is one fault of a plan.
type Event struct {
	Track  string
	Kind   string
	Target string
	Worker bool
	At     time.Duration // since the run's beginning
	For    time.Duration
}

func (e Event) String() string {
	return fmt.Sprintf("%8.3fs  for %6.3fs  %-8s  %s %s", e.At.Seconds(), e.For.Seconds(), e.Track, e.Kind, e.Target)
}

// Draw makes the plan of a run from a seed: the same for the same arguments.
func Draw(seed uint64, length time.Duration, calm Calm, tracks ...Track) []Event {
	var plan []Event
	for i, track := range tracks {
		plan = append(plan, track.draw(rand.New(rand.NewPCG(seed, uint64(i))), length, calm)...)
	}
	slices.SortStableFunc(plan, func(a, b Event) int { return cmp.Compare(a.At, b.At) })
	return plan
}

func (t *Track) draw(r *rand.Rand, length time.Duration, calm Calm) []Event {
	var plan []Event
	var deck []Card
	for now := between(r, 0, min(t.Most, length/4)); ; {
		if len(deck) == 0 {
			deck = t.shuffled(r)
		}
		card := deck[0]
		deck = deck[1:]
		e := Event{
			Track: t.Name, Kind: card.Kind, Target: card.Targets[r.IntN(len(card.Targets))], Worker: t.Worker,
			At: now, For: between(r, card.Least, card.Most),
		}
		if after := calm.after(e.At, e.For); after > e.At && !t.Worker {
			// Not all tracks go on in the same moment.
			e.At = calm.after(after+between(r, 0, t.Least), e.For)
		}
		if e.At+e.For > length {
			return plan
		}
		plan = append(plan, e)
		now = e.At + e.For + between(r, t.Least, t.Most)
	}
}

func (t *Track) shuffled(r *rand.Rand) []Card {
	var deck []Card
	for _, card := range t.Cards {
		for range max(card.Copies, 1) {
			deck = append(deck, card)
		}
	}
	r.Shuffle(len(deck), func(i, j int) { deck[i], deck[j] = deck[j], deck[i] })
	return deck
}

// after returns the first time from at on at which something of a length
// doesn't reach into a calm, which is the end of each period. What is longer
// than a period has room for begins with one.
func (c Calm) after(at, length time.Duration) time.Duration {
	if c.Every <= 0 {
		return at
	}
	room := c.Every - c.Length
	into := at % c.Every
	if into+length <= room || into == 0 && length > room {
		return at
	}
	return at - into + c.Every
}

func between(r *rand.Rand, least, most time.Duration) time.Duration {
	if most <= least {
		return least
	}
	return least + time.Duration(r.Int64N(int64(most-least)))
}
