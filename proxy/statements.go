package proxy

import (
	"github.com/fenceproxy/fenceproxy/sqlrewrite"
)

// A statement is what the proxy remembers of a text that a client has had
// parsed.
type statement struct {
	class sqlrewrite.Class
	flags sqlrewrite.Flags
	// known: class and flags are certain. The zero value is a statement that
	// the proxy never saw, which may do anything.
	known bool
	// empty: the text has no statement in it.
	empty bool
	// settings are the effects on the tag, for a statement that touches it.
	settings []sqlrewrite.Setting
}

// mayWrite reports whether the statement may do more than change settings.
func (st statement) mayWrite() bool {
	return st.class == sqlrewrite.MayWrite && st.flags&configures == 0
}

// statements remembers what a session's prepared statements and portals are.
// It follows the requests, not the replies; where a request may not have been
// carried out, the name becomes unknown, which is always safe.
type statements struct {
	prepared map[string]statement
	portals  map[string]statement
	// touched are the names that changed since the last segment that is known
	// to have been carried out as a whole, with the segment that changed them.
	touched map[string]touch
	segment int // counts the segments that were sent
}

// A touch is a change of a name that may yet turn out not to have happened.
type touch struct {
	segment   int  // that changed it
	mayCommit bool // what the name stood for before may commit in the middle
}

// maxName is the length that PostgreSQL cuts the names of prepared statements
// and portals to, in bytes (NAMEDATALEN in src/include/pg_config_manual.h,
// less one).
const maxName = 63

func cut(name []byte) string { return string(name[:min(len(name), maxName)]) }

// unsure returns what is left of a statement that may not have been prepared,
// or whose text the proxy can't look at: that it may commit in the middle.
func (st statement) unsure() statement { return statement{flags: st.flags & sqlrewrite.MayCommit} }

// unread is a statement whose text the proxy can't look at.
func unread() statement { return statement{flags: sqlrewrite.MayCommit} }

// maxTouched bounds the names that are kept until their segment is known to
// have been carried out, which in a session without a tag is never asked.
const maxTouched = 1024

// parse records a Parse. A name that stands already is refused by the server
// and keeps its old meaning there, so it becomes unknown here.
func (s *statements) parse(name []byte, st statement) {
	if s.prepared == nil {
		s.prepared = map[string]statement{}
	}
	n := cut(name)
	if had, taken := s.prepared[n]; taken && n != "" {
		st = statement{flags: (st.flags | had.flags) & sqlrewrite.MayCommit}
	}
	s.touch(n)
	s.prepared[n] = st
}

// bind records that a portal runs a statement.
func (s *statements) bind(portal, name []byte) statement {
	n := cut(name)
	st := s.prepared[n]
	if t, ok := s.touched[n]; ok && t.segment != s.segment {
		st = st.unsure() // its Parse may yet turn out not to have been carried out
		if t.mayCommit {
			st = unread()
		}
	}
	s.bindTo(portal, st)
	return st
}

func (s *statements) bindTo(portal []byte, st statement) {
	if s.portals == nil {
		s.portals = map[string]statement{}
	}
	s.portals[cut(portal)] = st
}

// nextSegment takes the end of a segment.
func (s *statements) nextSegment() { s.segment++ }

// portal returns what an Execute of the portal runs.
func (s *statements) portal(name []byte) statement { return s.portals[cut(name)] }

// close records a Close of a statement.
func (s *statements) close(name []byte) {
	n := cut(name)
	if _, ok := s.prepared[n]; ok {
		s.touch(n)
		delete(s.prepared, n)
	}
}

// closePortal records a Close of a portal.
func (s *statements) closePortal(name []byte) { delete(s.portals, cut(name)) }

// dropAll records DISCARD ALL and DEALLOCATE: what is left, if it failed, is
// unknown.
func (s *statements) dropAll() {
	clear(s.prepared)
	clear(s.portals)
	clear(s.touched)
}

// endTransaction drops the portals, as the server does.
func (s *statements) endTransaction() { clear(s.portals) }

// carriedOut takes the end of all segments sent so far.
func (s *statements) carriedOut(failed bool) {
	if failed {
		for name, t := range s.touched {
			if st := s.prepared[name]; t.mayCommit || st.flags&sqlrewrite.MayCommit != 0 {
				s.prepared[name] = unread()
			} else {
				delete(s.prepared, name)
			}
		}
		clear(s.portals) // a Bind may not have been carried out either
	}
	clear(s.touched)
}

// touch notes that a name is about to change.
func (s *statements) touch(name string) {
	if len(s.touched) == maxTouched {
		s.carriedOut(true) // to forget is always safe
	}
	if s.touched == nil {
		s.touched = map[string]touch{}
	}
	had := s.touched[name].mayCommit || s.prepared[name].flags&sqlrewrite.MayCommit != 0
	s.touched[name] = touch{segment: s.segment, mayCommit: had}
}
