package main

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/testharness/poll"
)

func newThrottled(window time.Duration) (*slog.Logger, *throttle, *output) {
	out := &output{}
	limited := newThrottle(newLogHandler(out, "text", slog.LevelDebug))
	limited.shown.window = window
	return slog.New(limited), limited, out
}

func TestThrottle_Handle(t *testing.T) {
	logger, limited, out := newThrottled(time.Hour)
	for i := range 100 {
		logger.With("session", i).Warn("statement refused", "code", "LF001", "key", fmt.Sprint("order:", i))
		logger.Warn("statement refused", "code", "LF004")
		logger.Info("session started", "session", i)
		logger.Debug("detail")
	}
	limited.shown.flush()
	for want, times := range map[string]int{
		"code=LF001":      logBurst + 1,
		"code=LF004":      logBurst + 1,
		"session started": 100,
		"detail":          100,
		fmt.Sprintf("code=LF001 suppressed=%d within=1h0m0s", 100-logBurst): 1,
		"key=order:0": 1,
	} {
		if got := strings.Count(out.String(), want); got != times {
			t.Errorf("%q stands %d times, want %d:\n%s", want, got, times, out.String())
		}
	}
	logger.Warn("statement refused", "code", "LF004")
	if got := strings.Count(out.String(), "code=LF004"); got != logBurst+2 {
		t.Errorf("a new window: got %d lines, want the new one to be shown", got)
	}
}

// An error isn't hidden by another one that comes again and again.
func TestThrottle_TellsCausesApart(t *testing.T) {
	logger, _, out := newThrottled(time.Hour)
	for range 2 * logBurst {
		logger.Info("session not started", "user", "app", "error", "client went away")
	}
	logger.Info("session not started", "user", "app", "error", "password is past its VALID UNTIL")
	if got := out.String(); strings.Count(got, "client went away") != logBurst || !strings.Contains(got, "VALID UNTIL") {
		t.Errorf("got %s\nwant %d lines of the first error and the other one", got, logBurst)
	}
}

// What was held back is told at the window's end, without another line to come.
func TestThrottle_TellsByItself(t *testing.T) {
	logger, _, out := newThrottled(50 * time.Millisecond)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 100 {
				logger.Error("again")
			}
		})
	}
	all.Wait()
	poll.Until(t, "the number of lines that weren't shown", func() bool { return strings.Contains(out.String(), "suppressed=") })
}

// A client that takes names without number costs neither memory nor lines.
func TestThrottle_BoundsKinds(t *testing.T) {
	logger, limited, out := newThrottled(time.Hour)
	const more = 1000
	for i := range maxLogKinds + more {
		logger.Info("statement refused", "application_name", fmt.Sprint("a", i))
	}
	if got := len(limited.shown.kinds); got > maxLogKinds+1 {
		t.Errorf("got %d kinds, want at most %d", got, maxLogKinds+1)
	}
	if got, want := bytes.Count([]byte(out.String()), []byte("\n")), maxLogKinds+logBurst; got != want {
		t.Errorf("got %d lines, want %d", got, want)
	}
}
