// Package clients holds fenceproxy against the drivers that applications use.
// programs has one small program per driver, in the driver's language. The
// tests run each of them straight to PostgreSQL and through a real `fenceproxy
// serve`: untagged, tagged, and tagged over TLS. What the application sees must
// be the same, and it must see the codes of a refusal as its driver's own
// errors when the lock has gone to somebody else.
//
// A program is told where the server is by libpq's variables (PGHOST, PGPORT,
// PGUSER, PGPASSWORD, PGDATABASE, PGSSLMODE), and its lock, if it has one, by
// FENCE_KEY and FENCE_TOKEN, as `fenceproxy lock` exports them. Its first
// argument says what to do:
//
//	play   work with table item, and say at each step what was seen
//	fence  write with each way to tag a session that the driver has; wait for a
//	       line on standard input, while the lock is lost; try all of it again
//
// It prints lines of the form `step: what was seen`, the version of its driver
// among them, and exits with status 0 unless something else than a refusal went
// wrong. Whoever changes a program or adds one runs `make clients`, which also
// writes docs/clients.md: the table of results, and each program's lines from
// `recipe` to `end`, which show how its driver tags a session.
//
// The whole programs of docs/tagging.md and docs/sql-locks.md are run as they
// stand there, too.
//
// Go's programs are a module of their own, so that drivers that nothing else
// here uses stay out of the project's.
package clients
