// Package fencing holds the words of the fencing protocol (token, tag, claim,
// refusal) and carries a claim out: it asks an Authority whether a token is
// the current holder's, has stale work evicted, and raises the mark in the
// protected database.
//
// It refuses to decide anything from a number alone: a mark is only ever a
// token that the Authority confirmed. It keeps no durable state of its own;
// marks live in schema fence of the protected database, and the check that
// every fenced transaction runs is a function there.
//
// The proxy calls a Claimer before it forwards a message that carries a tag;
// the command line calls Install.
package fencing
