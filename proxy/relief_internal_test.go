package proxy

import (
	"testing"
	"time"
)

// Memory is given back for many that have come to rest since, and not too often.
func TestRelief_Due(t *testing.T) {
	var r relief
	start := time.Unix(1e9, 0)
	for _, c := range []struct {
		rested int
		after  time.Duration
		want   bool
	}{
		{reliefAfter - 1, 0, false},
		{reliefAfter - 1, 0, false},
		{reliefAfter, time.Second, false}, // more are coming
		{reliefAfter, time.Second, true},
		{reliefAfter, time.Hour, false}, // the same ones
		{10, time.Hour, false},          // most have woken up,
		{10 + reliefAfter, time.Hour + time.Second, false},
		{10 + reliefAfter, time.Hour + 2*time.Second, true}, // and rest again
		{10 + 2*reliefAfter, time.Hour + reliefEvery, false},
		{10 + 2*reliefAfter, time.Hour + reliefEvery, false}, // too soon
		{10 + 2*reliefAfter, time.Hour + 2*time.Minute, true},
	} {
		if got := r.due(c.rested, start.Add(c.after)); got != c.want {
			t.Errorf("%d at rest after %v: got %v, want %v", c.rested, c.after, got, c.want)
		}
	}
}
