package sqlrewrite

import "fmt"

// A SettingKind says what a statement does to a setting.
type SettingKind uint8

const (
	// Unknown: the text doesn't tell; where Name is empty, it doesn't tell
	// which settings either.
	Unknown SettingKind = iota
	// Set: it gets a value.
	Set
	// Reset: it gets back the value that the session began with.
	Reset
	// ResetAll: every setting gets back the value that the session began with.
	ResetAll
	// Lock: the statement is a Call, and the lock that it takes or gives back
	// changes the setting.
	Lock
)

func (k SettingKind) String() string {
	switch k {
	case Unknown:
		return "unknown"
	case Set:
		return "set"
	case Reset:
		return "reset"
	case ResetAll:
		return "reset all"
	case Lock:
		return "lock"
	}
	return fmt.Sprintf("setting kind %d", uint8(k))
}

// A Setting is one change of a setting that carries a tag.
type Setting struct {
	Kind  SettingKind
	Name  string // fence.key, fence.token or fence.tokens; "" for all, any or one that is bound
	Value string // as current_setting returns it; for Set only
	Local bool   // to the end of the transaction only
	Bound Bound  // what only a Bind tells; Kind is Unknown then, and Resolve tells

	Call *LockCall // for Lock only
}

// Settings tells what a statement of text that has TouchesTag does to the
// settings that carry a tag, in order. It returns nothing where the statement
// only mentions one. o are the options that Split had.
func Settings(text []byte, s Statement, o Options) []Setting {
	if s.Flags&TouchesTag == 0 {
		return nil
	}
	p := newSettingParser(text[s.Start:s.End], o)
	switch {
	case s.Class == Discard && p.is("discard"):
		return []Setting{{Kind: ResetAll}}
	case s.Class == SetOrShow && p.is("reset"):
		return p.reset()
	case s.Class == SetOrShow && p.is("set"):
		return p.set()
	case s.Class != MayWrite, harmless(p.text, o):
		return nil
	case p.is("select"):
		return p.selects()
	}
	return unknown("", false)
}

func unknown(name string, local bool) []Setting {
	return []Setting{{Kind: Unknown, Name: name, Local: local}}
}

// harmless tells the statements that can mention a setting without changing it
// now: those that only define something, and those whose functions are all
// known. Writing to the view pg_settings sets.
func harmless(text []byte, o Options) bool {
	lex := lexer{text: text, opts: o}
	first := lex.next()
	head := kwNone
	if first.kind == kindWord {
		head = keywordOf(first.in(text))
	}
	switch head {
	case kwSelect, kwWith, kwValues, kwInsert, kwUpdate, kwDelete, kwMerge:
		return !hasWord(text, "pg_settings") && callsKnown(text, o)
	case kwCreate, kwAlter:
		return definesOnly(text, o)
	}
	return hasFold(text, "comment")
}

// callsKnown reports whether every function called is on the list of those
// without side effects.
func callsKnown(text []byte, o Options) bool {
	lex := lexer{text: text, opts: o}
	var c calls
	for {
		t := seen{token: lex.next()}
		switch t.kind {
		case kindEnd:
			return lex.err == nil
		case kindWord:
			t.kw = keywordOf(t.in(text))
		}
		if !c.add(text, t) {
			return false
		}
	}
}

// definesOnly tells CREATE [OR REPLACE] FUNCTION and ALTER of what keeps
// settings for later, which change nothing in this session.
func definesOnly(text []byte, o Options) bool {
	p := newSettingParser(text, o)
	if p.accept("alter") {
		return p.is("role") || p.is("user") || p.is("database") || p.is("system") ||
			p.is("function") || p.is("procedure") || p.is("routine")
	}
	p.accept("create")
	if p.accept("or") {
		p.accept("replace")
	}
	return p.is("function") || p.is("procedure")
}
