package sqlrewrite

import (
	"fmt"
	"strconv"
	"strings"
)

// A Param is a bound parameter that gives an argument of set_config.
type Param struct {
	Number int // from 1; 0: the argument is none
	// Type is what the text makes of a parameter that its Parse gives no type.
	Type ParamType
	// Whole: a cast makes a whole number of it on its way to text.
	Whole bool
}

// A ParamType says how the value of a parameter is to be read.
type ParamType uint8

const (
	// ParamText: its characters, in both formats.
	ParamText ParamType = iota
	// ParamInteger: a whole number of 2, 4 or 8 bytes.
	ParamInteger
	// ParamBool: true or false.
	ParamBool
)

func (t ParamType) String() string {
	switch t {
	case ParamText:
		return "text"
	case ParamInteger:
		return "integer"
	case ParamBool:
		return "bool"
	}
	return fmt.Sprintf("parameter type %d", uint8(t))
}

// Bound are the arguments of a set_config that a Bind gives.
type Bound struct{ Name, Value, Local Param }

// An Argument is the value of a parameter.
type Argument struct {
	Text  string // in text format
	Null  bool
	Whole bool // it is read as a whole number, and may be spelled otherwise after that
}

// Resolve returns what a setting is with the parameters that get returns, which
// says false where it can't tell a value. It reports false for one that carries
// no tag.
func (s Setting) Resolve(get func(Param) (Argument, bool)) (Setting, bool) {
	b := s.Bound
	if s.Call.IsBound() {
		if s.Call = s.Call.Resolve(get); s.Call == nil {
			s.Kind = Unknown
		}
		return s, true
	}
	if b == (Bound{}) {
		return s, true
	}
	s.Bound = Bound{}
	if b.Name.Number > 0 {
		name, ok := get(b.Name)
		if !ok || name.Null {
			return Setting{Kind: Unknown}, true
		}
		s.Name = strings.ToLower(name.Text)
	}
	if !carriesTag(s.Name) {
		return s, false
	}
	unknown := Setting{Kind: Unknown, Name: s.Name}
	if b.Local.Number > 0 {
		local, ok := get(b.Local)
		if !ok {
			return unknown, true
		}
		if s.Local, ok = isTrue(local.Text); !ok && !local.Null {
			return unknown, true
		}
	}
	if b.Value.Number == 0 {
		return s, true
	}
	value, ok := get(b.Value)
	switch {
	case !ok, !value.Null && (value.Whole || b.Value.Whole) && !plainNumber(value.Text):
		unknown.Local = s.Local
		return unknown, true
	case value.Null:
		s.Kind = Reset
	default:
		s.Kind, s.Value = Set, value.Text
	}
	return s, true
}

// isTrue reads a boolean as PostgreSQL's input function does, but for spaces
// around it and the words' beginnings.
func isTrue(text string) (value, ok bool) {
	switch strings.ToLower(text) {
	case "t", "true", "y", "yes", "on", "1":
		return true, true
	case "f", "false", "n", "no", "off", "0":
		return false, true
	}
	return false, false
}

// plainNumber reports whether a cast to a whole number and back gives the same
// text.
func plainNumber(text string) bool {
	n, err := strconv.ParseInt(text, 10, 64)
	return err == nil && strconv.FormatInt(n, 10) == text
}

// isParam reports whether a parameter follows, perhaps in a CAST.
func (p *settingParser) isParam() bool { return p.tok.kind == kindParam || p.is("cast") }

// param reads a parameter and its casts.
func (p *settingParser) param(of ParamType) (Param, bool) {
	call := p.accept("cast")
	if call && !p.accept("(") || p.tok.kind != kindParam {
		return Param{}, false
	}
	n, err := strconv.Atoi(string(p.raw()[1:]))
	p.take()
	param, typed := Param{Number: n, Type: of}, false
	for p.accept("::") || call && p.accept("as") {
		t, ok := p.castType()
		if !ok || (t == ParamBool) != (of == ParamBool) {
			return param, false
		}
		if !typed {
			param.Type, typed = t, true
		}
		param.Whole = param.Whole || t == ParamInteger
		if call && p.accept(")") {
			call = false
		}
	}
	return param, err == nil && n > 0 && !call
}

// castType reads the name of a type that keeps a key or a token as it is.
func (p *settingParser) castType() (ParamType, bool) {
	if p.accept("pg_catalog") && !p.accept(".") {
		return 0, false
	}
	for _, t := range [...]struct {
		name string
		is   ParamType
	}{
		{"text", ParamText}, {"varchar", ParamText},
		{"bigint", ParamInteger}, {"int8", ParamInteger}, {"integer", ParamInteger}, {"int", ParamInteger}, {"int4", ParamInteger},
		{"smallint", ParamInteger}, {"int2", ParamInteger},
		{"boolean", ParamBool}, {"bool", ParamBool},
	} {
		if p.accept(t.name) {
			return t.is, !p.is("(")
		}
	}
	return 0, false
}
