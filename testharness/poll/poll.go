// Package poll is how tests wait for what happens elsewhere: in another
// process, in PostgreSQL, in etcd.
package poll

import (
	"testing"
	"time"
)

// Deadline is longer than any healthy run comes near.
const Deadline = 30 * time.Second

const interval = 5 * time.Millisecond

// Until waits until a condition holds, asking again and again. It fails the
// test at the deadline, and then says what never came.
func Until(t testing.TB, what string, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for deadline := time.Now().Add(Deadline); !holds(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatalf("never came: %s", what)
		}
	}
}
