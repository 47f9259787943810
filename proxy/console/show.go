package console

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/fenceproxy/fenceproxy/fencing"
	"github.com/fenceproxy/fenceproxy/proxy/wire"
)

func (c *Console) sessionsView() view {
	return view{
		name: "sessions", takes: takesLimit,
		about: "the sessions of this proxy, by number",
		columns: []column{
			{"session", wire.TypeInt8, "its number, as in the log"},
			{"pid", wire.TypeInt8, "its process in PostgreSQL; NULL: none, as for the console's"},
			{"user", wire.TypeText, ""},
			{"database", wire.TypeText, ""},
			{"client", wire.TypeText, "address"},
			{"application_name", wire.TypeText, ""},
			{"state", wire.TypeText, "`login`, `idle`, `idle in transaction`, `idle in transaction (aborted)`, `active`, `claiming`, `evicted`, `ending`"},
			{"tag", wire.TypeText, "what it has claimed, in the form of `fence.tokens`"},
			{"claimed", wire.TypeTimestamptz, "when"},
			{"since", wire.TypeTimestamptz, "when it logged in"},
			{"transaction_since", wire.TypeTimestamptz, "when its transaction began; NULL: none, or the session was never tagged"},
			{"bytes_in", wire.TypeInt8, "from the client"},
			{"bytes_out", wire.TypeInt8, "to the client"},
		},
		show: func(_ context.Context, q query) (a answer, err error) {
			for _, s := range c.Server.LiveSessions() {
				a.rows = append(a.rows, []any{int64(s.ID), number(s.PID), text(s.User), text(s.Database), text(s.Remote), text(s.Application),
					s.State.String(), tagText(s.Tag), moment(s.At), moment(s.Since), moment(s.Transaction), int64(s.In), int64(s.Out)})
			}
			return q.limited(a), nil
		},
	}
}

func (c *Console) rejectionsView() view {
	return view{
		name: "rejections", takes: takesPrefix | takesLimit,
		about: "the last statements that were refused, the newest first; as many as are kept in memory, since the proxy started",
		columns: []column{
			{"time", wire.TypeTimestamptz, ""},
			{"session", wire.TypeInt8, "its number, as in the log"},
			{"pid", wire.TypeInt8, "its process in PostgreSQL"},
			{"user", wire.TypeText, ""},
			{"database", wire.TypeText, ""},
			{"application_name", wire.TypeText, ""},
			{"client", wire.TypeText, "address"},
			{"key", wire.TypeText, "NULL: no tag, one of several locks, or a call of `fence.acquire` and its like, whose lock `reason` may name"},
			{"token", wire.TypeInt8, "that was presented"},
			{"superseded_by", wire.TypeInt8, "the higher token, if that was the reason"},
			{"code", wire.TypeText, "SQLSTATE"},
			{"reason", wire.TypeText, "the error's message"},
			{"detail", wire.TypeText, "the error's DETAIL"},
			{"what_to_do", wire.TypeText, "the error's HINT"},
		},
		show: func(_ context.Context, q query) (a answer, err error) {
			for _, e := range c.Journal.Refusals() {
				if !strings.HasPrefix(e.Key, q.prefix) {
					continue
				}
				a.rows = append(a.rows, []any{moment(e.At), number(e.Session), number(e.PID), text(e.User), text(e.Database), text(e.Application),
					text(e.Remote), text(e.Key), number(e.Token), number(e.Higher), text(e.Code), text(e.Message), text(e.Detail), text(e.Hint)})
			}
			return q.limited(a), nil
		},
	}
}

func (c *Console) statsView() view {
	return view{
		name:  "stats",
		about: "what `/metrics` has of fenceproxy, of histograms their count and sum",
		columns: []column{
			{"name", wire.TypeText, "of the [metric](metrics.md)"},
			{"labels", wire.TypeText, "NULL: it has none"},
			{"value", wire.TypeFloat8, ""},
		},
		show: func(context.Context, query) (a answer, err error) {
			stats, err := c.Program.Stats()
			for _, s := range stats {
				a.rows = append(a.rows, []any{text(s.Name), text(s.Labels), s.Value})
			}
			return a, err
		},
	}
}

func (c *Console) configView() view {
	return view{
		name:  "config",
		about: "every setting, as it counts now",
		columns: []column{
			{"key", wire.TypeText, "as the file has it"},
			{"value", wire.TypeText, "`(hidden)` for a secret"},
			{"default", wire.TypeText, ""},
			{"changeable", wire.TypeBool, "by RELOAD or SIGHUP; else it needs a restart"},
			{"source", wire.TypeText, "what set it: `default`, a flag, a variable, or file, line and key"},
		},
		show: func(context.Context, query) (a answer, err error) {
			for _, s := range c.Program.Settings() {
				a.rows = append(a.rows, []any{s.Name, text(s.Value), text(s.Default), s.Changeable, text(s.Source)})
			}
			return a, nil
		},
	}
}

func (c *Console) versionView() view {
	return view{
		name:    "version",
		about:   "which build this is",
		columns: []column{{"version", wire.TypeText, ""}},
		show: func(context.Context, query) (answer, error) {
			return answer{rows: [][]any{{c.Version}}}, nil
		},
	}
}

func (c *Console) helpView() view {
	return view{
		name:    "help",
		about:   "what the console knows",
		columns: []column{{"command", wire.TypeText, ""}, {"description", wire.TypeText, ""}},
		show: func(context.Context, query) (a answer, err error) {
			for _, v := range c.views() {
				a.rows = append(a.rows, []any{v.usage(), strings.ReplaceAll(v.about, "`", "")})
			}
			return answer{rows: append(a.rows,
				[]any{"KILL pid | KILL SESSION n", "end a session; for admin_roles"},
				[]any{"RELOAD", "read the settings anew, as SIGHUP does; for admin_roles"})}, nil
		},
	}
}

// moment is a time that may not be known: zero is NULL.
func moment(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return t
}

// tagText is a tag as fence.tokens has it; NULL if there is none.
func tagText(tag fencing.Tag) any {
	if len(tag) == 0 {
		return nil
	}
	var b bytes.Buffer
	b.WriteByte('{')
	for i, p := range tag {
		if i > 0 {
			b.WriteString(", ")
		}
		quoted := json.NewEncoder(&b)
		quoted.SetEscapeHTML(false)
		_ = quoted.Encode(p.Key) // a text always can be
		b.Truncate(b.Len() - 1)  // the end of its line
		b.WriteString(": " + p.Token.String())
	}
	b.WriteByte('}')
	return text(b.String())
}
