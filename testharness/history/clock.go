package history

import (
	"time"

	"golang.org/x/sys/unix"
)

// A Moment is a time on the machine's monotonic clock, in nanoseconds. Moments
// of all processes of one machine can be compared.
type Moment int64

// Never is later than every Moment: when an operation without an answer ended.
const Never Moment = 1<<63 - 1

// Now is the present. time.Now can't be used here: its monotonic reading counts
// from the start of a process, and its wall clock may be set back.
func Now() Moment {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic("read CLOCK_MONOTONIC: " + err.Error()) // the kernel has it, or nothing here means anything
	}
	return Moment(ts.Nano())
}

// Add returns the Moment that is d later.
func (m Moment) Add(d time.Duration) Moment {
	if m == Never {
		return m
	}
	return m + Moment(d)
}

// Since returns how long after an earlier Moment this one is.
func (m Moment) Since(earlier Moment) time.Duration { return time.Duration(m - earlier) }
