// Package report makes one HTML page of what scenarios came to: a table, and
// for each run a space-time diagram, drawn from its history alone. Time runs
// downwards; each worker, etcd, each proxy and PostgreSQL has a lane.
//
// The page needs nothing but itself: no script, no font, no network. Called
// by fenceproxy demo --report.
package report
