package sqlrewrite

import (
	"strconv"
	"strings"
)

// A settingParser reads the few statements that set settings in a form whose
// effect the text tells. tok is the token to look at.
type settingParser struct {
	text []byte
	opts Options
	lex  lexer
	tok  token
}

func newSettingParser(text []byte, o Options) *settingParser {
	p := &settingParser{text: text, opts: o, lex: lexer{text: text, opts: o}}
	p.take()
	return p
}

func (p *settingParser) take() { p.tok = p.lex.next() }

func (p *settingParser) raw() []byte { return p.tok.in(p.text) }

// is reports whether the token is the given word, operator or punctuation.
func (p *settingParser) is(want string) bool {
	switch p.tok.kind {
	case kindWord, kindOperator, kindOpen, kindClose, kindComma, kindDot, kindCast:
		return len(want) == len(p.raw()) && hasFold(p.raw(), want)
	}
	return false
}

// accept takes the token if it is the given one.
func (p *settingParser) accept(want string) bool {
	ok := p.is(want)
	if ok {
		p.take()
	}
	return ok
}

func (p *settingParser) atEnd() bool { return p.tok.kind == kindEnd && p.lex.err == nil }

// name reads the dotted name of a setting. Names of settings have no case.
func (p *settingParser) name() (string, bool) {
	var parts []string
	for {
		part, ok := identValue(p.text, p.tok)
		if !ok {
			return "", false
		}
		parts = append(parts, strings.ToLower(part))
		p.take()
		if !p.accept(".") {
			return strings.Join(parts, "."), true
		}
	}
}

func carriesTag(name string) bool {
	switch name {
	case "fence.key", "fence.token", "fence.tokens":
		return true
	}
	return false
}

// reset reads RESET name and RESET ALL.
func (p *settingParser) reset() []Setting {
	p.take()
	if p.is("all") {
		return []Setting{{Kind: ResetAll}}
	}
	name, ok := p.name()
	switch {
	case !ok:
		return unknown("", false)
	case !carriesTag(name):
		return nil
	}
	return []Setting{{Kind: Reset, Name: name}}
}

// set reads SET [SESSION | LOCAL] name { = | TO } value.
func (p *settingParser) set() []Setting {
	p.take()
	local := p.scope()
	name, ok := p.name()
	switch {
	case !ok:
		return unknown("", local)
	case !carriesTag(name):
		return nil
	case !p.accept("=") && !p.accept("to"):
		return unknown(name, local) // FROM CURRENT
	}
	s := Setting{Kind: Set, Name: name, Local: local}
	if p.accept("default") {
		s.Kind = Reset
	} else {
		s.Value, ok = p.setValue()
	}
	if !ok || !p.atEnd() {
		return unknown(name, local)
	}
	return []Setting{s}
}

// scope takes LOCAL or SESSION, unless it is the name of the setting.
func (p *settingParser) scope() (local bool) {
	local = p.is("local")
	if !local && !p.is("session") {
		return false
	}
	before := *p
	p.take()
	if p.is(".") || p.is("=") || p.is("to") {
		*p = before
		return false
	}
	return local
}

// setValue reads one value of SET, as the grammar's var_value makes text of it.
func (p *settingParser) setValue() (string, bool) {
	sign := ""
	if p.is("+") || p.is("-") {
		sign = string(p.raw())
		p.take()
	}
	t := p.tok
	p.take()
	switch {
	case t.kind == kindNumber:
		return numberValue(sign, string(t.in(p.text)))
	case sign != "":
		return "", false
	case t.kind == kindWord, t.kind == kindQuoted:
		return identValue(p.text, t)
	}
	return stringValue(p.text, t, p.opts)
}

// numberValue writes a number as SET does: an integer of 32 bits in base 10,
// any other number as it stands. Exponents are left to the server.
func numberValue(sign, digits string) (string, bool) {
	if strings.Trim(digits, "0123456789.") != "" {
		return "", false
	}
	if n, err := strconv.ParseInt(digits, 10, 32); err == nil {
		if sign == "-" {
			n = -n
		}
		return strconv.FormatInt(n, 10), true
	}
	return strings.TrimPrefix(sign, "+") + digits, true
}

// selects reads a SELECT of one LockCall, or SELECT set_config(…), set_config(…)
// and nothing else.
func (p *settingParser) selects() []Setting {
	p.take()
	before := *p
	if call := p.lockCall(); call != nil {
		return []Setting{{Kind: Lock, Name: "fence.tokens", Call: call}}
	}
	*p = before
	var all []Setting
	for {
		s, ok := p.config()
		if !ok {
			return unknown("", false)
		}
		if carriesTag(s.Name) || s.Bound.Name.Number > 0 {
			all = append(all, s)
		}
		p.alias()
		if p.atEnd() {
			return all
		}
		if !p.accept(",") {
			return unknown("", false)
		}
	}
}

// config reads set_config('name', value, is_local), where each argument may be a
// parameter.
func (p *settingParser) config() (Setting, bool) {
	if p.accept("pg_catalog") && !p.accept(".") {
		return Setting{}, false
	}
	if !p.accept("set_config") || !p.accept("(") {
		return Setting{}, false
	}
	s := Setting{Kind: Set}
	if !p.configName(&s) || !p.accept(",") {
		return s, false
	}
	if !p.configValue(&s) || !p.accept(",") {
		return s, false
	}
	if !p.configLocal(&s) || !p.accept(")") {
		return s, false
	}
	if s.Bound != (Bound{}) {
		s.Kind = Unknown
	}
	return s, true
}

func (p *settingParser) configName(s *Setting) (ok bool) {
	if p.isParam() {
		s.Bound.Name, ok = p.param(ParamText)
		return ok
	}
	name, ok := p.constant()
	s.Name = strings.ToLower(name)
	return ok
}

// configValue reads a constant, NULL, which resets, or a parameter.
func (p *settingParser) configValue(s *Setting) (ok bool) {
	switch {
	case p.accept("null"):
		s.Kind = Reset
		return true
	case p.isParam():
		s.Bound.Value, ok = p.param(ParamText)
		return ok
	}
	s.Value, ok = p.constant()
	return ok
}

// configLocal reads true, false, a constant that is one of them, or a
// parameter.
func (p *settingParser) configLocal(s *Setting) (ok bool) {
	switch {
	case p.accept("true"):
		s.Local = true
		return true
	case p.accept("false"):
		return true
	case p.isParam():
		s.Bound.Local, ok = p.param(ParamBool)
		return ok
	}
	word, ok := p.constant()
	if !ok {
		return false
	}
	s.Local, ok = isTrue(word)
	return ok
}

// constant reads a string constant, with or without a cast to text.
func (p *settingParser) constant() (string, bool) {
	v, ok := stringValue(p.text, p.tok, p.opts)
	p.take()
	return v, ok && p.textCast()
}

func (p *settingParser) textCast() bool {
	return !p.accept("::") || p.accept("text")
}

// alias takes the name of an output column.
func (p *settingParser) alias() {
	as := p.accept("as")
	if p.tok.kind == kindWord || as && p.tok.kind == kindQuoted {
		p.take()
	}
}
