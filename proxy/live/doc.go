// Package live is what people who look on a running proxy are shown: its sessions
// and the locks that they are tagged with at this moment, its settings, and what
// has happened in it (a Journal of claims, refusals, evictions and sessions). The
// server and the command line fill it in; the console reads it.
//
// It holds no text of SQL, no parameter and no password, and it never waits for a
// reader: what a slow one misses is counted, not kept.
package live
