package fencing_test

import (
	"slices"
	"testing"

	"github.com/fenceproxy/fenceproxy/fencing"
)

// A slow observer keeps the first report until it is let go, and hands on the
// others.
type slow struct {
	let  chan struct{}
	told chan fencing.Outcome
}

func (s *slow) ClaimDone(r fencing.ClaimReport) {
	<-s.let
	s.told <- r.Outcome
}

func (*slow) BackendEnded(string, string, fencing.Blocker) {}

// Claims are answered however long their observer takes. It hears of them in
// their order, and of all of them before the Claimer is closed.
func TestClaimer_TellsAfterTheAnswer(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	o := &slow{make(chan struct{}), make(chan fencing.Outcome, 3)}
	c := s.claimer(holder("a", 42), func(c *fencing.Claimer) { c.Observer = o })
	for _, claim := range []struct {
		token fencing.Token
		want  string
	}{{42, ""}, {42, ""}, {43, "LF002"}} {
		if err := s.answered(start(t, c, "a", claim.token)); code(err) != claim.want {
			t.Fatalf("token %d: got %v, want %q", claim.token, err, claim.want)
		}
	}
	close(o.let)
	c.Close()
	close(o.told)
	var got []fencing.Outcome
	for outcome := range o.told {
		got = append(got, outcome)
	}
	want := []fencing.Outcome{fencing.OutcomeRaised, fencing.OutcomeKnown, fencing.OutcomeRefused}
	if !slices.Equal(got, want) {
		t.Errorf("told of %v, want %v", got, want)
	}
}
