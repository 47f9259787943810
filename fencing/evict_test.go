package fencing_test

import (
	"testing"

	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/fenceproxy/fenceproxy/fencing"
)

// evictions counts what it is asked to end.
type evictions struct{ asked []fencing.Token }

func (e *evictions) Evict(_, _ string, below fencing.Token) int {
	e.asked = append(e.asked, below)
	return 1
}

// A claim ends the sessions of lower tokens before it raises the mark, but not
// where its verification is of another etcd history and it will be refused.
func TestClaimer_Evicts(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	e := &evictions{}
	authority := holder("a", 41)
	c := s.claimer(authority, func(c *fencing.Claimer) { c.Evictor = e })
	claim := func(token fencing.Token) error {
		return c.Claim(t.Context(), database, fencing.Pair{Key: "a", Token: token})
	}
	if err := claim(41); err != nil {
		t.Fatal(err)
	}
	authority.hold("a", 42)
	if err := claim(42); err != nil {
		t.Fatal(err)
	}
	if len(e.asked) != 2 || e.asked[1] != 42 {
		t.Fatalf("asked to end what is below %v, want 41 and 42", e.asked)
	}
	authority.set(func(e *etcd) { e.cluster = "another" })
	authority.hold("a", 43)
	refusal(t, claim(43), fencing.CodeLineage)
	if len(e.asked) != 2 {
		t.Errorf("sessions were ended for a claim that was refused: %v", e.asked)
	}
}

// TestClaimer_EndsAForsakenClaim: a claim of which all has arrived but what
// commits it holds the mark, and nothing but another claim ends it.
func TestClaimer_EndsAForsakenClaim(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	s.claim("a", 41)
	forsaken := s.dial(adminRol, database)
	s.exec(forsaken, "SET application_name = '"+fencing.ClaimApplication+"'")
	half := forsaken.PgConn().Frontend()
	half.SendParse(&pgproto3.Parse{Query: "SELECT FROM fence.mark WHERE resource_key = 'a' FOR UPDATE"})
	half.SendBind(&pgproto3.Bind{})
	half.SendExecute(&pgproto3.Execute{})
	if err := half.Flush(); err != nil {
		t.Fatal(err)
	}
	s.waitEvent(1, "wait_event = 'ClientRead' AND state = 'active' AND application_name = '"+fencing.ClaimApplication+"'")
	if err := s.answered(start(t, s.claimer(holder("a", 42), evictAfter(0), claimTimeout(deadline)), "a", 42)); err != nil {
		t.Error(err)
	}
	if got := s.mark("a"); got != 42 {
		t.Errorf("the mark: got %d, want 42", got)
	}
}
