package postgres

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
)

// TB is the part of testing.TB that New needs; this package is also part of
// `fenceproxy dev`, which has no business with package testing.
type TB interface {
	Helper()
	Cleanup(func())
	Fatalf(format string, args ...any)
}

// New starts a server for a test and closes it when the test ends. It keeps
// templates in the temporary folder, so a start takes a fraction of a second.
// A missing PostgreSQL fails the test.
func New(t TB, options Options) *Server {
	t.Helper()
	if options.Template == "" {
		options.Template = filepath.Join(os.TempDir(), fmt.Sprintf("fenceproxy-postgres-template-%d", os.Geteuid()))
	}
	if options.Auth == AuthSCRAM && options.Password == "" {
		options.Password = "test" // a random one would make a template each time
	}
	s, err := Start(context.Background(), options)
	if err != nil {
		t.Fatalf("start PostgreSQL for the test: %v", err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Fatalf("close PostgreSQL: %v", err)
		}
	})
	return s
}
