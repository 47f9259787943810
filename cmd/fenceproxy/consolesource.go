package main

import (
	"context"
	"log/slog"
	"maps"
	"slices"

	"github.com/fenceproxy/fenceproxy/fencing"
	"github.com/fenceproxy/fenceproxy/leases"
	"github.com/fenceproxy/fenceproxy/proxy"
	"github.com/fenceproxy/fenceproxy/proxy/console"
)

// A consoled is the PostgreSQL that a console asks: *upstream, *fencing.Store.
type consoled interface {
	console.Marks
	console.Roles
	// Database is the one of the proxy's own DSN.
	Database() string
}

// newConsole is that of a server, its PostgreSQL, its etcd and what it runs in.
func newConsole(server *proxy.Server, db consoled, authority *leases.Authority, program console.Program) *console.Console {
	return &console.Console{
		Server: server, Marks: db, Locks: etcdLocks{authority}, Roles: db, Program: program, Journal: server.Journal,
		Version: programVersion(), Login: db.Database(),
	}
}

// Database is the same on all servers.
func (u *upstream) Database() string { return u.hosts[0].store.Database() }

// warnShadowed tells of a database that can't be reached because the console has its
// name. Where that can't be asked there is more to tell than this.
func (u *upstream) warnShadowed(ctx context.Context, name string, logger *slog.Logger) {
	if name == "" {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	_ = u.first(ctx, func(s *fencing.Store) error {
		has, err := s.HasDatabase(ctx, name)
		if has {
			logger.Warn("a database is not reached through the proxy: the console has its name; console_database gives it another", "database", name)
		}
		return err
	})
}

// Databases returns those that were used on any server.
func (u *upstream) Databases() []string {
	names := map[string]struct{}{}
	for _, h := range u.hosts {
		for _, name := range h.store.Databases() {
			names[name] = struct{}{}
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// ListMarks asks the server that sessions go to now, or the first that answers.
func (u *upstream) ListMarks(ctx context.Context, database string, what fencing.Listing) (marks []fencing.ListedMark, more bool, err error) {
	err = u.first(ctx, func(s *fencing.Store) (err error) {
		marks, more, err = s.ListMarks(ctx, database, what)
		return err
	})
	return marks, more, err
}

// GrantListing is for the role that all servers are asked as.
func (u *upstream) GrantListing() string { return u.hosts[0].store.GrantListing() }

// HasPrivilegesOf asks as ListMarks does.
func (u *upstream) HasPrivilegesOf(ctx context.Context, role string, names []string) (has bool, err error) {
	err = u.first(ctx, func(s *fencing.Store) (err error) {
		has, err = s.HasPrivilegesOf(ctx, role, names)
		return err
	})
	return has, err
}
