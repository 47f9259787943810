// Package scram is SCRAM-SHA-256 as PostgreSQL speaks it (RFC 5802, RFC 7677,
// auth-scram.c), in both roles, for key pass-through where the proxy ends TLS
// and so can't relay an exchange that is bound to the channel:
//
//	client ── proof ─▶ Server (the role's Secret) ── ClientKey ─▶ Client ── proof ─▶ PostgreSQL
//
// A Server verifies a client by the role's Secret and recovers the ClientKey
// from the proof; a Client logs in with that key. No password is known to
// either. PgBouncer had the idea.
//
// It is pure: bodies of messages in, bodies of messages out, no I/O and no
// goroutines. It refuses messages over the size that PostgreSQL takes before
// it looks at them, and answers a malformed one with the SQLSTATE and the text
// of PostgreSQL 15 to 18. A user without a Secret gets a whole exchange
// against a mock one. It never prints a key: Key, Secret and Entry hide
// themselves.
//
// What it leaves to its caller, package proxy: framing, what counts as a
// user's Secret, one Server for one user (a second startup packet must never
// be read during an exchange), and to accept AuthenticationOk from PostgreSQL
// only when Client.Verified says so.
package scram
