package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/fenceproxy/fenceproxy/leases"
)

// lookAtPolicies looks whether the rules name what there is: one that doesn't
// leaves somebody with another policy than was meant.
func (c *doctorCommand) lookAtPolicies(ctx context.Context, d *diagnosis, conn *pgx.Conn) error {
	missing := 0
	for i, r := range c.policy.rules.rules {
		for _, named := range [...]struct{ kind, name, query string }{
			{"database", r.database, "SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)"},
			{"role", r.role, "SELECT EXISTS (SELECT FROM pg_roles WHERE rolname = $1)"},
		} {
			if named.name == "" || strings.Contains(named.name, "*") {
				continue
			}
			var there bool
			if err := conn.QueryRow(ctx, named.query, named.name).Scan(&there); err != nil {
				return err
			}
			if !there {
				missing++
				d.warn("Mend the name, or take the rule out.", "rule %d of --policies names %s %s, and there is none", i+1, named.kind, named.name)
			}
		}
	}
	if missing == 0 {
		d.ok("untagged_writes %v and fencing %v for all, and %s", &c.policy.untagged, &c.policy.fencing, countOf(len(c.policy.rules.rules), "rule"))
	}
	return nil
}

// countOf is a number of things in words.
func countOf(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// lookAtWatch looks whether etcd lets the proxies watch the locks, where a
// policy needs that.
func (c *doctorCommand) lookAtWatch(ctx context.Context, d *diagnosis, authority *leases.Authority) error {
	policies, err := c.policy.policies()
	if err != nil || !policies.Follow() {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	d.area = "etcd"
	if err := authority.Watchable(ctx); err != nil {
		d.fail("Let etcd's user read all keys below "+authority.Prefix+".", "the locks can't be watched, as fencing issued and live need: %v", err)
		return nil
	}
	d.ok("the locks can be watched, as fencing issued and live need")
	return nil
}
