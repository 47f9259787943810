package main

import "strconv"

// A route is a way from a client to PostgreSQL.
type route int

const (
	direct     route = iota
	pgbouncer        // in session mode
	haproxy          // in tcp mode
	fenceproxy       // untagged, unless the contender has a tag
	another          // a second fenceproxy
)

func (r route) String() string {
	switch r {
	case direct:
		return "direct"
	case pgbouncer:
		return "PgBouncer"
	case haproxy:
		return "HAProxy"
	case fenceproxy:
		return "fenceproxy"
	case another:
		return "another fenceproxy"
	default:
		return "route(" + strconv.Itoa(int(r)) + ")"
	}
}

// A contender is what is measured beside others in a workload.
type contender struct {
	name   string
	route  route
	tag    bool   // its sessions present the lock
	tls    bool   // its sessions are encrypted
	script string // what pgbench runs, where pgbench makes the load
}

// named returns a contender by the name of its route.
func (c contender) named() contender {
	c.name = c.route.String()
	if c.tag {
		c.name += " tagged"
	}
	if c.tls {
		c.name += " TLS"
	}
	return c
}

// proxies are the ways of a workload that doesn't fence by hand: one script on
// each.
func proxies(script string, tls bool) []contender {
	var all []contender
	for _, c := range []contender{{route: direct}, {route: pgbouncer}, {route: haproxy}, {route: fenceproxy}, {route: fenceproxy, tag: true}} {
		c.script = script
		c = c.named() // the workload's name says whether it is encrypted
		c.tls = tls
		all = append(all, c)
	}
	return all
}
