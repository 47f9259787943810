package proxy

import (
	"strconv"
	"strings"

	"github.com/fenceproxy/fenceproxy/fencing"
	"github.com/fenceproxy/fenceproxy/proxy/queue"
	"github.com/fenceproxy/fenceproxy/proxy/wire"
)

// The statements that the proxy sends for itself. Early is run before a
// statement that may write; late only does something in a transaction that
// has written.
const (
	earlySQL = "SELECT fence.check()"
	lateSQL  = "SELECT fence.check() WHERE " + wroteSQL
	wroteSQL = "pg_catalog.pg_current_xact_id_if_assigned() IS NOT NULL"

	// The same where writes need a tag, and where there may be no schema fence
	// to ask, of which a read is to know nothing. Nothing was checked before what
	// may read or write there, so that what is going to write counts too: a cursor
	// WITH HOLD that code has opened runs its query when the transaction commits.
	requiredSQL     = "SELECT fence.check(true)"
	requiredLateSQL = requiredSQL + " WHERE " + willWriteSQL
	willWriteSQL    = "(" + wroteSQL + " OR EXISTS (SELECT FROM pg_catalog.pg_cursor() AS c " +
		"WHERE c.is_holdable AND c.creation_time OPERATOR(pg_catalog.>=) pg_catalog.transaction_timestamp()))"
	uninstalledSQL     = "DO LANGUAGE plpgsql $fenceproxy$BEGIN PERFORM fence.check(true); END$fenceproxy$"
	uninstalledLateSQL = "DO LANGUAGE plpgsql $fenceproxy$BEGIN IF " + willWriteSQL + " THEN PERFORM fence.check(true); END IF; END$fenceproxy$"

	// The same where the session may never get a tag: without one nothing is
	// asked of schema fence, which the database need not have.
	doubtfulSQL     = "DO LANGUAGE plpgsql $fenceproxy$BEGIN IF " + anySQL + " THEN PERFORM fence.check(); END IF; END$fenceproxy$"
	doubtfulLateSQL = "DO LANGUAGE plpgsql $fenceproxy$BEGIN IF " + anySQL + " AND " + wroteSQL + " THEN PERFORM fence.check(); END IF; END$fenceproxy$"
	anySQL          = "pg_catalog.concat(" + settingsSQL + ") OPERATOR(pg_catalog.<>) ''"
	settingsSQL     = "pg_catalog.current_setting('" + fencing.SettingKey + "', true), " +
		"pg_catalog.current_setting('" + fencing.SettingToken + "', true), " +
		"pg_catalog.current_setting('" + fencing.SettingTokens + "', true)"

	beginSQL    = "BEGIN"
	commitSQL   = "COMMIT"
	rollbackSQL = "ROLLBACK"
	// Not reserved as savepoints: the name is there for a moment only.
	savepointSQL = "SAVEPOINT fenceproxy"
	releaseSQL   = "RELEASE SAVEPOINT fenceproxy"
	readbackSQL  = "SELECT " + settingsSQL
	openingSQL   = readbackSQL + ", pg_catalog.to_regnamespace('fence') IS NOT NULL"
)

// Names reserved for the proxy's own prepared statements and portals. The
// unnamed ones belong to the client.
const (
	reserved  = "fenceproxy."
	earlyName = reserved + "early"
	lateName  = reserved + "late"
	raiseName = reserved + "raise"

	beginName    = reserved + "begin"
	commitName   = reserved + "commit"
	readbackName = reserved + "readback"
	rollbackName = reserved + "rollback"

	savepointName = reserved + "savepoint"
	resolveName   = reserved + "resolve" // never made
)

// checks are the early and the late check as SQL.
type checks struct{ early, late string }

// checks returns those that fit the session.
func (s *session) checks() checks {
	switch {
	case s.stale != nil:
		return checks{early: raiseSQL(s.stale, ""), late: raiseSQL(s.stale, wroteSQL)}
	case s.requires() && s.installed:
		return checks{early: requiredSQL, late: requiredLateSQL}
	case s.requires():
		return checks{early: uninstalledSQL, late: uninstalledLateSQL}
	case s.installed:
		return checks{early: earlySQL, late: lateSQL}
	}
	return checks{early: doubtfulSQL, late: doubtfulLateSQL}
}

// text returns a check as SQL.
func (c checks) text(what check) string {
	if what == checkLate {
		return c.late
	}
	return c.early
}

// own keeps track of whether the proxy's prepared statements exist in the
// backend. Every statement that may drop them begins a new generation.
type own struct {
	generation int // of the last drop; written by the request side
	confirmed  int // generation whose ParseComplete has arrived
}

// ready reports whether the statements are known to exist.
func (o *own) ready() bool { return o.confirmed == o.generation && o.generation > 0 }

// A batch gathers messages of the proxy's own with the replies that they
// cause, so that both are handed over together.
type batch struct {
	bytes   []byte
	entries []queue.Entry
}

// What a batch holds on to between two uses: a check's, and little more.
const (
	fewEntries = 4
	fewBytes   = 256
)

// reset empties a batch that is used again, and gives up what it held of a large one.
func (b *batch) reset() {
	if cap(b.entries) > fewEntries || cap(b.bytes) > fewBytes {
		*b = batch{}
	}
	b.bytes, b.entries = b.bytes[:0], b.entries[:0]
}

func (b *batch) add(kind queue.Kind, p queue.Purpose, bytes []byte) {
	b.bytes = bytes
	b.entries = append(b.entries, queue.Entry{Kind: kind, Purpose: p})
}

// prepare makes the proxy's statements afresh. Closing first makes it safe
// whether or not they exist: closing what doesn't exist is no error.
func (b *batch) prepare(c checks, generation int) {
	for _, st := range [...][2]string{{earlyName, c.early}, {lateName, c.late}} {
		b.add(queue.Close, queue.Prepare, wire.AppendClose(b.bytes, 'S', st[0]))
		b.add(queue.Parse, queue.Prepare, wire.AppendParse(b.bytes, st[0], st[1]))
	}
	b.entries[len(b.entries)-1].Confirms = generation
}

// check runs one of the proxy's prepared statements.
func (b *batch) check(p queue.Purpose) {
	name := earlyName
	if p != queue.Early {
		name = lateName
	}
	b.run(name, p)
}

func (b *batch) run(name string, p queue.Purpose) {
	b.add(queue.Bind, p, wire.AppendBind(b.bytes, name, name))
	b.add(queue.Execute, p, wire.AppendExecute(b.bytes, name))
	b.add(queue.Close, p, wire.AppendClose(b.bytes, 'P', name))
}

// once makes a statement of the proxy's own, runs it and drops it. Unlike a
// Query it leaves the client's unnamed statement alone.
func (b *batch) once(name, sql string, p queue.Purpose) {
	b.add(queue.Close, p, wire.AppendClose(b.bytes, 'S', name))
	b.add(queue.Parse, p, wire.AppendParse(b.bytes, name, sql))
	b.run(name, p)
	b.add(queue.Close, p, wire.AppendClose(b.bytes, 'S', name))
}

// sync ends a segment of the proxy's own.
func (b *batch) sync(e queue.Entry) {
	e.Kind = queue.Sync
	b.bytes = wire.AppendSync(b.bytes)
	b.entries = append(b.entries, e)
}

// raise fails with a refusal in place of the client's statement. PostgreSQL
// raises it, so that its order among other replies, the transaction status
// and what is skipped afterwards are PostgreSQL's own.
func (b *batch) raise(e *fencing.Error) {
	b.add(queue.Close, queue.Raise, wire.AppendClose(b.bytes, 'S', raiseName))
	b.add(queue.Parse, queue.Raise, wire.AppendParse(b.bytes, raiseName, raiseSQL(e, "")))
	b.run(raiseName, queue.Raise)
}

// raiseSQL raises a refusal if a condition of the proxy's own holds; "" always
// does. It needs nothing installed but PL/pgSQL. All text is dollar-quoted with
// tags that don't occur in it, so no setting of the session can make it mean
// anything else.
func raiseSQL(e *fencing.Error, condition string) string {
	inner := dollarTag('v', e.Message, e.Detail, e.Hint)
	var body strings.Builder
	body.WriteString("BEGIN ")
	if condition != "" {
		body.WriteString("IF " + condition + " THEN ")
	}
	body.WriteString("RAISE EXCEPTION USING ERRCODE = '" + string(e.Code) + "'")
	for _, f := range [...][2]string{{"MESSAGE", e.Message}, {"DETAIL", e.Detail}, {"HINT", e.Hint}} {
		if f[1] != "" {
			body.WriteString(", " + f[0] + " = " + inner + f[1] + inner)
		}
	}
	body.WriteString(";")
	if condition != "" {
		body.WriteString(" END IF;")
	}
	body.WriteString(" END")
	outer := dollarTag('b', body.String())
	return "DO LANGUAGE plpgsql " + outer + body.String() + outer
}

// dollarTag returns a dollar quote that ends each of the texts where the text
// ends and not before.
func dollarTag(letter byte, texts ...string) string {
	for n := 0; ; n++ {
		tag := "$" + string(letter) + strconv.Itoa(n) + "$"
		fits := true
		for _, t := range texts {
			fits = fits && strings.Index(t+tag, tag) == len(t)
		}
		if fits {
			return tag
		}
	}
}
