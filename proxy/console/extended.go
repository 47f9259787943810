package console

import (
	"context"
	"encoding/binary"
	"strings"
	"unicode/utf8"

	"github.com/fenceproxy/fenceproxy/proxy/wire"
)

// A statement is a prepared one.
type statement struct {
	empty bool // it has no text
	cmd   command
	types []uint32 // of its parameters
}

// A portal is a statement with its parameters. It is carried out by its first
// Execute.
type portal struct {
	empty  bool
	cmd    command
	fields []wire.Field

	run  bool
	done done
	sent bool // all of its rows
}

// extended answers a message of the extended protocol. After an error everything
// up to the next Sync is skipped.
func (cl *Client) extended(ctx context.Context, t byte, body []byte) error {
	switch t {
	case wire.Parse:
		return cl.prepare(body)
	case wire.Bind:
		return cl.bind(body)
	case wire.Describe:
		return cl.describe(body)
	case wire.Execute:
		return cl.execute(ctx, body)
	case wire.Close:
		return cl.close(body)
	}
	return malformed()
}

func malformed() *fault { return faultf(codeProtocol, "invalid message format") }

// endOfSegment drops the portals, which live as long as a transaction.
func (cl *Client) endOfSegment() {
	if cl.block == wire.StatusIdle {
		clear(cl.portals)
	}
}

func (cl *Client) prepare(body []byte) error {
	name, rest, ok := wire.CString(body)
	text, rest, ok2 := wire.CString(rest)
	types := wire.ReadTypes(rest)
	switch {
	case !ok || !ok2 || types == nil:
		return malformed()
	case len(types) > maxParameters:
		return faultf(codeTooMuch, "the console's statements have up to %d parameters", maxParameters)
	case len(name) > 0 && cl.statements[string(name)] != nil:
		return faultf(codeSameStatement, "prepared statement %q already exists", name)
	case len(cl.statements) >= maxStatements && cl.statements[string(name)] == nil:
		return faultf(codeTooMuch, "the console keeps up to %d prepared statements", maxStatements)
	}
	if len(name) == 0 {
		delete(cl.statements, "") // whatever comes of the new one
	}
	st, err := cl.read(text, types)
	if err != nil {
		return err
	}
	cl.statements[string(name)] = st
	cl.out.Write(wire.Frame(nil, wire.ParseComplete))
	return nil
}

// read reads the text of a Parse, which holds one statement at most.
func (cl *Client) read(text []byte, types []uint32) (*statement, error) {
	all, err := split(text)
	switch {
	case err != nil:
		return nil, err
	case len(all) > 1:
		return nil, faultf(codeSyntax, "cannot insert multiple commands into a prepared statement")
	case len(all) == 0:
		return &statement{empty: true, types: types}, nil
	}
	st := &statement{}
	if st.cmd, err = cl.console.parse(string(text[all[0].Start:all[0].End])); err != nil {
		return nil, err
	}
	if st.types, err = st.cmd.types(types); err != nil {
		return nil, err
	}
	return st, cl.barred(&st.cmd)
}

func (cl *Client) bind(body []byte) error {
	name, rest, ok := wire.CString(body)
	of, rest, ok2 := wire.CString(rest)
	parameters, formats, ok3 := wire.ReadBind(rest)
	if !ok || !ok2 || !ok3 {
		return malformed()
	}
	st := cl.statements[string(of)]
	switch {
	case st == nil:
		return faultf(codeNoStatement, "prepared statement %q does not exist", of)
	case len(parameters) != len(st.types):
		return faultf(codeProtocol, "bind message supplies %d parameters, but prepared statement %q requires %d", len(parameters), of, len(st.types))
	case len(formats) > 1 && len(formats) != len(st.cmd.fields()):
		return faultf(codeProtocol, "bind message has %d result formats but query has %d columns", len(formats), len(st.cmd.fields()))
	case len(name) > 0 && cl.portals[string(name)] != nil:
		return faultf(codeSamePortal, "portal %q already exists", name)
	case len(cl.portals) >= maxPortals && cl.portals[string(name)] == nil:
		return faultf(codeTooMuch, "the console keeps up to %d portals", maxPortals)
	}
	if err := cl.barred(&st.cmd); err != nil {
		return err
	}
	p := &portal{empty: st.empty, cmd: st.cmd}
	if !st.empty {
		p.fields = described(st.cmd.fields(), formats)
	}
	for _, o := range p.cmd.operands() {
		if o.param == 0 {
			continue
		}
		given := parameters[o.param-1]
		if given.Value == nil {
			return faultf("22004", "parameter $%d is NULL", o.param)
		}
		text, err := asText(given, st.types[o.param-1])
		if err != nil {
			return err
		}
		if strings.IndexByte(text, 0) >= 0 || !utf8.ValidString(text) {
			return faultf(codeNotText, `parameter $%d has an invalid byte sequence for encoding "UTF8"`, o.param)
		}
		*o = operand{given: true, text: text}
	}
	cl.portals[string(name)] = p
	cl.out.Write(wire.Frame(nil, wire.BindComplete))
	return nil
}

// named reads a body of a kind ('S' for a statement, 'P' for a portal) and a name.
func named(body []byte) (kind byte, name string, err error) {
	if len(body) < 2 || body[0] != 'S' && body[0] != 'P' {
		return 0, "", malformed()
	}
	text, rest, ok := wire.CString(body[1:])
	if !ok || len(rest) > 0 {
		return 0, "", malformed()
	}
	return body[0], string(text), nil
}

func (cl *Client) describe(body []byte) error {
	kind, name, err := named(body)
	if err != nil {
		return err
	}
	if kind == 'P' {
		p := cl.portals[name]
		if p == nil {
			return noPortal(name)
		}
		cl.tellFields(p.fields)
		return nil
	}
	st := cl.statements[name]
	if st == nil {
		return faultf(codeNoStatement, "prepared statement %q does not exist", name)
	}
	cl.out.Write(wire.AppendTypes(nil, st.types))
	var fields []wire.Field
	if !st.empty {
		fields = described(st.cmd.fields(), nil)
	}
	cl.tellFields(fields)
	return nil
}

func noPortal(name string) *fault { return faultf(codeNoPortal, "portal %q does not exist", name) }

func (cl *Client) tellFields(fields []wire.Field) {
	if len(fields) == 0 {
		cl.out.Write(wire.Frame(nil, wire.NoData))
		return
	}
	cl.out.Write(wire.AppendFields(nil, fields))
}

func (cl *Client) execute(ctx context.Context, body []byte) error {
	name, rest, ok := wire.CString(body)
	if !ok || len(rest) != 4 {
		return malformed()
	}
	p := cl.portals[string(name)]
	switch {
	case p == nil:
		return noPortal(string(name))
	case p.empty:
		cl.out.Write(wire.Frame(nil, wire.EmptyQuery))
		return nil
	case p.sent && len(p.fields) == 0:
		return faultf(codePortalRun, "portal %q cannot be run", name)
	}
	if !p.run {
		var err error
		if p.done, err = cl.carryOut(ctx, &p.cmd); err != nil {
			return err
		}
		p.run = true
	}
	rows := p.done.rows
	// As many as were asked for may be all: PostgreSQL doesn't look, either.
	if most := int(int32(binary.BigEndian.Uint32(rest))); most > 0 && most <= len(rows) {
		p.done.rows = rows[most:]
		if err := cl.rows(rows[:most], p.fields); err != nil {
			return err
		}
		cl.out.Write(wire.Frame(nil, wire.PortalSuspended))
		return nil
	}
	p.done.rows, p.sent = nil, true
	if err := cl.rows(rows, p.fields); err != nil {
		return err
	}
	cl.out.Write(wire.AppendTag(nil, p.done.tag))
	return nil
}

func (cl *Client) close(body []byte) error {
	kind, name, err := named(body)
	if err != nil {
		return err
	}
	if kind == 'S' {
		delete(cl.statements, name)
	} else {
		delete(cl.portals, name)
	}
	cl.out.Write(wire.Frame(nil, wire.CloseComplete))
	return nil
}

// deallocate drops a prepared statement, or all.
func (cl *Client) deallocate(name operand) error {
	switch {
	case !name.given:
		clear(cl.statements)
	case cl.statements[name.text] == nil:
		return faultf(codeNoStatement, "prepared statement %q does not exist", name.text)
	default:
		delete(cl.statements, name.text)
	}
	return nil
}
