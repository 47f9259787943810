package wire

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// Pipelines is how many pipelines a generated script holds.
const Pipelines = 10

// GeneratedSetup makes what generated scripts work on.
const GeneratedSetup = `
	CREATE TABLE t (id int PRIMARY KEY, v text);
	CREATE TABLE sink (id int PRIMARY KEY, v text);
	CREATE TABLE five AS SELECT n FROM generate_series(1, 5) AS n;
	CREATE TABLE zero AS SELECT 0 AS n;
	CREATE TABLE parent (id int PRIMARY KEY); INSERT INTO parent SELECT n FROM five;
	CREATE TABLE child (id int, parent int REFERENCES parent DEFERRABLE INITIALLY DEFERRED);
	CREATE FUNCTION writes(i int) RETURNS int LANGUAGE sql AS 'INSERT INTO t VALUES (i, ''f'') RETURNING id';
	CREATE VIEW sneaky AS SELECT writes(7) AS x`

// GeneratedReset makes the tables what they are at the beginning of each
// generated script.
const GeneratedReset = `
	DELETE FROM child; DELETE FROM sink; DELETE FROM t;
	INSERT INTO t VALUES (1, 'a'), (2, 'b'), (3, 'c')`

// Generate makes a script of Pipelines random pipelines in one session: valid
// ones and slightly invalid ones, with errors, several Syncs, copies and
// transactions. Each ends with a Query that rolls back and says which it was.
// What the proxy refuses in a tagged session by design is only in those that
// aren't to be played tagged, and what depends on the server's version only in
// those for its own.
func Generate(r *rand.Rand, version int) *Script {
	g := &generator{r: r, version: version, s: &Script{Name: "generated"}, params: map[string]int{}}
	if r.IntN(5) == 0 {
		g.s.Untagged = "it has what a tagged session is refused"
	}
	for i := range Pipelines {
		g.pipeline(i)
	}
	return g.s
}

type generator struct {
	r       *rand.Rand
	s       *Script
	version int // major version of the server
	// params are how many parameters the statements have that were made, as
	// far as nothing went wrong.
	params map[string]int
	// due are the ReadyForQuery to come since the last wait; they can be
	// counted in an orderly pipeline only.
	due     int
	orderly bool
	fresh   bool // the next message begins a write of its own
	open    bool // the last segment has no Sync
}

func (g *generator) pick(from ...string) string { return from[g.r.IntN(len(from))] }

// one says yes once in n times.
func (g *generator) one(n int) bool { return g.r.IntN(n) == 0 }

// send adds a message, now and then in a write of its own.
func (g *generator) send(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	m, err := ParseMessage(text)
	if err != nil {
		panic(fmt.Sprintf("a generated message can't be read: %v", err))
	}
	if m.Text == "S" || strings.HasPrefix(m.Text, "Q ") || strings.HasPrefix(m.Text, "F ") {
		g.due++
	}
	steps := g.s.Steps
	if n := len(steps); n > 0 && steps[n-1].Action == ActSend && !g.fresh && !g.one(6) {
		steps[n-1].Messages = append(steps[n-1].Messages, m)
		return
	}
	g.fresh = false
	if n := len(steps); n > 0 && steps[n-1].Action == ActSend {
		g.s.Steps = append(g.s.Steps, Step{Action: ActOn, Session: "a"}) // keeps the writes apart
	}
	g.s.Steps = append(g.s.Steps, Step{Action: ActSend, Messages: []Message{m}, Split: g.one(12)})
}

// pipeline adds one pipeline and waits for its end.
func (g *generator) pipeline(number int) {
	g.orderly = !g.one(3)
	switch g.r.IntN(15) {
	case 0:
		// Elsewhere a check may come before it: simple.wire, an isolation level.
		g.send("Q %q", g.pick("BEGIN ISOLATION LEVEL REPEATABLE READ", "BEGIN ISOLATION LEVEL SERIALIZABLE"))
	case 1:
		g.discard()
	case 2:
		// Elsewhere other things are: simple.wire, statements.wire.
		g.send("Q %q", "RESET ALL")
	}
	for range 1 + g.r.IntN(6) {
		if g.one(3) {
			g.query()
			continue
		}
		g.segment()
		if g.orderly && g.due > 0 && g.one(3) {
			var wants []Want
			for range g.due {
				wants = append(wants, Want{Letter: letterSkip}, Want{Letter: "Z"})
			}
			g.due = 0
			g.s.Steps = append(g.s.Steps, Step{Action: ActExpect, Expect: []Alternative{{Wants: wants}}})
		}
	}
	g.fresh = g.one(2)
	send, expect := ending(fmt.Sprintf("pipeline %d", number))
	for _, m := range send.Messages {
		g.send("%s", m.Text)
	}
	g.due = 0
	g.s.Steps = append(g.s.Steps, expect)
}

// ending returns the steps that end a pipeline whatever state it is in: out of
// a copy, out of what an error skips, out of a transaction.
func ending(name string) (send, expect Step) {
	send = Step{Action: ActSend}
	for _, text := range []string{`f "the end"`, "S", fmt.Sprintf("Q %q", "ROLLBACK; SELECT '"+name+"'")} {
		m, err := ParseMessage(text)
		if err != nil {
			panic(fmt.Sprintf("the ending can't be read: %v", err))
		}
		send.Messages = append(send.Messages, m)
	}
	return send, Step{Action: ActExpect, Expect: []Alternative{{Wants: []Want{
		{Letter: letterSkip}, {Letter: "D", Detail: name}, {Letter: letterSkip}, {Letter: "Z"},
	}}}}
}

// discard adds a DISCARD ALL, which must be alone in its segment.
func (g *generator) discard() {
	if g.one(2) {
		g.send("Q %q", "DISCARD ALL")
		return
	}
	g.send("C S discard")
	g.send("P discard %q", "DISCARD ALL")
	g.send("B - discard")
	g.send("E -")
	g.send("S")
}

// segment adds requests of the extended protocol up to a Sync.
func (g *generator) segment() {
	for range 1 + g.r.IntN(4) {
		switch g.r.IntN(8) {
		case 0, 1, 2, 3:
			g.statement()
		case 4:
			g.again()
		case 5:
			g.send("H")
		case 6:
			if !g.orderly {
				g.disorder()
			}
		case 7:
			if !g.orderly || g.one(4) {
				g.copyExtended()
			}
		}
	}
	// A Query without a Sync before it is another matter from 18 on:
	// pipelines.wire.
	g.open = !g.orderly && g.version < 18 && g.one(4)
	if !g.open {
		g.send("S")
	}
}

// statement parses, binds and executes a statement, with some of the steps
// left out or done twice.
func (g *generator) statement() {
	name, portal := g.pick("-", "-", "a", "b"), g.pick("-", "-", "-", "p")
	if g.one(3) && name != "-" {
		g.send("C S %s", name)
	}
	sql, params := g.parameterized()
	g.send("P %s %q", name, sql)
	g.params[name] = len(params)
	if g.one(5) {
		g.send("D S %s", name)
	}
	if g.one(12) {
		return
	}
	g.bind(portal, name, params)
	if g.one(3) {
		g.send("D P %s", portal)
	}
	for range 1 + g.r.IntN(8)/7 {
		g.send("E %s %d", portal, max(0, g.r.IntN(6)-3))
	}
	if portal != "-" && !g.one(4) {
		g.send("C P %s", portal)
	}
}

// again binds and executes what was parsed before, or should have been.
func (g *generator) again() {
	name := g.pick("-", "a", "b", "nobody")
	var params []string
	for range g.params[name] {
		params = append(params, g.number())
	}
	portal := g.pick("-", "-", "p")
	g.bind(portal, name, params)
	// Not the unnamed one where it wasn't bound: PostgreSQL crashes where an
	// Execute finds what a ROLLBACK TO that failed in a Query has left there.
	g.send("E %s", g.pick(portal, portal, "p"))
}

func (g *generator) bind(portal, name string, params []string) {
	var values strings.Builder
	for _, p := range params {
		if g.one(20) {
			p = g.pick("null", `"word"`)
		}
		values.WriteString(" " + p)
	}
	if g.one(30) {
		values.WriteString(` "1"`)
	}
	if g.one(10) {
		values.WriteString(" out=1")
	}
	g.send("B %s %s%s", portal, name, values.String())
}

// number is a key of the tables, in quotes. Some are there, most aren't.
func (g *generator) number() string { return fmt.Sprintf(`"%d"`, g.r.IntN(12)) }

// parameterized returns a statement for a Parse and values for it.
func (g *generator) parameterized() (sql string, params []string) {
	k := g.number()
	switch g.r.IntN(12) {
	case 0:
		return "INSERT INTO t VALUES ($1, 'p')", []string{k}
	case 1:
		return "INSERT INTO t VALUES ($1::int, $2) RETURNING id, v", []string{k, `"text"`}
	case 2:
		return "UPDATE t SET v = $2 WHERE id = $1", []string{k, `"new"`}
	case 3:
		return "SELECT v FROM t WHERE id >= $1 ORDER BY id", []string{k}
	case 4:
		return "SELECT n FROM five WHERE n > $1 ORDER BY n", []string{k}
	case 5:
		return "SELECT writes($1)", []string{k}
	}
	if g.s.Untagged != "" && g.one(6) {
		return g.pick("DO $$ BEGIN INSERT INTO t VALUES (8, 'do'); END $$", "DO $$ BEGIN RAISE NOTICE 'n'; END $$"), nil
	}
	sql = g.plain()
	return sql, nil
}

// plain returns one statement without parameters.
func (g *generator) plain() string {
	k := g.r.IntN(12)
	switch g.r.IntN(20) {
	case 0, 1:
		return "BEGIN"
	case 2, 3:
		return g.pick("COMMIT", "COMMIT", "ROLLBACK", "END")
	case 4:
		return g.pick("COMMIT AND CHAIN", "ROLLBACK AND CHAIN")
	case 5:
		return g.pick("SAVEPOINT s", "ROLLBACK TO s", "RELEASE s", "SAVEPOINT s")
	case 6, 7:
		return fmt.Sprintf(g.pick("INSERT INTO t VALUES (%d, 'x')", "INSERT INTO t VALUES (%d, 'x') RETURNING v", "INSERT INTO t VALUES (%d, 'x') ON CONFLICT DO NOTHING"), k)
	case 8:
		return fmt.Sprintf(g.pick("UPDATE t SET v = 'u' WHERE id < %d", "DELETE FROM t WHERE id = %d", "DELETE FROM t WHERE id > %d"), k)
	case 9:
		return fmt.Sprintf("INSERT INTO child VALUES (1, %d)", k)
	case 10:
		return g.pick("SELECT 1/n FROM zero", "SELECT nobody FROM t", "SELECT * FROM nobody", "INSERT INTO t VALUES (1, 2, 3)")
	case 11:
		return g.pick("SELECT * FROM sneaky", "WITH d AS (DELETE FROM t WHERE id = 1 RETURNING v) SELECT * FROM d", "SELECT id FROM t ORDER BY id FOR UPDATE")
	case 12:
		return g.pick("SET work_mem = '1MB'", "SET LOCAL work_mem = '2MB'", "RESET work_mem", "SHOW work_mem", "SET TimeZone = 'UTC'", "SET TimeZone = 'Asia/Tokyo'", "RESET TimeZone", "SET CONSTRAINTS ALL IMMEDIATE", "SET CONSTRAINTS ALL DEFERRED", "SET search_path = app, public")
	case 13:
		return g.pick("DECLARE c CURSOR FOR SELECT n FROM five ORDER BY n", "FETCH 2 FROM c", "FETCH ALL FROM c", "CLOSE c", "DECLARE h CURSOR WITH HOLD FOR SELECT n FROM five ORDER BY n", "FETCH 1 FROM h", "CLOSE ALL")
	case 14:
		return g.pick("LISTEN news", "NOTIFY news, 'x'", "UNLISTEN *", "NOTIFY news")
	case 15:
		if g.version < 18 && g.one(5) {
			// From 18 on it shows that what is left isn't known: statements.wire.
			return "DEALLOCATE ALL"
		}
		return fmt.Sprintf(g.pick("PREPARE q AS INSERT INTO t VALUES (%d, 'q')", "PREPARE q AS SELECT %d", "EXECUTE q /* %d */", "DEALLOCATE q /* %d */"), k)
	case 16:
		return g.pick("DISCARD PLANS", "DISCARD TEMP", "")
	case 17:
		return g.pick("DROP TABLE IF EXISTS nobody", "CREATE TEMP TABLE IF NOT EXISTS mine (i int)", "DROP TABLE IF EXISTS mine", "INSERT INTO mine VALUES (1)", "LOCK TABLE t", "EXPLAIN (COSTS off) INSERT INTO t VALUES (1, 'x')")
	}
	return g.pick("SELECT 1", "SELECT n FROM five ORDER BY n", "SELECT id, v FROM t ORDER BY id", "VALUES (1), (2)", "SELECT count(*) FROM t",
		"SELECT set_config('work_mem', '3MB', false)", "COPY (SELECT n FROM five ORDER BY n) TO STDOUT", "COPY (SELECT 1/n FROM zero) TO STDOUT")
}

// query adds a Query of one statement or several, which may be a copy.
func (g *generator) query() {
	if g.one(8) {
		g.send("Q %q", g.pick("", ";", "-- nothing", "SELEKT 1", "INSERT INTO t VALUES (1, 'x"))
		return
	}
	var parts []string
	for range 1 + max(0, g.r.IntN(6)-2) {
		part := g.plain()
		if g.one(15) {
			part = "DO $$ BEGIN INSERT INTO t VALUES (9, 'do'); END $$"
		}
		parts = append(parts, part)
	}
	if g.one(8) && !g.orderly {
		g.send("Q %q", strings.Join(append(parts, "COPY sink FROM STDIN"), ";\n"))
		g.copyData()
		return
	}
	if g.open && len(parts) == 1 && strings.HasPrefix(parts[0], "SET ") {
		parts[0] = "SHOW work_mem" // a setting for a block: pipelines.wire
	}
	g.send("Q %q", strings.Join(parts, ";\n")+g.pick("", "", ";", " -- end"))
}

// copyExtended adds a copy in under names that nothing else has.
func (g *generator) copyExtended() {
	g.send("C S copy")
	g.send("P copy %q", g.pick("COPY sink FROM STDIN", "COPY sink FROM STDIN", "COPY nobody FROM STDIN"))
	g.send("B copy copy")
	g.send("E copy")
	g.copyData()
	g.send("C P copy")
}

// copyData adds the data of a copy in, good or bad, up to its end.
func (g *generator) copyData() {
	for range g.r.IntN(4) {
		if !g.orderly && g.one(6) {
			g.send("H")
		}
		if !g.orderly && g.one(6) {
			g.send("S")
		}
		g.send("d %q", fmt.Sprintf(g.pick("%d\tc\n", "%d\tc\n", "%d\tc\n", "%d\n", "no%d\tc\n"), g.r.IntN(20)))
	}
	g.send("%s", g.pick("c", "c", "c", `f "no more"`))
}

// disorder adds what doesn't belong there.
func (g *generator) disorder() {
	switch g.r.IntN(8) {
	case 0:
		g.send("E %s", g.pick("nobody", "p"))
	case 1:
		g.send("D %s %s", g.pick("S", "P"), g.pick("-", "a", "p", "nobody"))
	case 2:
		g.send("C %s %s", g.pick("S", "P"), g.pick("-", "a", "p", "nobody"))
	case 3:
		g.send("%s", g.pick(`d "stray"`, "c", `f "stray"`))
	case 4:
		g.send("P %s %q", g.pick("-", "b"), "SELECT 1; SELECT 2")
	case 5:
		g.send("S")
	case 6:
		g.send("frame B 00 %s", g.pick("", "00", "61 00 0000", "00 0000 0001 00000001"))
	case 7:
		if g.version >= 18 {
			g.send("S") // as for a Query, in segment
		}
		if g.s.Untagged != "" {
			g.send(`F 177 "2" %s`, g.pick(`"3"`, "null", `"x"`))
		} else {
			g.send("P %s %q", g.pick("-", "b"), g.plain())
		}
	}
}
