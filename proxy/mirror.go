package proxy

import (
	"github.com/fenceproxy/fenceproxy/fencing"
	"github.com/fenceproxy/fenceproxy/proxy/wire"
	"github.com/fenceproxy/fenceproxy/sqlrewrite"
)

// values are the settings that make a tag, as PostgreSQL has them; "" is
// unset.
type values struct {
	key, token, tokens string
	// outdated: the token was set for another key than the one that stands
	// there now, so the tag is incomplete until a token follows.
	outdated bool
}

// A mirror follows what a session's fence settings are, so that the proxy
// knows what to claim. The settings themselves live in the backend, and the
// check there reads them: a mirror that is wrong can cause a needless refusal
// and never lets a write through. Where it can't be certain it says so, and
// the session asks the backend.
type mirror struct {
	reset   values // what RESET gives: the startup packet's
	base    values // before the open transaction
	session values // what a COMMIT will leave
	now     values // what current_setting says
	// open: the transaction in which a setting changed may still be undone.
	open bool
	// unsure: now is not certain; only a readback helps.
	unsure bool
	// baseless: the readback came inside a transaction, so what a rollback
	// would give is not known.
	baseless bool
	failed   bool     // the open transaction has failed
	read     *reading // the last tag that was read; nil for none
}

// A reading is a tag that was read off values. Mirrors that are copies share it,
// and nobody changes it.
type reading struct {
	of  values
	tag fencing.Tag
}

// load takes what the backend said. inBlock tells that a transaction was open.
func (m *mirror) load(v values, inBlock bool) {
	*m = mirror{reset: m.reset, base: v, session: v, now: v, open: inBlock, baseless: inBlock, read: m.read}
}

// apply takes the effects of a statement that is about to be sent. pending
// tells that replies to segments before it are due: then its own failure would
// leave what those have changed.
func (m *mirror) apply(settings []sqlrewrite.Setting, pending bool) {
	m.unsure = m.unsure || pending
	if !m.open {
		m.base, m.open = m.session, true
	}
	for _, s := range settings {
		switch s.Kind {
		case sqlrewrite.Set:
			m.set(s.Name, s.Value, s.Local)
		case sqlrewrite.Reset:
			m.set(s.Name, m.reset.get(s.Name), s.Local)
		case sqlrewrite.ResetAll:
			// It passes over a setting that SET LOCAL … TO DEFAULT has reset.
			m.unsure = m.unsure || m.session != m.now
			m.session, m.now = m.reset, m.reset
		default:
			m.unsure = true
		}
	}
}

func (m *mirror) set(name, value string, local bool) {
	m.now.set(name, value)
	if !local {
		m.session.set(name, value)
	}
}

// ready takes a ReadyForQuery: its status, whether anything failed before it,
// how transactions ended in its segment, and whether a setting changed there.
func (m *mirror) ready(status byte, failed bool, how ends, changed bool) {
	if !m.open {
		return
	}
	if how&endRollbackTo != 0 || how != 0 && (changed || failed) {
		m.unsure = true // before the end of the transaction or after it?
	}
	if how == 0 && status != wire.StatusIdle {
		m.failed = m.failed || status == wire.StatusFailed
		return
	}
	switch {
	case how&endCommit != 0 && how&endRollback != 0, m.baseless:
		m.unsure = true
	case how&endRollback != 0, failed, m.failed:
		m.now, m.session = m.base, m.base
	default:
		m.now = m.session
	}
	m.open, m.failed, m.baseless = status != wire.StatusIdle, false, false
	m.base = m.session
}

// lost reports whether key is certain to be no part of the tag, and not to
// become one again by a rollback.
func (m *mirror) lost(key string) bool {
	if m.unsure || m.open || m.now.outdated {
		return false
	}
	tag, _, err := m.tag()
	return err == nil && tag.Token(key) == 0
}

// tag returns the tag that the settings make. An incomplete one is told by
// incomplete, and is no error here: it is half-way to a tag.
func (m *mirror) tag() (tag fencing.Tag, incomplete bool, err error) {
	v := m.now
	if v.incomplete() {
		return nil, true, nil
	}
	if m.read != nil && m.read.of == v {
		return m.read.tag, false, nil
	}
	if tag, err = fencing.ParseTag(v.key, v.token, v.tokens); err != nil {
		return nil, false, err
	}
	m.read = &reading{v, tag}
	return tag, false, nil
}

// incomplete reports whether values are half-way to a tag.
func (v *values) incomplete() bool { return v.outdated || (v.key == "") != (v.token == "") }

func (v *values) get(name string) string {
	switch name {
	case fencing.SettingKey:
		return v.key
	case fencing.SettingToken:
		return v.token
	case fencing.SettingTokens:
		return v.tokens
	}
	return ""
}

func (v *values) set(name, value string) {
	switch name {
	case fencing.SettingKey:
		// A token that went with the key before says nothing of the new one.
		v.outdated = v.outdated || v.key != "" && v.token != ""
		v.key = value
	case fencing.SettingToken:
		v.token, v.outdated = value, false
	case fencing.SettingTokens:
		v.tokens = value
	}
}
