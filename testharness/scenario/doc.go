// Package scenario plays stories of lock holders that go wrong, with workers
// that are processes of their own and are really paused, and tells from what
// happened whether a stale write was committed.
//
// A Story is a script: it hires Actors on a Stage, has them lock, read and
// write, pauses and wakes them. Everything that happens goes into a History,
// from which the verdict (stale commits, refusals), the timeline on a
// terminal and any later report are made; a story decides none of them. The
// same story is played against PostgreSQL itself and through the proxy.
//
// It knows no proxy: the Stage is told where to connect. Called by fenceproxy
// demo, whose hidden subcommand actor is the other end of an Actor.
package scenario
