// Browser is how the dashboard is tried as people see it: a PostgreSQL, an etcd and
// proxies, and a headless Chromium that Playwright drives. `make dashboard` runs it.
//
// This program starts the servers and does to them what the scripts in page ask for
// (hold a lock, write, be refused, restart the proxy), over HTTP on loopback; node's
// test runner runs the scripts.
package main
