package console

import (
	"context"
	"slices"
)

// DefaultDatabase is what clients connect to for the console.
const DefaultDatabase = "fenceproxy"

// Settings say where the console is and who may use it. A role is one of those
// named, or one that has the privileges of one of them.
type Settings struct {
	Database string   // "": there is no console
	Admins   []string // may do everything
	Watchers []string // may look
}

// Access is what a role may do.
type Access uint8

const (
	// Nothing: not even look.
	Nothing Access = iota
	// Watch: every SHOW.
	Watch
	// Administer: KILL and RELOAD too.
	Administer
)

func (a Access) String() string { return [...]string{"nothing", "watch", "administer"}[a] }

// Roles knows the roles of PostgreSQL. *fencing.Store is one.
type Roles interface {
	// HasPrivilegesOf reports whether role has those of one of the named ones. The
	// error says that it can't be told.
	HasPrivilegesOf(ctx context.Context, role string, names []string) (bool, error)
}

// Access says what a role may do, which PostgreSQL has authenticated. Where that
// can't be told the answer is Nothing, and the error says why.
func (c *Console) Access(ctx context.Context, s Settings, role string) (Access, error) {
	for _, rank := range [...]struct {
		access Access
		names  []string
	}{{Administer, s.Admins}, {Watch, s.Watchers}} {
		if len(rank.names) == 0 {
			continue
		}
		has := slices.Contains(rank.names, role)
		if !has {
			var err error
			if has, err = c.Roles.HasPrivilegesOf(ctx, role, rank.names); err != nil {
				return Nothing, err
			}
		}
		if has {
			return rank.access, nil
		}
	}
	return Nothing, nil
}
