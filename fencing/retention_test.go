package fencing_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/fencing"
)

// Vacant is fencing.Vacancies': an etcd knows who holds what.
func (e *etcd) Vacant(_ context.Context, keys []string) (vacant []string, cluster string, revision int64, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, key := range keys {
		if e.holders[key] == 0 {
			vacant = append(vacant, key)
		}
	}
	revision = e.rev
	if revision == 0 {
		revision = e.top
	}
	return vacant, e.cluster, revision, nil
}

func (e *etcd) leave(key string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.holders, key)
	e.top++ // a deletion is a revision too
}

// sweep lets a proxy go through the marks once.
func (s *stack) sweep(e fencing.Vacancies, age time.Duration) (int, error) {
	s.t.Helper()
	store, err := fencing.NewStore(s.srv.DSN(adminRol, database))
	if err != nil {
		s.t.Fatal(err)
	}
	defer store.Close()
	r := fencing.NewRetention(store, e)
	r.Age, r.Pause = age, time.Millisecond
	return r.Sweep(s.t.Context(), database)
}

func (s *stack) swept(e fencing.Vacancies, age time.Duration, want int) {
	s.t.Helper()
	if got, err := s.sweep(e, age); got != want || err != nil {
		s.t.Errorf("got %d marks removed, %v, want %d", got, err, want)
	}
}

// claims makes a holder of each key, and its claim.
func (s *stack) claims(e *etcd, first fencing.Token, keys ...string) {
	s.t.Helper()
	c := s.claimer(e)
	for i, key := range keys {
		token := first + fencing.Token(i)
		e.hold(key, token)
		if err := c.Claim(s.t.Context(), database, fencing.Pair{Key: key, Token: token}); err != nil {
			s.t.Fatal(err)
		}
	}
}

// age makes the marks of keys look older than they are.
func (s *stack) age(keys string) {
	s.t.Helper()
	s.exec(s.root(), "UPDATE fence.mark SET claimed_at = claimed_at - interval '2 hours' WHERE resource_key IN ("+keys+")")
}

func (s *stack) keys() string {
	return one[string](s, s.root(), "SELECT coalesce(string_agg(resource_key, ' ' ORDER BY resource_key), 'none') FROM fence.mark")
}

func TestRetention_Sweep(t *testing.T) {
	t.Parallel()
	t.Run("what is old and gone, and nothing else", func(t *testing.T) {
		s := newStack(t)
		e := holder("held", 10)
		s.claims(e, 10, "held", "gone", "young", "über:1")
		s.age("'held', 'gone', 'über:1'")
		for _, key := range []string{"gone", "young", "über:1"} {
			e.leave(key)
		}
		s.swept(e, time.Hour, 2)
		if got := s.keys(); got != "held young" {
			t.Errorf("left are %s, want held young", got)
		}
		if _, err := s.tagged("gone", 11).Exec(t.Context(), "SELECT fence.check()"); code(err) != "LF002" {
			t.Errorf("a session whose mark was removed: got %v, want LF002", err)
		}
		refusal(t, s.claimer(e).Claim(t.Context(), database, fencing.Pair{Key: "gone", Token: 11}), fencing.CodeNotHolder)
		s.claims(e, 30, "gone")
	})
	t.Run("a checked transaction keeps its mark", func(t *testing.T) {
		s := newStack(t)
		e := holder("a", 10)
		s.claims(e, 10, "a", "b")
		open := s.begun("a", 10, 1)
		e.leave("a")
		e.leave("b")
		s.swept(e, 0, 1)
		s.exec(open, "COMMIT")
		if got := s.keys(); got != "a" {
			t.Errorf("left are %s, want a", got)
		}
		s.swept(e, 0, 1)
	})
	t.Run("many pages", func(t *testing.T) {
		s := newStack(t)
		e := holder("a", 10)
		s.claims(e, 10, "a")
		s.fill(2500)
		e.set(func(e *etcd) { e.top = 10000 })
		s.swept(e, 0, 2500)
		if got := s.keys(); got != "a" {
			t.Errorf("left are %s, want a", got)
		}
	})
	for name, change := range map[string]func(*etcd){
		"another etcd":             func(e *etcd) { e.cluster = "c2" },
		"an etcd that went back":   func(e *etcd) { e.rev = 5 },
		"an etcd that lost a hair": func(e *etcd) { e.rev = 10 },
	} {
		t.Run(name, func(t *testing.T) {
			s := newStack(t)
			e := holder("a", 10)
			s.claims(e, 10, "a", "b")
			e.leave("b")
			e.set(change)
			if n, err := s.sweep(e, 0); n != 0 || err == nil {
				t.Errorf("got %d marks removed, %v, want none and an error", n, err)
			}
		})
	}
}

// fill makes n marks of keys k1, k2, …, as claims would, a token each.
func (s *stack) fill(n int) {
	s.t.Helper()
	s.exec(s.root(), fmt.Sprintf(`INSERT INTO fence.mark SELECT 'k' || i, 100 + i, '/locks/k/' || i, 1, now() - interval '1 second', 'test'
		FROM generate_series(1, %d) AS i`, n))
}

// What the highest mark said of etcd's history stays known when it is removed.
func TestRetention_KeepsWhatEtcdHadReached(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	e := holder("a", 10)
	s.claims(e, 10, "a")
	s.claims(e, 100, "b")
	e.leave("b")
	s.swept(e, 0, 1)
	e.set(func(e *etcd) { e.rev = 50 })
	e.hold("c", 40)
	err := s.claimer(e).Claim(t.Context(), database, fencing.Pair{Key: "c", Token: 40})
	refusal(t, err, fencing.CodeLineage, "revision 50, and was at 101 before")
}

// A claim that was verified before a higher one, and comes only after that
// one's mark was removed, finds no mark to be below of.
func TestRetention_LateOlderClaim(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	e := holder("a", 10)
	s.claims(e, 11, "b") // etcd is at 11, and so the verification of 10
	e.hold("a", 9)
	late := s.claimer(e)
	e.after = func() {
		e.set(func(e *etcd) { e.after = nil })
		s.claims(e, 10, "a") // it waited in line when 9 was the holder
		e.leave("a")
		s.swept(e, 0, 1)
	}
	err := late.Claim(t.Context(), database, fencing.Pair{Key: "a", Token: 9})
	refusal(t, err, fencing.CodeNotHolder)
	if got := s.mark("a"); got != 0 {
		t.Errorf("the mark is %d, want none", got)
	}
}

// overtaken answers when something else has happened since etcd was asked.
type overtaken struct {
	*etcd
	since func()
}

func (o overtaken) Vacant(ctx context.Context, keys []string) (vacant []string, cluster string, revision int64, err error) {
	defer o.since()
	return o.etcd.Vacant(ctx, keys)
}

// A holder that comes while etcd's answer is on its way keeps its mark.
func TestRetention_OvertakenByAClaim(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	e := holder("a", 1)
	s.claims(e, 1, "a", "b")
	e.leave("a")
	e.leave("b")
	s.swept(overtaken{e, func() { s.claims(e, 10, "a") }}, 0, 1)
	if got, want := s.mark("a"), fencing.Token(10); got != want {
		t.Errorf("the mark of a held lock is %d, want %d", got, want)
	}
}

// Many sweeps and claims at once: no key's mark ever goes down.
func TestRetention_AgainstClaims(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	e := holder("a", 1)
	keys := []string{"a", "b", "c", "d"}
	s.claims(e, 1, keys...)
	done := make(chan error, 1)
	stop := make(chan struct{})
	go func() {
		for {
			select {
			case <-stop:
				done <- nil
				return
			default:
			}
			if _, err := s.sweep(e, 0); err != nil {
				done <- err
				return
			}
		}
	}()
	c := s.claimer(e)
	for token := fencing.Token(10); token < 210; token++ {
		key := keys[int(token)%len(keys)]
		e.hold(key, token)
		if err := c.Claim(t.Context(), database, fencing.Pair{Key: key, Token: token}); err != nil {
			t.Fatalf("token %d: %v", token, err)
		}
		if had := s.mark(key); had != token {
			t.Fatalf("the mark of a held lock is %d, want %d", had, token)
		}
		e.leave(key)
	}
	close(stop)
	if err := s.answered(done); err != nil {
		t.Error(err)
	}
	s.swept(e, 0, one[int](s, s.root(), "SELECT count(*)::int FROM fence.mark"))
}
