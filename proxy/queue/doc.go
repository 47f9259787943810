// Package queue keeps the replies that are due on one session, in order, and
// says of each message that the backend sends what becomes of it: forwarded,
// hidden, or turned into a refusal.
//
// It is pure: it has no connection, no clock and no lock, and it never sees
// more of a message than its type. An entry is pushed before the bytes that
// cause its reply are sent. Hidden replies go by position, never by type.
//
// The session in package proxy is the only caller; it holds its own lock.
package queue
