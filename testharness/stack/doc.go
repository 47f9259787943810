// Package stack starts what fenceproxy works in, all of it real and
// throw-away: a PostgreSQL server, a single-node etcd and any number of
// proxies, on free ports of loopback unless told otherwise.
//
// Proxies are servers in this process (StartProxy), or processes of their own
// that can be paused and killed (StartProcess). Called by tests, by fenceproxy
// dev and by fenceproxy demo; never by what serves real data.
package stack
