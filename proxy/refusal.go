package proxy

import (
	"errors"
	"slices"
	"strings"

	"github.com/fenceproxy/fenceproxy/fencing"
	"github.com/fenceproxy/fenceproxy/sqlrewrite"
)

var allSettings = []string{fencing.SettingKey, fencing.SettingToken, fencing.SettingTokens}

// A refusal stays with a session whose tag was refused, until a claim
// succeeds or the tag is reset: it never falls back to untagged.
type refusal struct {
	err *fencing.Error
	// retry: the backend has the tag already, so each statement tries the
	// claim again. A SET that was refused never reached the backend, and the
	// client must send it again.
	retry bool
	// names are the settings that the refused statement would have set;
	// resetting one of them takes the refused tag back.
	names []string
}

// takenBack reports whether the settings reset what was refused.
func (r *refusal) takenBack(settings []sqlrewrite.Setting) bool {
	for _, s := range settings {
		if s.Kind == sqlrewrite.ResetAll || unsets(s) && slices.Contains(r.names, s.Name) {
			return true
		}
	}
	return false
}

// unsets reports whether a setting is taken away: an empty one is an unset one.
func unsets(s sqlrewrite.Setting) bool {
	return s.Kind == sqlrewrite.Reset || s.Kind == sqlrewrite.Set && s.Value == ""
}

// again is what statements hear after the one that was refused.
func (r *refusal) again() *fencing.Error {
	if r.retry {
		return r.err
	}
	e := *r.err
	e.Hint = strings.TrimSpace(e.Hint + " The session has no other tag meanwhile: set the tag again to try again, or RESET it.")
	return &e
}

// refuse remembers that settings were refused, so that the session doesn't go
// on without a tag. Settings for one transaction are forgotten: the refusal
// fails that transaction, and the next user of a pooled connection is not to
// suffer for it.
func (s *session) refuse(why *fencing.Error, settings []sqlrewrite.Setting) {
	if errors.Is(why, errCanceled) {
		why = fencing.Refuse(fencing.CodeUnverified, "the claim of the session's tag was canceled").With("", "")
	}
	r := &refusal{err: why}
	for _, set := range settings {
		if !set.Local {
			r.names = append(r.names, set.Name)
		}
	}
	if len(r.names) > 0 {
		s.refused = r
	}
}

func onlyResets(settings []sqlrewrite.Setting) bool {
	for _, s := range settings {
		if s.Kind != sqlrewrite.Reset && s.Kind != sqlrewrite.ResetAll {
			return false
		}
	}
	return true
}
