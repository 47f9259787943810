package live_test

import (
	"strings"
	"testing"

	"github.com/fenceproxy/fenceproxy/fencing"
	"github.com/fenceproxy/fenceproxy/proxy/live"
)

// A reader that remembers how far it has come misses nothing that is kept, hears
// how much isn't, and is woken by the next event.
func TestJournal_After(t *testing.T) {
	j := live.NewJournal()
	if events, missed := j.After(0); len(events) != 0 || missed != 0 {
		t.Errorf("empty: got %v, %d", events, missed)
	}
	changed := j.Changed()
	j.Add(live.Event{Kind: live.Claimed, Key: "a"})
	select {
	case <-changed:
	default:
		t.Error("an event wakes no reader")
	}
	events, missed := j.After(0)
	if len(events) != 1 || events[0].Number != 1 || events[0].At.IsZero() || missed != 0 {
		t.Fatalf("got %v, %d, want the first with its number and time", events, missed)
	}
	if events, _ := j.After(1); len(events) != 0 {
		t.Errorf("got %v behind the last", events)
	}
	for range live.DefaultRecent + 10 {
		j.Add(live.Event{Kind: live.Claimed})
	}
	events, missed = j.After(1)
	if len(events) != live.DefaultRecent || missed != 10 || events[0].Number != 12 || events[len(events)-1].Number != live.DefaultRecent+11 {
		t.Errorf("got %d from %d on, %d missed, want %d from 12 on and 10 missed", len(events), events[0].Number, missed, live.DefaultRecent)
	}
	events, missed = j.After(live.DefaultRecent + 9)
	if len(events) != 2 || missed != 0 {
		t.Errorf("got %d and %d missed, want the last 2", len(events), missed)
	}
}

// Sessions that come and go push out each other, not what is claimed and refused; the
// order is kept, and what is missed is counted.
func TestJournal_Sessions(t *testing.T) {
	j := live.NewJournal()
	j.Add(live.Event{Kind: live.SessionStarted})
	j.Add(live.Event{Kind: live.Claimed, Key: "a"})
	for range live.DefaultSessions {
		j.Add(live.Event{Kind: live.SessionStarted})
		j.Add(live.Event{Kind: live.SessionEnded})
	}
	j.Add(live.Event{Kind: live.SessionEvicted, Key: "a"})
	events, missed := j.After(0)
	if len(events) != live.DefaultSessions+2 || missed != live.DefaultSessions+1 {
		t.Fatalf("got %d, and %d missed, want %d and %d", len(events), missed, live.DefaultSessions+2, live.DefaultSessions+1)
	}
	if events[0].Key != "a" || events[0].Kind != live.Claimed || events[len(events)-1].Kind != live.SessionEvicted {
		t.Errorf("got %v first and %v last, want the claim and the eviction", events[0], events[len(events)-1])
	}
	for i := 1; i < len(events); i++ {
		if events[i].Number <= events[i-1].Number {
			t.Fatalf("got %d behind %d", events[i].Number, events[i-1].Number)
		}
	}
}

// Refusals push out each other, not the claim that tells what superseded the refused.
func TestJournal_RefusedAgainAndAgain(t *testing.T) {
	j := live.NewJournal()
	j.Add(live.Event{Kind: live.Claimed, Key: "a"})
	for range live.DefaultRefusals + 5 {
		j.Add(live.Event{Kind: live.ClaimRefused, Key: "a"})
		j.Add(live.Event{Kind: live.StatementRefused, Key: "a"})
	}
	events, missed := j.After(0)
	if len(events) != 2*live.DefaultRefusals+1 || missed != 10 || events[0].Kind != live.Claimed {
		t.Errorf("got %d, the first %v, and %d missed, want the claim first and 10 missed", len(events), events[0].Kind, missed)
	}
	for i, e := range events[1:] {
		if want := [...]live.Kind{live.ClaimRefused, live.StatementRefused}[i%2]; e.Kind != want {
			t.Fatalf("at %d: got %v, want %v", i, e.Kind, want)
		}
	}
}

// Refusals are kept whatever else happens, the newest first, and no text of theirs
// grows without bound.
func TestJournal_Refusals(t *testing.T) {
	j := live.NewJournal()
	j.Add(live.Event{Kind: live.StatementRefused, Key: "first", Message: strings.Repeat("ä", 5000)})
	for range 2 * live.DefaultRecent {
		j.Add(live.Event{Kind: live.SessionStarted})
	}
	j.Add(live.Event{Kind: live.StatementRefused, Key: "second"})
	got := j.Refusals()
	if len(got) != 2 || got[0].Key != "second" || got[1].Key != "first" {
		t.Fatalf("got %d, want the second and the first", len(got))
	}
	if m := got[1].Message; len(m) > 1100 || !strings.HasSuffix(m, "ä…") {
		t.Errorf("got %d bytes that end in %q, want it cut between letters", len(m), m[max(0, len(m)-6):])
	}
	for range live.DefaultRefusals {
		j.Add(live.Event{Kind: live.StatementRefused, Key: "later"})
	}
	if got = j.Refusals(); len(got) != live.DefaultRefusals || got[len(got)-1].Key != "later" {
		t.Errorf("got %d, the oldest %q, want only the last %d", len(got), got[len(got)-1].Key, live.DefaultRefusals)
	}
}

// A key's sessions are counted once each, by token, with the busiest one's state.
func TestKeys(t *testing.T) {
	pair := func(key string, token fencing.Token) fencing.Tag { return fencing.Tag{{Key: key, Token: token}} }
	got := live.Keys([]live.Session{
		{Database: "app", State: live.Idle, Tag: pair("b", 2)},
		{Database: "app", State: live.Active, Tag: pair("b", 2), Coming: pair("b", 2)},
		{Database: "app", State: live.Claiming, Tag: pair("b", 2), Coming: pair("b", 3)},
		{Database: "other", State: live.IdleInTransaction, Tag: fencing.Tag{{Key: "a", Token: 1}, {Key: "b", Token: 2}}},
		{Database: "app", State: live.Idle},
	})
	want := []live.Key{
		{Database: "app", Key: "b", Token: 2, Sessions: 3, Transactions: 1, State: live.Claiming},
		{Database: "app", Key: "b", Token: 3, Sessions: 1, State: live.Claiming},
		{Database: "other", Key: "a", Token: 1, Sessions: 1, Transactions: 1, State: live.IdleInTransaction},
		{Database: "other", Key: "b", Token: 2, Sessions: 1, Transactions: 1, State: live.IdleInTransaction},
	}
	if len(got) != len(want) {
		t.Fatalf("got %v, want %v", got, want)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("got %+v, want %+v", got[i], want[i])
		}
	}
}
