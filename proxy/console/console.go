package console

import (
	"context"

	"github.com/fenceproxy/fenceproxy/fencing"
	"github.com/fenceproxy/fenceproxy/proxy/live"
)

// Server is the proxy that the console is of. *proxy.Server is one.
type Server interface {
	// LiveSessions returns the sessions by their number.
	LiveSessions() []live.Session
	// Kill ends the session with a number, and reports whether there was one. by
	// is who wanted it.
	Kill(ctx context.Context, session uint64, by string) bool
}

// Marks reads the marks of the databases that the proxy protects. *fencing.Store
// is one.
type Marks interface {
	// Databases returns those that were used.
	Databases() []string
	// ListMarks returns some marks of a database, and whether there are more. The
	// error wraps fencing.ErrMayNotList where a right is missing.
	ListMarks(ctx context.Context, database string, what fencing.Listing) (marks []fencing.ListedMark, more bool, err error)
	// GrantListing is what gives that right.
	GrantListing() string
}

// Locks asks etcd who holds locks.
type Locks interface {
	// HeldLocks returns those of the keys that somebody holds.
	HeldLocks(ctx context.Context, keys []string) ([]live.Lock, error)
}

// Program is what the proxy runs in.
type Program interface {
	// Settings returns them by name.
	Settings() []live.Setting
	// Stats returns the samples of /metrics.
	Stats() ([]live.Stat, error)
	// Reload reads the settings anew. An error that wraps others is of several
	// faults; none of the settings has changed then.
	Reload(ctx context.Context) (live.Reloaded, error)
}

// A Console answers its clients out of what it looks at.
type Console struct {
	Server  Server
	Marks   Marks
	Locks   Locks // nil: nothing is known of them
	Program Program
	Roles   Roles
	Journal *live.Journal
	Version string // of the program, for people
	// Login is the database of PostgreSQL that clients are authenticated in.
	Login string
}
