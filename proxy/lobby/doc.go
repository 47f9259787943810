// Package lobby lets connections wait for their peers without a goroutine. A Lobby
// watches all that rest in it, in one goroutine, and goes on with each of them
// itself when there is something to read: a small message costs no switch to
// another goroutine, and one that waits costs no stack.
//
// Whoever goes on with a connection has the watch over the lobby meanwhile, its
// Shift, and hands it on by Leave before it waits for anything. One that forgets
// or works for long loses it after a while.
//
// A connection can be taken out of the Go runtime's hands (Own), whose poller would
// otherwise wake a thread for each arrival, which finds nothing to do. It then waits
// by its lobby for all that it waits for.
package lobby

import "time"

// DefaultPatience is how long somebody may keep the watch before it is taken away.
const DefaultPatience = 5 * time.Millisecond
