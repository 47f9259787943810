package fencepgx_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fenceproxy/fenceproxy/leases"
	"github.com/fenceproxy/fenceproxy/leases/fencepgx"
	"github.com/fenceproxy/fenceproxy/testharness/poll"
	"github.com/fenceproxy/fenceproxy/testharness/stack"
)

func TestDo_TagsWhatThePoolAcquires(t *testing.T) {
	pool := newPool(t, nil)
	before := one(t.Context(), t, pool, pid)
	err := fencepgx.Do(t.Context(), leases.NewLocker(servers.Client), `a "key" of <ours>`, func(ctx context.Context) error {
		for range 2 { // the tag is taken off in between
			if got := one(ctx, t, pool, tag); !strings.HasPrefix(got, `{"a \"key\" of `) {
				t.Errorf("tag: got %s, want the lock", got)
			}
		}
		_, err := pool.Exec(ctx, insert, t.Name())
		return err
	})
	if err != nil || !there(t, t.Name()) {
		t.Fatalf("got %v, want a row that is there", err)
	}
	if got := one(t.Context(), t, pool, tag); got != "" {
		t.Errorf("tag behind the work: got %s, want none", got)
	}
	if got := one(t.Context(), t, pool, pid); got != before {
		t.Errorf("got backend %s, want %s: a connection that was tagged is used again", got, before)
	}
	if lease, err := leases.NewLocker(servers.Client).TryAcquire(t.Context(), `a "key" of <ours>`); err != nil {
		t.Errorf("the lock behind the work: got %v, want it free", err)
	} else {
		_ = lease.Release(t.Context())
	}
}

// Work under two locks presents both, and its inner part ends with either.
func TestDo_SeveralLocks(t *testing.T) {
	pool, locker := newPool(t, nil), leases.NewLocker(servers.Client)
	both := func(outer context.Context) error {
		return fencepgx.Do(outer, locker, "two:b", func(inner context.Context) error {
			if got := one(inner, t, pool, tag); !strings.Contains(got, `"two:a"`) || !strings.Contains(got, `"two:b"`) {
				t.Errorf("inner tag: got %s, want both locks", got)
			}
			if got := one(outer, t, pool, tag); strings.Contains(got, `"two:b"`) {
				t.Errorf("outer tag: got %s, want its own lock", got)
			}
			if _, err := pool.Exec(inner, insert, t.Name()); err != nil {
				return err
			}
			lose(t, "two:a")
			<-inner.Done()
			return context.Cause(inner)
		})
	}
	if err := fencepgx.Do(t.Context(), locker, "two:a", both); !errors.Is(err, leases.ErrLost) || !strings.Contains(err.Error(), "two:a") {
		t.Errorf("got %v, want the loss of two:a", err)
	}
	if !there(t, t.Name()) {
		t.Error("what was written under both locks isn't there")
	}
}

// A lock that is lost ends what waits for the database, and nothing of an open
// transaction stays.
func TestDo_LossEndsTheWork(t *testing.T) {
	pool := newPool(t, nil)
	err := fencepgx.Do(t.Context(), leases.NewLocker(servers.Client), "lost", func(ctx context.Context) error {
		tx, err := pool.Begin(ctx)
		if err != nil {
			return err
		}
		defer tx.Rollback(ctx)
		if _, err := tx.Exec(ctx, insert, t.Name()); err != nil {
			return err
		}
		ended := make(chan error)
		go func() {
			_, err := tx.Exec(ctx, "SELECT pg_sleep(600)")
			ended <- err
		}()
		onlooker := stack.Connect(t, servers.DSN("postgres", "app"))
		poll.Until(t, "the query", func() bool {
			return one(t.Context(), t, onlooker, "SELECT count(*)::text FROM pg_stat_activity WHERE query LIKE 'SELECT pg_sleep%'") == "1"
		})
		lose(t, "lost")
		err = <-ended
		if cause := context.Cause(ctx); !errors.Is(cause, leases.ErrLost) {
			t.Errorf("got cause %v, want the loss", cause)
		}
		return err
	})
	if !errors.Is(err, leases.ErrLost) || errors.Is(err, leases.ErrReleased) {
		t.Errorf("got %v, want the loss", err)
	}
	if there(t, t.Name()) {
		t.Error("the row of a transaction that was given up is there")
	}
}

// A holder that can't hear of its loss hears of it from the database.
func TestDo_Superseded(t *testing.T) {
	locker, deafen := newDeaf(t)
	pool := newPool(t, nil)
	err := fencepgx.Do(t.Context(), locker, "deaf", func(ctx context.Context) error {
		deafen()
		lose(t, "deaf")
		_, err := pool.Exec(ctx, insert, t.Name())
		if ctx.Err() != nil {
			t.Errorf("got %v, want a holder that doesn't know yet", context.Cause(ctx))
		}
		return fmt.Errorf("work: %w", err)
	})
	var refusal *pgconn.PgError
	if !errors.Is(err, leases.ErrLost) || !errors.As(err, &refusal) || refusal.Code != "LF001" {
		t.Errorf("got %v, want the loss, and LF001", err)
	}
	if there(t, t.Name()) {
		t.Error("the stale holder's row is there")
	}
}

func TestUnder_Outcome(t *testing.T) {
	own := errors.New("own")
	for name, c := range map[string]struct {
		work func(key string) error
		want []error // all of them; none for success
		not  error
	}{
		"well":            {func(string) error { return nil }, nil, nil},
		"failed":          {func(string) error { return own }, []error{own}, leases.ErrLost},
		"lost":            {func(key string) error { lose(t, key); return nil }, []error{leases.ErrLost}, own},
		"lost and failed": {func(key string) error { lose(t, key); return own }, []error{own, leases.ErrLost}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			key := "outcome:" + name
			lease, err := leases.NewLocker(servers.Client).TryAcquire(t.Context(), key)
			if err != nil {
				t.Fatal(err)
			}
			got := fencepgx.Under(t.Context(), lease, func(context.Context) error { return c.work(key) })
			if (got == nil) != (c.want == nil) || c.not != nil && errors.Is(got, c.not) {
				t.Errorf("got %v, want %v", got, c.want)
			}
			for _, want := range c.want {
				if !errors.Is(got, want) {
					t.Errorf("got %v, want %v in it", got, want)
				}
			}
		})
	}
}

// The lock is given back whatever ends the work.
func TestUnder_Releases(t *testing.T) {
	locker := leases.NewLocker(servers.Client)
	for name, work := range map[string]func(context.CancelFunc){
		"panic":         func(context.CancelFunc) { panic("of the work") },
		"caller's end":  func(cancel context.CancelFunc) { cancel() },
		"nothing amiss": func(context.CancelFunc) {},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			func() {
				defer func() { _ = recover() }()
				_ = fencepgx.Do(ctx, locker, "given:back", func(context.Context) error { work(cancel); return nil })
			}()
			lease, err := locker.TryAcquire(t.Context(), "given:back")
			if err != nil {
				t.Fatalf("got %v, want the lock free", err)
			}
			_ = lease.Release(t.Context())
		})
	}
}

// Who doesn't get the lock doesn't begin.
func TestDo_Taken(t *testing.T) {
	locker := leases.NewLocker(servers.Client)
	lease, err := locker.TryAcquire(t.Context(), "taken")
	if err != nil {
		t.Fatal(err)
	}
	defer lease.Release(t.Context())
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	err = fencepgx.Do(ctx, locker, "taken", func(context.Context) error { t.Error("the work has begun"); return nil })
	if !errors.Is(err, leases.ErrTaken) {
		t.Errorf("got %v, want %v", err, leases.ErrTaken)
	}
}
