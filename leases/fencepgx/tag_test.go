package fencepgx_test

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fenceproxy/fenceproxy/leases"
	"github.com/fenceproxy/fenceproxy/leases/fencepgx"
	"github.com/fenceproxy/fenceproxy/testharness/stack"
)

func TestTag_Session(t *testing.T) {
	conn := stack.Connect(t, proxyDSN)
	err := fencepgx.Do(t.Context(), leases.NewLocker(servers.Client), "session", func(ctx context.Context) error {
		if err := fencepgx.Tag(ctx, conn); err != nil {
			return err
		}
		if got := one(ctx, t, conn, tag); got == "" {
			t.Error("no tag")
		}
		_, err := conn.Exec(ctx, insert, t.Name())
		return errors.Join(err, fencepgx.Untag(ctx, conn))
	})
	if err != nil || !there(t, t.Name()) {
		t.Errorf("got %v, want a row that is there", err)
	}
	if got := one(t.Context(), t, conn, tag); got != "" {
		t.Errorf("tag behind Untag: got %s, want none", got)
	}
}

func TestTagTx_EndsWithTheTransaction(t *testing.T) {
	conn := stack.Connect(t, proxyDSN)
	err := fencepgx.Do(t.Context(), leases.NewLocker(servers.Client), "transaction", func(ctx context.Context) error {
		return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
			if err := fencepgx.TagTx(ctx, tx); err != nil {
				return err
			}
			if got := one(ctx, t, tx, tag); got == "" {
				t.Error("no tag")
			}
			_, err := tx.Exec(ctx, insert, t.Name())
			return err
		})
	})
	if err != nil || !there(t, t.Name()) {
		t.Errorf("got %v, want a row that is there", err)
	}
	if got := one(t.Context(), t, conn, tag); got != "" {
		t.Errorf("tag behind the transaction: got %s, want none", got)
	}
}

// What has no lock is refused, not left untagged.
func TestTag_WithoutLock(t *testing.T) {
	conn := stack.Connect(t, proxyDSN)
	if err := fencepgx.Tag(t.Context(), conn); !errors.Is(err, fencepgx.ErrNoLock) {
		t.Errorf("got %v, want %v", err, fencepgx.ErrNoLock)
	}
	lease, err := leases.NewLocker(servers.Client).TryAcquire(t.Context(), "given up")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := fencepgx.With(t.Context(), lease)
	defer cancel()
	if err := lease.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	<-ctx.Done()
	if cause := context.Cause(ctx); !errors.Is(cause, leases.ErrReleased) {
		t.Errorf("got cause %v, want %v", cause, leases.ErrReleased)
	}
	if err := fencepgx.Tag(ctx, conn); !errors.Is(err, leases.ErrReleased) {
		t.Errorf("got %v, want %v", err, leases.ErrReleased)
	}
}

// A refused tag stays with its session, so the session must not stay in the pool.
func TestConfigure_RefusedTag(t *testing.T) {
	pool := newPool(t, nil)
	old := one(t.Context(), t, pool, pid)
	locker, deafen := newDeaf(t)
	err := fencepgx.Do(t.Context(), locker, "refused", func(ctx context.Context) error {
		deafen()
		lose(t, "refused")
		if _, err := pool.Exec(ctx, insert, t.Name()); err == nil {
			t.Error("got nothing, want a refusal")
		}
		if _, err := pool.Exec(t.Context(), insert, t.Name()+" untagged"); err != nil {
			t.Errorf("without a lock: got %v", err)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	if now := one(t.Context(), t, pool, pid); now == old {
		t.Error("the refused session was used again")
	}
	if there(t, t.Name()) {
		t.Error("the refused row is there")
	}
}

// A connection that ended while nobody used it is no error of the work.
func TestConfigure_BrokenConnection(t *testing.T) {
	pool := newPool(t, nil)
	old := one(t.Context(), t, pool, pid)
	admin := stack.Connect(t, servers.DSN("postgres", "app"))
	one(t.Context(), t, admin, "SELECT pg_terminate_backend($1::text::int, 10000)::text", old)
	err := fencepgx.Do(t.Context(), leases.NewLocker(servers.Client), "broken", func(ctx context.Context) error {
		_, err := pool.Exec(ctx, insert, t.Name())
		return err
	})
	if err != nil || !there(t, t.Name()) {
		t.Errorf("got %v, want a row that is there", err)
	}
}

// Hooks that a pool had before are called as before.
func TestConfigure_KeepsHooks(t *testing.T) {
	locker := leases.NewLocker(servers.Client)
	asked := func(pool *pgxpool.Pool) {
		t.Helper()
		if err := fencepgx.Do(t.Context(), locker, "hooks", func(ctx context.Context) error {
			_, err := pool.Exec(ctx, "SELECT")
			return err
		}); err != nil {
			t.Error(err)
		}
	}
	var calls []string
	note := func(what string, ok bool) bool { calls = append(calls, what); return ok }
	released := make(chan string, 1)
	after := func(conn *pgx.Conn) bool {
		released <- one(context.Background(), t, conn, tag)
		return true
	}
	for _, set := range []func(*pgxpool.Config){
		func(c *pgxpool.Config) {
			c.AfterRelease = after
			c.BeforeAcquire = func(context.Context, *pgx.Conn) bool { return note("before", true) }
		},
		func(c *pgxpool.Config) {
			c.AfterRelease = after
			c.PrepareConn = func(context.Context, *pgx.Conn) (bool, error) { return note("prepare", true), nil }
			c.BeforeAcquire = func(context.Context, *pgx.Conn) bool { return note("ignored", true) }
		},
	} {
		asked(newPool(t, set))
		if got := <-released; got != "" {
			t.Errorf("AfterRelease: got a connection with the tag %s, want none", got)
		}
	}
	if got := len(calls); got != 2 || calls[0] != "before" || calls[1] != "prepare" {
		t.Errorf("got calls %v, want before, prepare", calls)
	}
	refused := errors.New("own reason")
	pool := newPool(t, func(c *pgxpool.Config) {
		c.PrepareConn = func(context.Context, *pgx.Conn) (bool, error) { return true, refused }
	})
	if _, err := pool.Exec(t.Context(), "SELECT"); !errors.Is(err, refused) {
		t.Errorf("got %v, want the hook's own error", err)
	}
}
