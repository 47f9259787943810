package console

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/fenceproxy/fenceproxy/proxy/wire"
	"github.com/fenceproxy/fenceproxy/sqlrewrite"
)

// Bounds of one client.
const (
	// MaxMessage is the longest body of a message, in bytes.
	MaxMessage = 64 << 10
	// maxStatements is how many prepared statements it may have, and how many
	// statements one text; maxPortals is how many portals, which keep their rows.
	maxStatements = 100
	maxPortals    = 16
	// maxParameters is how many parameters a statement has at most.
	maxParameters = 8
)

// Errors that end a client's session.
var (
	// ErrGoodbye: it said Terminate.
	ErrGoodbye = errors.New("the client said goodbye")
	// ErrProtocol: it sent what no client sends here.
	ErrProtocol = errors.New("the client broke the protocol")
)

// A Client is one client of the console, after its login.
type Client struct {
	console *Console
	out     *wire.Writer
	who     Peer

	block      byte // as ReadyForQuery tells it
	skipping   bool // up to the next Sync
	statements map[string]*statement
	portals    map[string]*portal
}

// A Peer is who a client is.
type Peer struct {
	Role   string
	Access Access
	// Again says what the role may do now: it is asked before something is changed.
	Again func(context.Context) (Access, error)
}

// NewClient returns a Client whose answers go to out, which the caller flushes.
func (c *Console) NewClient(out *wire.Writer, who Peer) *Client {
	return &Client{console: c, out: out, who: who, block: wire.StatusIdle,
		statements: map[string]*statement{}, portals: map[string]*portal{}}
}

// Greet sends what follows AuthenticationOk, up to the first ReadyForQuery. server
// is PostgreSQL's version, which drivers go by; key is what the client can cancel by.
func (cl *Client) Greet(server, application string, key []byte) {
	for _, p := range statuses() {
		value := p.value
		switch p.name {
		case "server_version":
			// As PostgreSQL's packages name themselves behind the number.
			value = server + " (fenceproxy's console)"
		case "session_authorization":
			value = cl.who.Role
		case "application_name":
			value = application
		}
		cl.out.Write(wire.AppendStatus(nil, p.name, value))
	}
	cl.out.Write(wire.AppendKeyData(nil, key))
	cl.ready()
}

// A status is a parameter that a server reports.
type status struct{ name, value string }

// statuses are those that clients know before they ask anything.
func statuses() []status {
	return []status{
		{"server_version", "0"}, {"server_encoding", "UTF8"}, {"client_encoding", "UTF8"}, {"DateStyle", "ISO, MDY"},
		{"TimeZone", "UTC"}, {"IntervalStyle", "postgres"}, {"integer_datetimes", "on"}, {"standard_conforming_strings", "on"},
		{"is_superuser", "off"}, {"in_hot_standby", "off"}, {"default_transaction_read_only", "off"},
		{"session_authorization", ""}, {"application_name", ""},
	}
}

// parameter returns what SHOW says of a parameter that drivers ask for.
func parameter(name string) (string, bool) {
	switch name {
	case "transaction", "transaction_isolation", "default_transaction_isolation":
		return "read committed", true
	case "server_encoding", "client_encoding", "timezone", "datestyle", "standard_conforming_strings":
		for _, p := range statuses() {
			if strings.EqualFold(p.name, name) {
				return p.value, true
			}
		}
	}
	return "", false
}

// Block is the transaction's status, as the last ReadyForQuery told it.
func (cl *Client) Block() byte { return cl.block }

// Take answers one message, unless ctx ends first. The error ends the session.
func (cl *Client) Take(ctx context.Context, t byte, body []byte) error {
	switch {
	case t == wire.Terminate:
		return ErrGoodbye
	case t == wire.Sync:
		cl.skipping = false
		cl.endOfSegment()
		cl.ready()
		return nil
	case t == wire.CopyData, t == wire.CopyDone, t == wire.CopyFail, t == wire.Flush:
		return nil // ignored outside a COPY, as PostgreSQL does; all is flushed anyway
	case wire.ClientLimit(t) == 0:
		return ErrProtocol
	case cl.skipping:
		return nil
	case t == wire.Query:
		return cl.simple(ctx, body)
	case t == wire.FunctionCall:
		cl.refuse(noTables())
		cl.endOfSegment()
		cl.ready()
		return nil
	}
	if err := cl.extended(ctx, t, body); err != nil {
		cl.refuse(asFault(err))
		cl.skipping = true
	}
	return nil
}

// TooLong answers a message that is longer than MaxMessage, and wasn't read.
func (cl *Client) TooLong(t byte) error {
	switch {
	case cl.skipping, t == wire.CopyData:
		return nil
	case wire.ClientLimit(t) == 0:
		return ErrProtocol
	}
	cl.refuse(faultf(codeTooMuch, "the console takes messages of up to %d bytes", MaxMessage))
	if cl.skipping = t != wire.Query && t != wire.FunctionCall; !cl.skipping {
		cl.ready()
	}
	return nil
}

// simple answers a Query.
func (cl *Client) simple(ctx context.Context, body []byte) error {
	text, rest, ok := wire.CString(body)
	if !ok || len(rest) > 0 {
		return ErrProtocol
	}
	delete(cl.statements, "") // as PostgreSQL drops the unnamed ones
	delete(cl.portals, "")
	if err := cl.texts(ctx, text); err != nil {
		cl.refuse(asFault(err))
	}
	cl.endOfSegment()
	cl.ready()
	return nil
}

// texts carries out the statements of a text, up to the first that fails.
func (cl *Client) texts(ctx context.Context, text []byte) error {
	all, err := split(text)
	switch {
	case err != nil:
		return err
	case len(all) > maxStatements:
		return faultf(codeTooMuch, "the console takes up to %d statements at a time", maxStatements)
	case len(all) == 0:
		cl.out.Write(wire.Frame(nil, wire.EmptyQuery))
	}
	for _, st := range all {
		cmd, err := cl.console.parse(string(text[st.Start:st.End]))
		if err != nil {
			return err
		}
		types, err := cmd.types(nil)
		if err != nil {
			return err
		}
		if len(types) > 0 {
			return faultf("42P02", "there is no parameter $1")
		}
		done, err := cl.carryOut(ctx, &cmd)
		if err != nil {
			return err
		}
		fields := described(cmd.fields(), nil)
		if len(fields) > 0 {
			cl.out.Write(wire.AppendFields(nil, fields))
		}
		if err := cl.rows(done.rows, fields); err != nil {
			return err
		}
		cl.out.Write(wire.AppendTag(nil, done.tag))
	}
	return nil
}

// split reads a text as PostgreSQL would, which is UTF-8.
func split(text []byte) ([]sqlrewrite.Statement, error) {
	if !utf8.Valid(text) {
		return nil, faultf(codeNotText, `invalid byte sequence for encoding "UTF8"`)
	}
	all, err := sqlrewrite.Split(nil, text, sqlrewrite.Options{})
	if err != nil {
		return nil, faultf(codeSyntax, "the text can't be read: %v", err)
	}
	return all, nil
}

// rows sends rows. The error is the connection's, and ends the session.
func (cl *Client) rows(rows [][]any, fields []wire.Field) error {
	values := make([][]byte, len(fields))
	for _, row := range rows {
		for i, f := range fields {
			values[i] = encoded(row[i], f)
		}
		if err := cl.out.Write(wire.AppendRow(nil, values)); err != nil {
			return err
		}
	}
	return nil
}

// refuse sends an error, which fails the transaction.
func (cl *Client) refuse(f *fault) {
	if cl.block == wire.StatusBlock {
		cl.block = wire.StatusFailed
	}
	cl.out.Write(wire.AppendError(nil, f.Report))
}

func (cl *Client) ready() { cl.out.Write(wire.AppendReady(nil, cl.block)) }

// A done is what a statement that was carried out returns.
type done struct {
	rows [][]any
	tag  string
}

// barred refuses what a failed block doesn't take: all but its end.
func (cl *Client) barred(cmd *command) error {
	if cl.block != wire.StatusFailed || cmd.verb == verbCommit || cmd.verb == verbRollback {
		return nil
	}
	return faultf(codeFailedBlock, "current transaction is aborted, commands ignored until end of transaction block")
}

// carryOut does what a statement says, whose operands are literals.
func (cl *Client) carryOut(ctx context.Context, cmd *command) (done, error) {
	if err := cl.barred(cmd); err != nil {
		return done{}, err
	}
	switch cmd.verb {
	case verbShow:
		return cl.show(ctx, cmd)
	case verbValue:
		return done{rows: [][]any{{cmd.value}}, tag: cmd.tag}, nil
	case verbKill, verbReload:
		return done{tag: cmd.tag}, cl.change(ctx, cmd)
	case verbDeallocate:
		return done{tag: cmd.tag}, cl.deallocate(cmd.name)
	case verbBegin, verbCommit, verbRollback:
		return done{tag: cl.transaction(cmd)}, nil
	}
	return done{tag: cmd.tag}, nil
}

func (cl *Client) show(ctx context.Context, cmd *command) (done, error) {
	limit, err := whole(cmd.limit, "LIMIT")
	if err != nil {
		return done{}, err
	}
	if cmd.limit.given && limit < 1 {
		return done{}, faultf(codeBadValue, "LIMIT must be 1 or above")
	}
	a, err := cmd.view.show(ctx, query{prefix: cmd.prefix.text, after: cmd.after.text, limit: int(min(limit, 1<<30))})
	switch {
	case ctx.Err() != nil:
		return done{}, faultf(codeCanceled, "canceling statement due to user request")
	case err != nil:
		return done{}, err
	}
	for _, n := range a.notices {
		cl.out.Write(wire.AppendNotice(nil, n))
	}
	return done{rows: a.rows, tag: cmd.tag}, nil
}

// whole reads a number.
func whole(o operand, what string) (int64, error) {
	if !o.given {
		return 0, nil
	}
	n, err := strconv.ParseInt(o.text, 10, 64)
	if err != nil {
		return 0, faultf(codeBadValue, "%s takes a whole number, not %v", what, token{text: o.text})
	}
	return n, nil
}

// transaction follows BEGIN and its ends, which have no other effect: clients that
// put all in transactions expect the status.
func (cl *Client) transaction(cmd *command) (tag string) {
	switch {
	case cmd.verb == verbBegin && cl.block != wire.StatusIdle:
		w := notice("WARNING", "there is already a transaction in progress")
		w.Code = codeInBlock
		cl.out.Write(wire.AppendNotice(nil, w))
		return cmd.tag
	case cmd.verb == verbBegin:
		cl.block = wire.StatusBlock
		return cmd.tag
	case cl.block == wire.StatusIdle:
		w := notice("WARNING", "there is no transaction in progress")
		w.Code = codeNoBlock
		cl.out.Write(wire.AppendNotice(nil, w))
		return cmd.tag
	}
	failed := cl.block == wire.StatusFailed
	cl.block = wire.StatusIdle
	if failed {
		return "ROLLBACK"
	}
	return cmd.tag
}
