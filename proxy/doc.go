// Package proxy relays PostgreSQL sessions and sees to it that a tagged one
// commits no write that a check does not cover. It is the only package that
// sees PostgreSQL bytes. A Server is made and served by the command line and
// by the test harness; it asks its Claims before it forwards a tag.
//
// It refuses to guess: a text that it can't split, a reply that it didn't
// expect and a tag that it can't read end in an error, never in a relayed
// write. It stores nothing that must survive it.
//
// The way of the data, which never turns round:
//
//	client ─▶ wire.Reader ─▶ request.go ─▶ guard.go: query.go, ──▶ inject.go ─▶ wire.Writer ─▶ PostgreSQL
//	              frames      one pump       extended.go; verdicts,   hidden                        │
//	                                         txn.go, claim.go         messages                      │
//	                                              │ push                                            │
//	                                              ▼                                                 │
//	                                         queue.Queue: replies that are due                      │
//	                                              │ verdict                                         │
//	client ◀─ wire.Writer ◀─ reply.go ◀───────────┴──────────────────────────── wire.Reader ◀───────┘
//	                          one pump
//
// A session is these two pumps. The request pump owns the socket's writer
// towards PostgreSQL, the reply pump the one towards the client; what they
// share stands below session.mu. They never wait for each other's peer: only
// the request pump waits for replies, and only before it reads on.
package proxy
