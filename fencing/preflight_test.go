package fencing_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fenceproxy/fenceproxy/fencing"
)

func TestStore_Preflight(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	preflight := func(t *testing.T, dsn string) string {
		t.Helper()
		store, err := fencing.NewStore(dsn)
		if err != nil {
			t.Fatal(err)
		}
		defer store.Close()
		if err := store.Preflight(t.Context()); err != nil {
			return err.Error()
		}
		return ""
	}
	current := fmt.Sprintf("UPDATE fence.meta SET version = %d", fencing.SchemaVersion)
	cases := []struct {
		name   string
		damage string // as superuser, in the database
		mend   string
		user   string
		db     string
		says   []string // nothing: no error
	}{
		{"the owner", "", "", adminRol, database, nil},
		{"a superuser", "", "", "postgres", database, nil},
		{"a role that may claim", "GRANT EXECUTE ON FUNCTION fence.claim(text, bigint, text, text, bigint, integer, text), fence.accepted(text), fence.current_lineage(), fence.version() TO app_user; GRANT pg_read_all_stats, pg_signal_backend TO app_user",
			"REVOKE ALL ON FUNCTION fence.claim(text, bigint, text, text, bigint, integer, text), fence.accepted(text), fence.current_lineage(), fence.version() FROM app_user; REVOKE pg_read_all_stats, pg_signal_backend FROM app_user", appRole, database, nil},
		{"an app's role", "", "", appRole, database, []string{"role app_user may not claim", "GRANT EXECUTE ON FUNCTION fence.claim(text, bigint, text, text, bigint, integer, text), fence.accepted(text), fence.current_lineage(), fence.version() TO app_user"}},
		{"no schema", "", "", adminRol, "postgres", []string{"schema fence is not installed", "fenceproxy init --upstream 'postgres://fence_admin@127.0.0.1:", "/postgres'"}},
		{"no such database", "", "", adminRol, "nowhere", []string{`database "nowhere" does not exist`}},
		{"no such role", "", "", "nobody", database, []string{`role "nobody" does not exist`}},
		{"may not signal", "REVOKE pg_signal_backend FROM fence_admin", "GRANT pg_signal_backend TO fence_admin", adminRol, database, []string{"may not end what blocks a claim", "GRANT pg_signal_backend TO fence_admin"}},
		{"may not see", "REVOKE pg_read_all_stats FROM fence_admin", "GRANT pg_read_all_stats TO fence_admin", adminRol, database, []string{"may not see what blocks a claim", "GRANT pg_read_all_stats TO fence_admin"}},
		{"an older schema", "UPDATE fence.meta SET version = 0", current, adminRol, database, []string{"has version 0", "fenceproxy init"}},
		{"a newer schema", "UPDATE fence.meta SET version = 99", current, adminRol, database, []string{"has version 99", "newer fenceproxy"}},
		{"no marks", "ALTER TABLE fence.mark RENAME TO gone", "ALTER TABLE fence.gone RENAME TO mark", adminRol, database, []string{"damaged: table fence.mark is missing", "restore", "DROP SCHEMA fence CASCADE", "fenceproxy init --upstream 'postgres://"}},
		{"no version", "ALTER TABLE fence.meta RENAME TO gone", "ALTER TABLE fence.gone RENAME TO meta", adminRol, database, []string{"damaged: table fence.meta is missing", "fenceproxy init"}},
		{"an empty version", "CREATE TABLE public.meta AS TABLE fence.meta; DELETE FROM fence.meta", "INSERT INTO fence.meta TABLE public.meta", adminRol, database, []string{"damaged: table fence.meta is empty", "fenceproxy init"}},
		{"no lineage", "ALTER TABLE fence.lineage RENAME TO gone", "ALTER TABLE fence.gone RENAME TO lineage", adminRol, database, []string{"damaged: table fence.lineage is missing"}},
		{"a column is missing", "ALTER TABLE fence.mark RENAME lock_key TO gone", "ALTER TABLE fence.mark RENAME gone TO lock_key", adminRol, database, []string{"damaged: table fence.mark lacks lock_key text"}},
		{"no primary key", "ALTER TABLE fence.mark DROP CONSTRAINT mark_pkey", "ALTER TABLE fence.mark ADD PRIMARY KEY (resource_key)", adminRol, database, []string{"damaged: table fence.mark lacks PRIMARY KEY (resource_key)"}},
		{"the check is missing", "ALTER FUNCTION fence.check(boolean) RENAME TO gone", "ALTER FUNCTION fence.gone(boolean) RENAME TO \"check\"", adminRol, database, []string{"function fence.check(boolean) is missing", "fenceproxy init"}},
		{"a function is missing", "ALTER FUNCTION fence.accepted(text) RENAME TO gone", "ALTER FUNCTION fence.gone(text) RENAME TO accepted", adminRol, database, []string{"not installed, or an old one", "fenceproxy init"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			s := &stack{t: t, srv: s.srv}
			if c.damage != "" {
				s.exec(s.root(), c.damage)
			}
			got := preflight(t, s.srv.DSN(c.user, c.db))
			if (got == "") != (c.says == nil) {
				t.Errorf("got %q, want %q", got, c.says)
			}
			for _, text := range c.says {
				if !strings.Contains(got, text) {
					t.Errorf("got %q, want it to say %q", got, text)
				}
			}
			if strings.Contains(got, "\n") {
				t.Errorf("more than one line: %q", got)
			}
			if c.mend != "" {
				s.exec(s.root(), c.mend)
			}
		})
	}
	t.Run("a standby", func(t *testing.T) {
		makeStandby(t, s.srv)
		if got := preflight(t, s.srv.DSN(adminRol, database)); !strings.Contains(got, "it is a standby") {
			t.Errorf("got %q", got)
		}
	})
	t.Run("nobody there", func(t *testing.T) {
		if err := s.srv.Stop(); err != nil {
			t.Fatal(err)
		}
		dsn := strings.Replace(s.srv.DSN(adminRol, database), "sslmode=disable", "sslmode=prefer", 1)
		if got := preflight(t, dsn); !strings.Contains(got, s.srv.Addr()) || !strings.Contains(got, "connection refused") || strings.Contains(got, "\n") {
			t.Errorf("got %q, want one line with the address and the reason", got)
		}
	})
}

// pooled is a connection whose cancel key is that of a pooler, as the client sees
// it: of no process that PostgreSQL knows.
type pooled struct{ net.Conn }

func (c pooled) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if at := bytes.Index(b[:n], []byte("K\x00\x00\x00\x0c")); at >= 0 {
		b[at+len("K\x00\x00\x00\x0c")] ^= 0x40
	}
	return n, err
}

func TestStore_Preflight_Pooler(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	config, err := pgxpool.ParseConfig(s.srv.DSN(adminRol, database))
	if err != nil {
		t.Fatal(err)
	}
	config.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
		return pooled{conn}, err
	}
	store := fencing.NewStoreOf(config)
	defer store.Close()
	if err := store.Preflight(t.Context()); err == nil || !strings.Contains(err.Error(), "a pooler stands between") {
		t.Errorf("got %v, want an error that tells of the pooler", err)
	}
}

func TestNewStore_BadDSN(t *testing.T) {
	t.Parallel()
	if _, err := fencing.NewStore("postgres://127.0.0.1:notaport/app"); err == nil || !strings.HasPrefix(err.Error(), "read the upstream connection string: ") {
		t.Errorf("got %v", err)
	}
}
