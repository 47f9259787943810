package main

import (
	"io"
	"log/slog"
)

// What lines of claims begin with.
const (
	logClaim        = "claim"
	logClaimRefused = "claim refused"
)

// newLogHandler is how serve logs. Durations are words in JSON too, which has
// nanoseconds otherwise.
func newLogHandler(out io.Writer, format string, level slog.Leveler) slog.Handler {
	options := &slog.HandlerOptions{Level: level, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Value.Kind() == slog.KindDuration {
			a.Value = slog.StringValue(a.Value.Duration().String())
		}
		return a
	}}
	if format == "json" {
		return slog.NewJSONHandler(out, options)
	}
	return slog.NewTextHandler(out, options)
}
