// Package scenario plays stories of lock holders that go wrong, with workers
// that are processes of their own and are really paused, and tells from what
// happened whether a stale write was committed.
//
// A Story is a script: it has Actors on a Stage lock, read and write, pauses,
// kills and wakes them and their proxies. Everything that happens goes into a
// History, from which all else is made: the verdict (stale and forged
// commits, refusals, what is wrong in the tables), the timeline on a
// terminal, and the diagrams of package report; a story decides none of them.
// A story is played once for each Arm: with what people do without fencing,
// to see the damage, and through the proxy.
//
// It knows no proxy: the Stage is told where to connect, and who breaks what
// on its behalf (Gate, Backstage, Servers). Called by fenceproxy demo, whose
// hidden subcommand actor is the other end of an Actor, and by package cases.
package scenario
