package wire_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/fenceproxy/fenceproxy/fencing"
	"github.com/fenceproxy/fenceproxy/proxy"
	"github.com/fenceproxy/fenceproxy/testharness/postgres"
	"github.com/fenceproxy/fenceproxy/testharness/wire"
)

// newPolicyRig makes a rig whose proxy has a policy for all sessions.
func newPolicyRig(t *testing.T, policy proxy.Policy, databases ...string) *rig {
	t.Helper()
	pg := postgres.New(t, postgres.Options{Config: append(settings(), "autovacuum = off")})
	return newRigOn(t, pg, func(server *proxy.Server, _ *fencing.Store) {
		server.Policies = proxy.Policies{Default: policy}
	}, databases...)
}

// TestScripts_Observed plays every script where untagged writes are observed:
// no byte changes by it.
func TestScripts_Observed(t *testing.T) {
	r := newPolicyRig(t, proxy.Policy{UntaggedWrites: proxy.ObserveUntagged}, "lane1", "lane2", "lane3", "lane4")
	r.playAll(t, scripts(t, "testdata"), false)
}

// countsAsWrite are what counts as a write by its text, whatever becomes of it.
var countsAsWrite = []string{
	"insert ", "update ", "delete ", "merge ", "truncate ", "create ", "drop ", "alter ", "vacuum", "notify", "copy sink", "copy nobody", "copy t from", "copy t to ",
	"prepare transaction", "commit prepared", "rollback prepared", "with hold", "for share", "nextval",
}

// onlyReads reports whether nothing that a script sends counts as a write: a
// function call does, since nobody knows what it runs.
func onlyReads(s *wire.Script) bool {
	for _, step := range s.Steps {
		for _, m := range step.Messages {
			text := strings.ToLower(m.Text)
			writes := func(word string) bool { return strings.Contains(text, word) }
			if strings.HasPrefix(m.Text, "F ") || slices.ContainsFunc(countsAsWrite, writes) {
				return false
			}
		}
	}
	return true
}

// TestScripts_Rejected plays the scripts that only read, which use no
// transaction id either, where untagged writes are refused: no byte changes,
// but where one does in a tagged session, for the same reasons.
func TestScripts_Rejected(t *testing.T) {
	r := newPolicyRig(t, proxy.Policy{UntaggedWrites: proxy.RejectUntagged}, "lane1")
	l := <-r.lanes
	read := 0
	for _, s := range scripts(t, "testdata") {
		t.Run(s.File+"/"+s.Name, func(t *testing.T) {
			p := r.player(wire.Direct, l)
			if s.Unix != "" {
				r.overSocket(p)
			}
			tagged := r.player(wire.Tagged, l).Where
			if s.Alone != "" || !says(t, s.Plays, p.Where) || !says(t, s.Plays, tagged) || says(t, s.Differs, tagged) {
				return
			}
			if err := l.reset(t.Context(), p, s.Setup); err != nil {
				t.Fatal(err)
			}
			before := r.nextID(t, l)
			direct, err := p.Play(t.Context(), s)
			if err != nil {
				t.Fatal(err)
			}
			reads := r.nextID(t, l) == before && onlyReads(s)
			if p = r.player(wire.Untagged, l); !reads || !says(t, s.Plays, p.Where) {
				return
			}
			read++
			play(t, s, p, l, &direct)
		})
	}
	const fewest = 100 // or the test has gone blind
	if read < fewest {
		t.Errorf("only %d scripts were played", read)
	}
}

// nextID is the transaction id that the next write would get.
func (r *rig) nextID(t *testing.T, l *lane) string {
	t.Helper()
	var id string
	if err := l.conn.QueryRow(t.Context(), "SELECT split_part(pg_current_snapshot()::text, ':', 2)").Scan(&id); err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(id)
}
