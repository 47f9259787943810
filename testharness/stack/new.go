package stack

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/fenceproxy/fenceproxy/testharness/postgres"
)

// New starts a stack with the given databases for a test, schema fence in
// each, and ends it when the test does. The role RoleApp owns the databases.
func New(t postgres.TB, databases ...string) *Stack {
	t.Helper()
	ctx := context.Background()
	s, err := Start(ctx, Options{Postgres: postgres.Options{
		// A password that stays the same lets servers share a template.
		Password: "test",
		Template: filepath.Join(os.TempDir(), fmt.Sprintf("fenceproxy-postgres-template-%d", os.Geteuid())),
	}})
	if err != nil {
		t.Fatalf("start a stack for the test: %v", err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Fatalf("close the stack: %v", err)
		}
	})
	for _, name := range databases {
		if err := s.CreateDatabase(ctx, name); err != nil {
			t.Fatalf("create database %s: %v", name, err)
		}
		if err := s.Install(ctx, name); err != nil {
			t.Fatalf("install schema fence in %s: %v", name, err)
		}
	}
	return s
}
