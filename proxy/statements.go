package proxy

import (
	"slices"
	"strings"

	"github.com/fenceproxy/fenceproxy/sqlrewrite"
)

// A statement is what the proxy remembers of a text that a client has had
// parsed. It is small enough (128 bytes) for a map to hold it without an allocation
// of its own.
type statement struct {
	class sqlrewrite.Class
	flags sqlrewrite.Flags
	// known: class and flags are certain. The zero value is a statement that
	// the proxy never saw, which may do anything.
	known bool
	// wide: the late check alone doesn't tell what it has done, for it may end the
	// transaction, write at its very end, or be none of a transaction at all.
	wide bool
	// empty: the text has no statement in it.
	empty bool
	// named: a portal's, of a statement that has a name. Code that nobody sees may
	// have given the name to another (DEALLOCATE, then PREPARE), one that reads or
	// writes tables: PREPARE takes no other.
	named bool
	// executes is the name that an EXECUTE names, anyName if it isn't plain.
	executes string
	// command names it where untagged writes are observed.
	command string
	// drops is the one name that a statement drops which drops prepared ones;
	// "" is all of them.
	drops string
	// settings are the effects on the tag, for a statement that touches it, and
	// types those that its Parse gave to its parameters.
	settings []sqlrewrite.Setting
	types    []uint32
	// parent is the traceparent of its text.
	parent string
}

// mayWrite reports whether the statement may do more than change settings.
func (st statement) mayWrite() bool {
	return st.class == sqlrewrite.MayWrite && st.flags&configures == 0
}

// bindWrites reports whether a Bind of the statement may write: a parameter of a
// domain runs the checks of the domain, and planning runs what is declared
// immutable.
func (st statement) bindWrites() bool {
	const firstNormalObjectID = 16384 // src/include/access/transam.h: what users make has that or more
	foreign := func(oid uint32) bool { return oid >= firstNormalObjectID }
	// See txn.doubt. A check before a BEGIN or a change of the tag would be in the way.
	renamed := st.named && st.class != sqlrewrite.Begin && st.flags&sqlrewrite.TouchesTag == 0
	return !st.known || renamed || st.class == sqlrewrite.Read || st.mayWrite() || slices.ContainsFunc(st.types, foreign)
}

// unsure returns what is left of a statement that may not stand any more, or
// whose text the proxy can't look at: that it may commit in the middle.
func (st statement) unsure() statement {
	return statement{flags: st.flags & sqlrewrite.MayCommit, wide: st.wide}
}

// unread is a statement whose text the proxy can't look at.
func unread() statement { return statement{flags: sqlrewrite.MayCommit, wide: true} }

// forgotten is a statement that the proxy gave up to remember: it may change the
// tag, too.
func forgotten() statement {
	st := unread()
	st.flags |= sqlrewrite.TouchesTag
	st.settings = []sqlrewrite.Setting{{Kind: sqlrewrite.Unknown}}
	return st
}

// maxSetting is the longest value of a setting that is kept, in bytes, as long as
// a statement or a portal is. The backend is asked for a longer one.
const maxSetting = 16 << 10

// maxTypes is how many parameters of a statement that makes a tag are kept.
const maxTypes = 256

// short returns settings without the values that are too long to be kept.
func short(settings []sqlrewrite.Setting) []sqlrewrite.Setting {
	for i := range settings {
		if set := &settings[i]; len(set.Value) > maxSetting {
			set.Kind, set.Value = sqlrewrite.Unknown, ""
		}
		if call := settings[i].Call; call != nil && len(call.Key.Text)+len(call.TTL.Text)+len(call.Wait.Text) > maxSetting {
			settings[i].Kind, settings[i].Call = sqlrewrite.Unknown, nil
		}
	}
	return settings
}

// maxName is the length that PostgreSQL cuts names to, of prepared statements
// and portals too, in bytes (NAMEDATALEN in src/include/pg_config_manual.h, less
// one).
const maxName = 63

func cut(name []byte) string { return string(name[:min(len(name), maxName)]) }

// maxNames bounds the names that are remembered; a client can drop statements
// in ways that the proxy doesn't look at.
const maxNames = 4096

// Names remembers what a session's prepared statements are. What stands
// follows the replies. A request that changes it is under way until its reply
// has come, or a ReadyForQuery behind it, which says that it was not carried
// out.
type names struct {
	prepared map[string]statement
	changes  []change // under way, oldest first
	room     []change // empty: where the next begins when none is under way
	last     int      // number of the last change
	// forgotten: there were too many, and one of those that are no longer here
	// may commit in the middle, or make a tag.
	forgotten bool
	// dropped are those of wide statements that stand still if what was to drop
	// them was not carried out; wide says that any name may be one.
	dropped map[string]struct{}
	wide    bool
}

// A change is a Parse, or a Close, which leaves the zero statement.
type change struct {
	number  int
	segment int
	name    string
	to      statement
	closes  bool
}

// add takes a change that is about to be sent and returns its number.
func (n *names) add(c change) int {
	if len(n.changes) >= maxNames {
		n.forgetAll()
	}
	n.last++
	c.number = n.last
	if len(n.changes) == 0 {
		n.changes = append(n.room, c)
		n.room = n.changes[:0]
	} else {
		n.changes = append(n.changes, c)
	}
	return c.number
}

// stands returns what a Bind in the given segment finds under a name. It is
// certain if no change in a segment before it is under way still: within a
// segment a request is only carried out if those before it were.
func (n *names) stands(name []byte, segment int) (st statement, certain bool) {
	key := cut(name)
	for i := len(n.changes) - 1; i >= 0; i-- {
		if c := &n.changes[i]; c.name == key {
			return c.to, c.segment == segment
		}
	}
	if st, ok := n.prepared[key]; ok {
		return st, true
	}
	if n.forgotten {
		return forgotten(), true
	}
	return statement{wide: n.mayBeWide(key)}, true
}

// anyName stands for any name of a prepared statement: no name is that long.
const anyName = "any name, for PostgreSQL has none of more than sixty-three bytes"

// mayBeWide reports whether a wide statement may stand under a name.
func (n *names) mayBeWide(name string) bool {
	if _, was := n.dropped[name]; was || n.wide || n.forgotten || n.prepared[name].wide {
		return true
	}
	for _, c := range n.changes {
		if (name == anyName || c.name == name) && c.to.wide {
			return true
		}
	}
	if name != anyName {
		return false
	}
	for _, st := range n.prepared {
		if st.wide {
			return true
		}
	}
	return len(n.dropped) > 0
}

// leave takes note of a wide statement that is to be dropped.
func (n *names) leave(name string, st statement) {
	switch {
	case !st.wide:
	case len(n.dropped) >= maxNames:
		n.dropped, n.wide = nil, true
	default:
		if n.dropped == nil {
			n.dropped = map[string]struct{}{}
		}
		n.dropped[name] = struct{}{}
	}
}

// confirm takes the reply to a change. Those before it that had none were not
// carried out.
func (n *names) confirm(number int) {
	for len(n.changes) > 0 && n.changes[0].number <= number {
		c := n.take()
		if c.number == number {
			n.apply(c)
		}
	}
}

func (n *names) apply(c change) {
	if c.closes {
		delete(n.prepared, c.name)
		return
	}
	delete(n.dropped, c.name) // or the name would not have been free
	if n.prepared == nil {
		n.prepared = map[string]statement{}
	}
	if _, had := n.prepared[c.name]; !had && len(n.prepared) >= maxNames {
		n.forget()
	}
	n.prepared[c.name] = c.to
}

// forget makes room, whatever has a name: what it is becomes unknown.
func (n *names) forget() {
	for name, st := range n.prepared {
		if name != "" { // which is the next Parse's
			n.forgotten = n.forgotten || st.unsure().flags != 0 || len(st.settings) > 0
			n.wide = n.wide || st.wide
			delete(n.prepared, name)
		}
	}
}

// forgetAll gives up what is under way too: any name may be anything then.
func (n *names) forgetAll() {
	n.prepared, n.changes, n.forgotten = nil, nil, true
}

// decide takes a ReadyForQuery behind the change of the given number: what had
// no reply up to there was not carried out.
func (n *names) decide(number int) {
	for len(n.changes) > 0 && n.changes[0].number <= number {
		n.take()
	}
}

// take takes the oldest change off.
func (n *names) take() change {
	c := n.changes[0]
	n.changes[0] = change{}
	n.changes = n.changes[1:]
	return c
}

// drop takes a DEALLOCATE of a name, or with "" a DISCARD ALL or DEALLOCATE ALL,
// that is about to be sent: what is left then is unknown, and a PREPARE may give
// the name another meaning. The unnamed statement stays, and no PREPARE can make
// one.
func (n *names) drop(only string) {
	for name, st := range n.prepared {
		switch unsure := st.unsure(); {
		case name == "" || only != "" && name != only:
		case unsure.flags == 0:
			n.leave(name, st)
			delete(n.prepared, name)
		default:
			n.prepared[name] = unsure
		}
	}
	for i := range n.changes {
		if c := &n.changes[i]; c.name != "" && (only == "" || c.name == only) {
			c.to = c.to.unsure()
		}
	}
}

// dropsName returns the name that a DEALLOCATE names, if it is written plainly:
// else, as for all that drops every statement, "".
func dropsName(statement []byte) string {
	const ascii = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_ \t\r\n\f"
	if strings.Trim(string(statement), ascii) != "" {
		return ""
	}
	words := strings.Fields(string(statement))
	if len(words) < 2 || !strings.EqualFold(words[0], "deallocate") {
		return ""
	}
	words = words[1:]
	if len(words) == 2 && strings.EqualFold(words[0], "prepare") {
		words = words[1:]
	}
	name := strings.ToLower(words[0])
	if len(words) > 1 || name[0] <= '9' || name == "all" {
		return ""
	}
	return cut([]byte(name))
}

// executedName returns the name of the statement that an EXECUTE runs, anyName if
// it isn't written plainly, and "" for any other statement.
func executedName(statement []byte) string {
	words := strings.FieldsFunc(string(statement[:min(len(statement), 4*maxName)]), func(r rune) bool {
		return strings.ContainsRune(" \t\r\n\f", r)
	})
	if len(words) == 0 || len(words[0]) < len("execute") || !strings.EqualFold(words[0][:len("execute")], "execute") {
		return ""
	}
	if len(words) == 1 || len(words[0]) > len("execute") {
		return anyName
	}
	name, _, _ := strings.Cut(words[1], "(")
	const plain = "abcdefghijklmnopqrstuvwxyz0123456789_"
	if name = strings.ToLower(name); name == "" || strings.Trim(name, plain) != "" {
		return anyName
	}
	return cut([]byte(name))
}

const (
	// maxPortals bounds the portals that are remembered.
	maxPortals = 1024
	// fewPortals are those that a map keeps room for when they have ended.
	fewPortals = 8
)

// Portals remembers which statements a session's portals run. It follows the
// requests; where one may not have been carried out, the portal becomes
// unknown, which is always safe.
type portals struct {
	bound  map[string]bound
	many   bool // there were more than a few at once
	forgot bool // a portal that isn't there may be one that was given up, or never seen
	wide   bool // and it may be of a wide statement
	// taken is the segment of the last request that takes the place of a portal of
	// a wide statement, or closes it. If the segment fails that portal may be left.
	taken int
}

// A bound statement is what an Execute of a portal runs.
type bound struct {
	statement
	segment int // that bound it
}

func (p *portals) bind(name []byte, st statement, segment int) {
	if len(p.bound) >= maxPortals {
		p.forget()
	}
	if p.bound == nil {
		p.bound = map[string]bound{}
	}
	p.close(name, segment)
	p.bound[cut(name)] = bound{st, segment}
	p.many = p.many || len(p.bound) > fewPortals
}

// of returns what an Execute of the portal runs. certain tells that it was
// bound in the given segment: elsewhere it may not have been.
func (p *portals) of(name []byte, segment int) (st statement, certain bool) {
	b, ok := p.bound[cut(name)]
	if !ok && p.forgot {
		return forgotten(), false
	}
	if !ok {
		return statement{wide: p.wide}, false
	}
	return b.statement, b.segment == segment
}

// close drops a portal, by a request of the given segment.
func (p *portals) close(name []byte, segment int) {
	if p.bound[cut(name)].wide {
		p.taken = segment
	}
	delete(p.bound, cut(name))
}

// endBefore drops the portals of segments before the given one: with its
// transaction a portal goes. One that has only failed can go on, by a ROLLBACK TO
// a savepoint that is younger than the portal.
func (p *portals) endBefore(segment int) {
	p.wide = p.wide || p.taken > 0
	for name, b := range p.bound {
		if b.segment < segment {
			p.wide = p.wide || b.wide
			delete(p.bound, name)
		}
	}
}

// carriedOut takes that no request of the segments before the given one has failed.
func (p *portals) carriedOut(segment int) {
	if p.taken < segment {
		p.taken = 0
	}
}

// forget gives up what the portals run that there are.
func (p *portals) forget() {
	p.forgot = p.forgot || len(p.bound) > 0
	clear(p.bound)
}

// end takes the end of all portals.
func (p *portals) end() {
	room := p.bound
	if p.many {
		room = nil
	}
	clear(room)
	*p = portals{bound: room}
}
