// Package testharness is the house of what tests, dev and demo stand on:
// real PostgreSQL servers, a real etcd and real proxies, never mocks of them.
//
// Its folders are packages of their own: postgres and etcdtest (throw-away servers),
// stack (Postgres, etcd and proxies together), scenario (stories of stale
// lock holders, played with processes that are really paused), child (how
// those processes are started), wire (conversations that must be the same
// straight to PostgreSQL and through the proxy), clients (the same of drivers
// in many languages), pgregress (the same of PostgreSQL's own test suites),
// bench (how fast it all is, beside PgBouncer, HAProxy and fencing by hand),
// cases (how lock holders go wrong, one by one), mutants (each protection
// taken out, and the test that notices), history (what workers under faults did
// and were answered, and checkers that judge it), fault (links that can be cut
// and slowed down, and plans of faults), chaos (all of it under such a plan),
// steps (something broken at every step of a claim and of a write),
// claims and idle (what claims and idle sessions cost), certs (certificates),
// poll (how tests wait), dial (their plain sessions), samples (how they read
// metrics), environ (how they are told how much to do), command (how programs
// begin and end). setup.sh installs or names what they need; imports.sh keeps
// the import direction.
//
// Nothing in it is imported by the packages that serve traffic.
package testharness
