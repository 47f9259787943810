// Package chaos tries to break fenceproxy's promise: many worker processes take
// locks, claim, read and write through several proxies, while a plan of faults,
// drawn from a seed, pauses, kills and cuts off whatever there is: workers,
// proxies, members of an etcd cluster of three, a PostgreSQL primary with a
// synchronous standby, and the links between any two of them. What everybody did
// and was answered goes to files (package history), and checkers decide by those
// (package history/check).
//
// Run does all of it. Options.Workload replaces the workers by others, in any
// language: a command that is given an Assignment and writes a history. Serve is
// what the processes that Run starts do, and the program that calls Run must call
// it when it is started as one of those.
//
// A Postgres of these runs doesn't sync to disk: processes are killed, machines
// aren't.
package chaos
