// Package postgres starts a real, throw-away PostgreSQL server on loopback:
// for tests (New), for `fenceproxy dev` and for the demo (Start).
//
// The server belongs to its parent. Close ends it and removes its folders, and
// on Linux it is shut down by the kernel when the parent dies, even by kill -9
// (only its folders in the temporary folder stay behind then). Elsewhere a
// parent that is killed leaves the server running; Close is the only end.
//
// It refuses to be a server for real data: fsync is off unless asked for, the
// shutdown is always an immediate one, and nothing but loopback is listened on.
// PostgreSQL will not run as root, so a root parent runs it as user postgres.
package postgres
