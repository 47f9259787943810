package console

import (
	"slices"
	"strconv"
	"strings"

	"github.com/fenceproxy/fenceproxy/proxy/spelling"
	"github.com/fenceproxy/fenceproxy/proxy/wire"
)

// A verb is what a statement does.
type verb uint8

const (
	// verbShow returns the rows of a view.
	verbShow verb = iota
	// verbValue returns one value.
	verbValue
	verbKill
	verbReload
	verbBegin
	verbCommit
	verbRollback
	verbDeallocate
	// verbNothing is answered and has no effect.
	verbNothing
)

// An operand is a value in a statement: a literal, or a parameter.
type operand struct {
	given bool
	param int // its number, from 1; 0: it is a literal
	text  string
	typ   uint32
}

// A command is one statement, read.
type command struct {
	verb                     verb
	tag                      string // of its CommandComplete
	view                     *view  // of verbShow
	prefix, after, limit, id operand
	bySession                bool    // verbKill: id is the session's number, not its process
	field                    field   // of verbValue,
	value                    any     // and what it returns
	name                     operand // of verbDeallocate; not given is all
}

// A reader reads the tokens of one statement.
type reader struct {
	tokens []token
	at     int
}

func (r *reader) peek() token { return r.tokens[r.at] }

func (r *reader) next() token {
	t := r.tokens[r.at]
	if t.symbol != symEnd {
		r.at++
	}
	return t
}

// word consumes a word if it is next.
func (r *reader) word(w string) bool {
	if t := r.peek(); t.symbol != symWord || t.text != w {
		return false
	}
	r.at++
	return true
}

// end refuses what follows a statement.
func (r *reader) end() error {
	if t := r.peek(); t.symbol != symEnd {
		return syntax(t)
	}
	return nil
}

func syntax(t token) *fault {
	return faultf(codeSyntax, "syntax error at %v", t).hint("SHOW HELP lists what the console knows.")
}

// parse reads one statement, which isn't empty.
func (c *Console) parse(text string) (command, error) {
	r := &reader{tokens: scan(text)}
	t := r.next()
	if t.symbol != symWord {
		return command{}, unknownStatement(t)
	}
	switch t.text {
	case "show":
		return c.parseShow(r)
	case "kill":
		return parseKill(r)
	case "help":
		return command{verb: verbShow, tag: "SHOW", view: c.view("help")}, r.end()
	case "reload":
		return command{verb: verbReload, tag: "RELOAD"}, r.end()
	case "select":
		return c.parseSelect(r)
	case "begin", "start":
		return command{verb: verbBegin, tag: "BEGIN"}, nil
	case "commit", "end":
		return command{verb: verbCommit, tag: "COMMIT"}, nil
	case "rollback", "abort":
		return command{verb: verbRollback, tag: "ROLLBACK"}, nil
	case "set":
		return command{verb: verbNothing, tag: "SET"}, checkSet(r)
	case "reset":
		return command{verb: verbNothing, tag: "RESET"}, nil
	case "discard":
		if r.word("all") {
			return command{verb: verbDeallocate, tag: "DISCARD ALL"}, r.end()
		}
		return command{verb: verbNothing, tag: "DISCARD"}, nil
	case "deallocate":
		return parseDeallocate(r)
	}
	return command{}, unknownStatement(t)
}

// checkSet refuses an encoding that the console doesn't speak. All other settings
// are taken and have no effect.
func checkSet(r *reader) error {
	if !r.word("session") {
		r.word("local")
	}
	t := r.next()
	if t.text != "client_encoding" && t.text != "names" {
		return nil
	}
	if !r.word("to") && r.peek().text == "=" {
		r.next()
	}
	switch strings.ToLower(strings.ReplaceAll(r.next().text, "-", "")) {
	case "utf8", "utf", "unicode", "default": // utf: UTF-8 without quotes is three tokens
		return nil
	}
	return faultf(codeUnsupported, "the console speaks UTF8 only")
}

// instead says what to do in place of words of PgBouncer's console and of SQL; ""
// of others.
func instead(word string) string {
	switch word {
	case "pause", "resume", "suspend", "disable", "enable", "reconnect", "wait_close":
		return "fenceproxy holds no clients back: PAUSE and the like are PgBouncer's."
	case "shutdown":
		return "Send the process SIGTERM: it lets transactions end first."
	case "kill_client":
		return "KILL pid ends a session; SHOW SESSIONS lists them."
	case "insert", "update", "delete", "with", "table", "values", "create", "alter", "drop", "copy", "truncate", "explain", "prepare",
		"declare", "fetch", "move", "listen", "unlisten", "notify", "lock", "call", "do", "merge", "grant", "revoke", "vacuum", "analyze", "savepoint":
		return "This is fenceproxy's console, which has no tables: connect to a database of PostgreSQL for SQL. SHOW HELP lists what the console knows."
	}
	return ""
}

func unknownStatement(t token) *fault {
	if why := instead(t.text); why != "" && t.symbol == symWord {
		return faultf(codeUnsupported, "the console doesn't know %s", strings.ToUpper(t.text)).hint("%s", why)
	}
	f := syntax(t)
	if near := nearest(t, []string{"show", "kill", "reload", "help"}); near != "" {
		return f.hint("Did you mean %s? SHOW HELP lists what the console knows.", near)
	}
	return f
}

// nearest is what somebody may have meant, in capitals; "" if nothing is like it.
func nearest(t token, known []string) string {
	if len(t.text) > maxWord {
		return ""
	}
	return strings.ToUpper(spelling.Nearest(t.text, known))
}

// parseShow reads what follows SHOW: a view with its options, or a parameter as
// drivers ask for it.
func (c *Console) parseShow(r *reader) (command, error) {
	t := r.next()
	v := c.view(t.text)
	if v == nil {
		if value, ok := parameter(t.text); ok {
			for t.text == "transaction" && r.peek().symbol == symWord {
				r.next() // ISOLATION LEVEL
			}
			return command{verb: verbValue, tag: "SHOW", field: field{name: t.text, typ: wire.TypeText}, value: value}, r.end()
		}
		return command{}, c.unknownView(t)
	}
	cmd := command{verb: verbShow, tag: "SHOW", view: v}
	var err error
	if s := r.peek().symbol; v.takes&takesPrefix != 0 && (s == symString || s == symParam) {
		if cmd.prefix, err = r.operand(wire.TypeText); err != nil {
			return cmd, err
		}
	}
	for err == nil {
		switch {
		case v.takes&takesAfter != 0 && !cmd.after.given && r.word("after"):
			cmd.after, err = r.operand(wire.TypeText)
		case v.takes&takesLimit != 0 && !cmd.limit.given && r.word("limit"):
			cmd.limit, err = r.operand(wire.TypeInt8)
		case v.takes&takesPrefix != 0 && !cmd.prefix.given && r.peek().symbol == symWord:
			return cmd, syntax(r.peek()).hint("What keys begin with stands in quotes, such as SHOW %s 'order:'.", strings.ToUpper(v.name))
		default:
			return cmd, r.end()
		}
	}
	return cmd, err
}

func (c *Console) unknownView(t token) *fault {
	known := c.viewNames()
	if t.symbol == symEnd {
		return faultf(codeSyntax, "SHOW needs to know what").hint("There are %s.", strings.ToUpper(strings.Join(known, ", ")))
	}
	f := faultf(codeSyntax, "SHOW doesn't know %v", t)
	near := nearest(t, known)
	switch t.text {
	case "clients", "servers", "pools", "users", "sockets", "active_sockets":
		near = "SESSIONS"
	case "locks", "holders", "tokens":
		near = "KEYS"
	case "refusals", "errors":
		near = "REJECTIONS"
	case "metrics", "totals", "stats_totals", "mem", "lists":
		near = "STATS"
	case "settings", "all":
		near = "CONFIG"
	}
	if near != "" {
		return f.hint("Did you mean SHOW %s? SHOW HELP lists what there is.", near)
	}
	return f.hint("SHOW HELP lists what there is.")
}

// operand reads a literal or a parameter of a type.
func (r *reader) operand(typ uint32) (operand, error) {
	t := r.next()
	o := operand{given: true, text: t.text, typ: typ}
	switch {
	case t.symbol == symParam:
		n, err := strconv.Atoi(t.text)
		if err != nil || n < 1 || n > maxParameters {
			return o, faultf(codeSyntax, "there is no parameter $%s", t.text)
		}
		o.param = n
	case typ == wire.TypeInt8 && !t.isNumber(), typ == wire.TypeText && t.symbol != symString:
		return o, syntax(t)
	}
	return o, nil
}

// isNumber reports whether a token can stand for a number: in quotes, too, as drivers
// write their parameters into a text.
func (t token) isNumber() bool {
	_, err := strconv.ParseInt(t.text, 10, 64)
	return t.symbol == symNumber || t.symbol == symString && err == nil
}

func parseKill(r *reader) (command, error) {
	cmd := command{verb: verbKill, tag: "KILL", bySession: r.word("session")}
	if t := r.peek(); t.symbol != symParam && !t.isNumber() {
		return cmd, faultf(codeSyntax, "KILL needs the pid of a session, or SESSION and its number").hint("SHOW SESSIONS lists them.")
	}
	var err error
	if cmd.id, err = r.operand(wire.TypeInt8); err != nil {
		return cmd, err
	}
	return cmd, r.end()
}

// parseSelect reads the queries by which drivers and pools find out whether
// somebody is there.
func (c *Console) parseSelect(r *reader) (command, error) {
	cmd := command{verb: verbValue, tag: "SELECT 1", field: field{name: "?column?", typ: wire.TypeText}}
	switch t := r.next(); {
	case t.symbol == symNumber:
		n, err := strconv.ParseInt(t.text, 10, 32)
		if err != nil {
			return cmd, noTables()
		}
		cmd.field.typ, cmd.value = wire.TypeInt4, n
	case t.symbol == symString:
		cmd.value = t.text
	case isVersion(r, t):
		cmd.field.name, cmd.value = "version", c.Version
	default:
		return cmd, noTables()
	}
	if r.word("as") || r.peek().symbol == symWord || r.peek().symbol == symQuoted {
		if t := r.next(); t.symbol == symWord || t.symbol == symQuoted {
			cmd.field.name = t.text
		}
	}
	if r.end() != nil {
		return cmd, noTables()
	}
	return cmd, nil
}

// isVersion reads the rest of version() and pg_catalog.version().
func isVersion(r *reader, t token) bool {
	rest := []string{"version", "(", ")"}
	if t.text == "pg_catalog" {
		rest = []string{".", "version", "(", ")"}
	} else if t.text != "version" {
		return false
	} else {
		rest = rest[1:]
	}
	for _, text := range rest {
		if r.next().text != text {
			return false
		}
	}
	return true
}

func noTables() *fault {
	return faultf(codeUnsupported, `the console has no tables and no functions: \d and SQL are for databases of PostgreSQL`).
		hint("SHOW HELP lists what the console knows.")
}

func parseDeallocate(r *reader) (command, error) {
	cmd := command{verb: verbDeallocate, tag: "DEALLOCATE"}
	r.word("prepare")
	if r.word("all") {
		cmd.tag = "DEALLOCATE ALL"
		return cmd, r.end()
	}
	t := r.next()
	if t.symbol != symWord && t.symbol != symQuoted {
		return cmd, syntax(t)
	}
	cmd.name = operand{given: true, text: t.text}
	return cmd, r.end()
}

// operands are those that may be parameters.
func (c *command) operands() []*operand {
	return []*operand{&c.prefix, &c.after, &c.limit, &c.id}
}

// types are those of the parameters, of which client has said some.
func (c *command) types(client []uint32) ([]uint32, error) {
	types := slices.Clone(client)
	for _, o := range c.operands() {
		if o.param == 0 {
			continue
		}
		for len(types) < o.param {
			types = append(types, 0)
		}
		switch known := &types[o.param-1]; {
		case *known == 0 || *known == wire.TypeUnknown:
			*known = o.typ
		case !readable(*known, o.typ):
			return nil, faultf(codeBadValue, "parameter $%d is of a type that doesn't fit here", o.param)
		}
	}
	for i := range types {
		if types[i] == 0 {
			types[i] = wire.TypeText
		}
	}
	return types, nil
}

// fields are the columns of the result; nil if there is none.
func (c *command) fields() []field {
	switch c.verb {
	case verbShow:
		return c.view.fields()
	case verbValue:
		return []field{c.field}
	}
	return nil
}
