package main

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/fenceproxy/fenceproxy/proxy"
)

const (
	// logWindow is the time for which lines of a kind are counted, and logBurst
	// how many of them are shown in it.
	logWindow = 10 * time.Second
	logBurst  = 10
	// maxLogKinds bounds the kinds of a window: clients choose some of the names
	// that tell them apart. Beyond it only the message does.
	maxLogKinds = 500
)

// A throttle keeps lines that repeat themselves from flooding the log: of each
// kind the first logBurst of a window are shown, and at its end how many weren't.
type throttle struct {
	next  slog.Handler
	kind  logKind // what With has said of it
	shown *repeats
}

// A logKind is what lines have in common that are told together. There is no key
// in it and no session, which would be without number.
type logKind struct {
	level                             slog.Level
	message                           string
	code, user, database, application string
	cause                             string // of a line without a code, which would tell as much
}

func newThrottle(next slog.Handler) *throttle {
	return &throttle{next: next, shown: &repeats{next: next, window: logWindow, kinds: map[logKind]*repeated{}}}
}

// unlimited reports whether each line with a message is shown: there is one of it
// for each session or claim, or it has a limit of its own.
func unlimited(message string) bool {
	switch message {
	case proxy.LogSessionStarted, proxy.LogSessionEnded, proxy.LogSessionEvicted, proxy.LogUntaggedWrite, logClaim:
		return true
	}
	return false
}

func (t *throttle) Enabled(ctx context.Context, level slog.Level) bool {
	return t.next.Enabled(ctx, level)
}

func (t *throttle) WithAttrs(attrs []slog.Attr) slog.Handler {
	with := &throttle{next: t.next.WithAttrs(attrs), kind: t.kind, shown: t.shown}
	for _, a := range attrs {
		with.kind.take(a)
	}
	return with
}

func (t *throttle) WithGroup(name string) slog.Handler {
	return &throttle{next: t.next.WithGroup(name), kind: t.kind, shown: t.shown}
}

func (t *throttle) Handle(ctx context.Context, r slog.Record) error {
	if r.Level < slog.LevelInfo || unlimited(r.Message) {
		return t.next.Handle(ctx, r)
	}
	kind := t.kind
	kind.level, kind.message = r.Level, r.Message
	r.Attrs(func(a slog.Attr) bool {
		kind.take(a)
		return true
	})
	if kind.code != "" {
		kind.cause = ""
	}
	if !t.shown.show(kind) {
		return nil
	}
	return t.next.Handle(ctx, r)
}

// take notes an attribute that tells kinds apart.
func (k *logKind) take(a slog.Attr) {
	switch a.Key {
	case "code":
		k.code = a.Value.String()
	case "user":
		k.user = a.Value.String()
	case "database":
		k.database = a.Value.String()
	case "error":
		k.cause = a.Value.String()
	case "application_name":
		k.application = a.Value.String()
	}
}

// repeats counts the lines of the present window, for all handlers made of one.
type repeats struct {
	next   slog.Handler
	window time.Duration

	mu    sync.Mutex
	kinds map[logKind]*repeated
	end   *time.Timer // of the window; nil: none is open
}

type repeated struct{ shown, held int }

// show reports whether a line is to be shown, and counts it.
func (r *repeats) show(kind logKind) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.end == nil {
		r.end = time.AfterFunc(r.window, r.flush)
	}
	n := r.kinds[kind]
	if n == nil && len(r.kinds) >= maxLogKinds {
		kind = logKind{level: kind.level, message: kind.message}
		n = r.kinds[kind]
	}
	if n == nil {
		n = &repeated{}
		r.kinds[kind] = n
	}
	if n.shown == logBurst {
		n.held++
		return false
	}
	n.shown++
	return true
}

// flush ends the window and tells what wasn't shown in it. It is called again
// when the last line has been logged.
func (r *repeats) flush() {
	r.mu.Lock()
	kinds := r.kinds
	r.kinds = map[logKind]*repeated{}
	if r.end != nil {
		r.end.Stop()
		r.end = nil
	}
	r.mu.Unlock()
	for kind, n := range kinds {
		if n.held > 0 {
			_ = r.next.Handle(context.Background(), kind.record(n.held, r.window)) // as slog does with its errors
		}
	}
}

// record is the line that stands for those that weren't shown.
func (k logKind) record(held int, window time.Duration) slog.Record {
	r := slog.NewRecord(time.Now(), k.level, k.message, 0)
	for _, a := range []slog.Attr{
		slog.String("code", k.code), slog.String("user", k.user), slog.String("database", k.database),
		slog.String("application_name", k.application), slog.String("error", k.cause),
	} {
		if a.Value.String() != "" {
			r.AddAttrs(a)
		}
	}
	r.AddAttrs(slog.Int("suppressed", held), slog.Duration("within", window))
	return r
}
