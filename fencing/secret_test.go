package fencing_test

import (
	"bytes"
	"testing"

	"github.com/fenceproxy/fenceproxy/fencing"
)

// The key of mock salts is the same for every proxy, after every install, and
// another one in another installation. Applications can't read it.
func TestStore_MockKey(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	key := func(user string) ([]byte, int, error) {
		t.Helper()
		store, err := fencing.NewStore(s.srv.DSN(user, database))
		if err != nil {
			t.Fatal(err)
		}
		defer store.Close()
		return store.MockKey(t.Context())
	}
	first, iterations, err := key(adminRol)
	if err != nil || len(first) != 32 {
		t.Fatalf("got %d bytes, %v, want 32", len(first), err)
	}
	s.install()
	if again, _, err := key(adminRol); err != nil || !bytes.Equal(again, first) {
		t.Errorf("after another install: got %x, %v, want %x", again, err, first)
	}
	if _, _, err := key(appRole); code(err) != "42501" {
		t.Errorf("an application's role: got %v, want 42501", err)
	}
	if want := one[int](s, s.root(), "SELECT coalesce(current_setting('scram_iterations', true), '0')::int"); iterations != want {
		t.Errorf("got %d iterations, want %d", iterations, want)
	}

	// What version 1 left has a key after the upgrade.
	admin := s.dial(adminRol, database)
	s.exec(admin, "DROP SCHEMA fence CASCADE")
	if _, err := fencing.InstallFrom(t.Context(), admin, fencing.SchemaFiles(), 1); err != nil {
		t.Fatal(err)
	}
	if from, _ := s.install(); from != 1 {
		t.Errorf("upgraded from %d, want 1", from)
	}
	if another, _, err := key(adminRol); err != nil || len(another) != 32 || bytes.Equal(another, first) {
		t.Errorf("after an upgrade: got %x, %v, want another key than %x", another, err, first)
	}
}

// A name that no role can have is one of an unknown role.
func TestStore_RoleSecretOfNobody(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	store, err := fencing.NewStore(s.srv.DSN("postgres", database))
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	for _, role := range []string{"nobody", "", "\xff", "caf\xe9"} {
		if secret, err := store.RoleSecret(t.Context(), role); secret != "" || err != nil {
			t.Errorf("%q: got %q, %v, want nothing", role, secret, err)
		}
	}
}
