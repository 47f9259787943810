// Command pgregress runs PostgreSQL's own test suites straight to a server and
// through a real fenceproxy serve, and tells what fails only through the
// proxy. `make pg-regress` calls it, with the files that fetch-regress.sh
// keeps; nothing else does.
//
// Each suite is played on up to four legs, each with a server of its own:
//
//	straight   to PostgreSQL
//	proxied    through the proxy, untagged: no test may fail that passes straight
//	fenced     to PostgreSQL, in a database that has schema fence
//	tagged     through the proxy, with a tag that was claimed: tests may fail that
//	           testdata/tagged names with a reason, and must then
//
// It refuses to judge by itself: PostgreSQL's pg_regress, isolationtester and
// libpq_pipeline say what passes. Programs that ship no expected output (psql,
// vacuumdb and their like, suite tools) are held against their own on the
// straight leg, to the last byte.
package main
