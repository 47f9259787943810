package proxy

import (
	"github.com/fenceproxy/fenceproxy/sqlrewrite"
)

// A meaning is what statements together mean for the session's tag.
type meaning struct {
	settings []sqlrewrite.Setting // what they do to it, in order
	mayWrite bool                 // one may write something else than settings
	harmless bool                 // all may run in a session whose tag was refused
	lends    sqlrewrite.Verb      // what was done for the one statement, see lend
}

// meaningOf reads what statements mean, and marks those that only configure.
func (s *session) meaningOf(text []byte, stmts []sqlrewrite.Statement, o sqlrewrite.Options) meaning {
	m := meaning{harmless: true}
	for i := range stmts {
		st := s.weigh(s.unseen(s.describe(text, stmts[i], o)))
		stmts[i].Flags = st.flags
		m.settings = append(m.settings, st.settings...)
		m.mayWrite = m.mayWrite || st.mayWrite()
		m.harmless = m.harmless && harmless(st.class)
	}
	return m
}

// describe returns what is to be remembered of a statement.
func (s *session) describe(text []byte, one sqlrewrite.Statement, o sqlrewrite.Options) statement {
	st := statement{known: true, class: one.Class, flags: one.Flags}
	if one.Flags&sqlrewrite.DropsPrepared != 0 {
		st.drops = dropsName(text[one.Start:one.End])
	}
	if s.policy.UntaggedWrites != AllowUntagged && isDoubtful(text, one) {
		st.flags |= doubtful
		st.executes = executedName(text[one.Start:one.End])
	}
	st.wide = one.Class != sqlrewrite.Read && st.flags&doubtful == 0
	if s.observes() {
		st.command = commandOf(text, one)
	}
	if one.Flags&sqlrewrite.TouchesTag == 0 {
		return st
	}
	st.settings = sqlrewrite.Settings(text, one, o)
	switch {
	case one.Class == sqlrewrite.MayWrite && onlySettings(st.settings):
		st.flags |= configures
	case one.Class == sqlrewrite.Prepare, one.Class == sqlrewrite.MayWrite && len(st.settings) == 0:
		s.opaque = true
	}
	return st
}

// unseen makes of a statement one that may change the tag, in a session that
// has prepared or defined something that does.
func (s *session) unseen(st statement) statement {
	if s.opaque && (st.class == sqlrewrite.MayWrite && st.flags&configures == 0 || st.named && !bounds(st.class)) {
		st.flags |= sqlrewrite.TouchesTag
		st.settings = append(st.settings[:len(st.settings):len(st.settings)], sqlrewrite.Setting{Kind: sqlrewrite.Unknown})
	}
	return st
}

// onlySettings reports whether every effect on the tag is of a setting by
// name, in the text or bound.
func onlySettings(settings []sqlrewrite.Setting) bool {
	for _, s := range settings {
		if s.Name == "" && s.Bound.Name.Number == 0 {
			return false
		}
	}
	return len(settings) > 0
}

// bounds reports whether statements of the class begin and end transactions: a
// check comes before them, or it is confirmed that they did.
func bounds(c sqlrewrite.Class) bool {
	return c == sqlrewrite.Begin || c == sqlrewrite.Commit || c == sqlrewrite.Rollback
}

// harmless reports whether a session whose tag was refused may run a
// statement of the class: settings, and what ends a transaction.
func harmless(c sqlrewrite.Class) bool {
	switch c {
	case sqlrewrite.SetOrShow, sqlrewrite.Discard, sqlrewrite.Commit, sqlrewrite.Rollback,
		sqlrewrite.RollbackTo, sqlrewrite.Release:
		return true
	}
	return false
}
