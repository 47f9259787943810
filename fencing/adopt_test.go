package fencing_test

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fenceproxy/fenceproxy/fencing"
	"github.com/fenceproxy/fenceproxy/testharness/postgres"
)

// adopt adopts a cluster at a revision, as role user.
func (s *stack) adopt(user, cluster string, revision int64) (fencing.Adoption, error) {
	s.t.Helper()
	conn := s.dial(user, database)
	defer conn.Close(s.t.Context())
	from, err := fencing.LineageOf(s.t.Context(), conn)
	if err != nil {
		s.t.Fatal(err)
	}
	return fencing.Adopt(s.t.Context(), conn, from, cluster, revision, "a test")
}

// A session that was claimed under the old etcd can't write any more, though
// the new one gives the very same token out for the key: not in an open
// transaction, not in the next one, and not by its proxy's memory.
func TestAdopt(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	e := holder("a", 10)
	old := s.claimer(e)
	s.claims(e, 12, "b")
	e.hold("a", 10)
	if err := old.Claim(t.Context(), database, fencing.Pair{Key: "a", Token: 10}); err != nil {
		t.Fatal(err)
	}
	open, idle := s.begun("a", 10, 1), s.tagged("a", 10)

	e.set(func(e *etcd) { e.cluster, e.top = "c2", 10 })
	refusal(t, s.claimer(e).Claim(t.Context(), database, fencing.Pair{Key: "a", Token: 10}), fencing.CodeLineage, "adopt-lineage")
	a, err := s.adopt(postgres.Superuser, "c2", 10)
	if err != nil {
		t.Fatal(err)
	}
	if a.Epoch != 2 || a.Marks != 2 || a.Sessions < 2 {
		t.Errorf("got %+v, want epoch 2, 2 marks and the sessions", a)
	}
	record := one[string](s, s.root(), "SELECT concat_ws(' ', epoch, cluster, adopted_by, floor) FROM fence.lineage ORDER BY epoch DESC LIMIT 1")
	if record != "2 c2 postgres (a test) 10" {
		t.Errorf("recorded is %q", record)
	}
	refusal(t, old.Superseded(t.Context(), database, fencing.Tag{{Key: "a", Token: 10}}), fencing.CodeLineage, "an operator has replaced")

	// The new etcd's holder has the old one's number.
	if err := s.claimer(e).Claim(t.Context(), database, fencing.Pair{Key: "a", Token: 10}); err != nil {
		t.Fatal(err)
	}
	for name, conn := range map[string]*pgx.Conn{"COMMIT": open, "INSERT INTO job VALUES (2, 'old')": idle} {
		if _, err := conn.Exec(t.Context(), name); err == nil {
			t.Errorf("%s of an old session: got no error", name)
		}
	}
	if got := s.jobs(); got != "none" {
		t.Errorf("old sessions have written: %s", got)
	}
	if got := e.called(); got == 0 {
		t.Error("etcd was not asked")
	}
	asked := e.called()
	if err := old.Claim(t.Context(), database, fencing.Pair{Key: "a", Token: 10}); err != nil || e.called() != asked+1 {
		t.Errorf("a proxy that knew the number from the old etcd: got %v and %d questions, want one", err, e.called()-asked)
	}
}

// A verification that was made before the adoption, perhaps with the old etcd,
// is made again, though the cluster's id and the revision would fit.
func TestAdopt_VerifiedBefore(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	e := holder("a", 10)
	s.claims(e, 8, "b")
	late := s.claimer(e)
	e.hold("a", 10)
	e.after = func() {
		e.set(func(e *etcd) { e.after, e.top, e.holders = nil, 5, map[string]fencing.Token{} })
		if _, err := s.adopt(postgres.Superuser, "c1", 5); err != nil {
			t.Error(err)
		}
	}
	refusal(t, late.Claim(t.Context(), database, fencing.Pair{Key: "a", Token: 10}), fencing.CodeNotHolder)
	if got := s.mark("a"); got != 0 {
		t.Errorf("the mark is %d, want none", got)
	}
}

func TestAdopt_Refused(t *testing.T) {
	t.Parallel()
	s := newStack(t, "max_prepared_transactions = 5")
	s.claim("a", 10)
	wants := func(err error, says ...string) {
		t.Helper()
		for _, text := range append(says, "adopt a lineage: ") {
			if err == nil || !strings.Contains(err.Error(), text) {
				t.Errorf("got %v, want it to say %q", err, text)
			}
		}
		if got := s.mark("a"); got != 10 {
			t.Errorf("the mark is %d, want 10", got)
		}
	}
	idle := s.tagged("a", 10)
	_, err := s.adopt(adminRol, "c2", 5)
	wants(err, "only a superuser may end the sessions of superusers", "user postgres")
	s.exec(idle, "SELECT 1") // nobody was ended for it
	conn := s.dial(adminRol, database)
	_, err = fencing.Adopt(t.Context(), conn, fencing.Lineage{Epoch: 7, Cluster: "c1"}, "c2", 5, "a test")
	wants(err, "look again")

	s.exec(s.begun("a", 10, 1), "PREPARE TRANSACTION 'left behind'")
	_, err = s.adopt(postgres.Superuser, "c2", 5)
	wants(err, "which a prepared transaction may hold")
}
