package sqlrewrite

// seen is a token that was read, with what is known of it.
type seen struct {
	token
	kw     keyword
	clause bool // it closes a parenthesis that an expression may follow
}

// calls looks for function calls: names before a parenthesis that aren't an
// alias, a type, a column list or part of a construct of the grammar.
type calls struct {
	depth      int
	p1, p2, p3 seen // the tokens before
	before     seen // the token before the dotted name that p1 ends
	schema     schema
	bad        seen // the name that add returned false for

	// clauses has a bit for each open parenthesis that an expression may
	// follow: DISTINCT ON (…) and OPERATOR(…). No operand ends there.
	clauses uint64
}

// A schema says what stands before the last dot of a name.
type schema uint8

const (
	schemaNone    schema = iota // no dot
	schemaCatalog               // pg_catalog.
	schemaOther                 // anything else
)

// add takes the next token. It reports false when the token opens the
// arguments of a function that isn't on the list of those without side
// effects.
func (c *calls) add(text []byte, t seen) bool {
	ok := true
	switch t.kind {
	case kindOpen:
		if ok = c.opens(text); !ok {
			c.bad = c.p1
		}
		c.open()
	case kindClose:
		t.clause = c.close()
	case kindDot:
		c.qualify(text)
	case kindWord, kindQuoted, kindUnicodeQuoted:
		if c.p1.kind != kindDot {
			c.before, c.schema = c.p1, schemaNone
		}
	}
	c.p1, c.p2, c.p3 = t, c.p1, c.p2
	return ok
}

// forget lets the next parenthesis open no call.
func (c *calls) forget() { c.p1 = seen{} }

func (c *calls) open() {
	if c.p1.kw == kwOperator || c.p1.kw == kwOn && c.p2.kw == kwDistinct {
		c.clauses |= 1 << min(c.depth, 63)
	}
	c.depth++
}

// close reports whether the parenthesis is one that an expression may follow.
// Below 63 levels it says so once it was so.
func (c *calls) close() bool {
	c.depth = max(c.depth-1, 0)
	bit := uint64(1) << min(c.depth, 63)
	was := c.clauses&bit != 0
	if c.depth < 63 {
		c.clauses &^= bit
	}
	return was
}

// qualify takes the dot behind p1.
func (c *calls) qualify(text []byte) {
	switch {
	case c.p1.kind == kindWord && c.p2.kind != kindDot && isCatalog(c.p1.in(text)):
		c.schema = schemaCatalog
	case c.p1.kind == kindWord, c.p1.kind == kindQuoted, c.p1.kind == kindUnicodeQuoted:
		c.schema = schemaOther
	default:
		c.before, c.schema = seen{}, schemaOther
	}
}

func isCatalog(word []byte) bool {
	var buf [longestWord]byte
	return string(fold(&buf, word)) == "pg_catalog"
}

// opens reports whether a parenthesis behind p1 may open here.
func (c *calls) opens(text []byte) bool {
	switch c.p1.kind {
	case kindWord, kindQuoted, kindUnicodeQuoted:
	default:
		return true
	}
	if c.before.kind == kindCast || c.before.kw == kwAs || c.before.kw == kwInto {
		return true // the modifier of a type, the columns of an alias or of a target
	}
	if c.schema == schemaOther || c.schema == schemaNone && c.alias(text) {
		return c.schema == schemaNone
	}
	if c.p1.kind != kindWord {
		return false
	}
	var buf [longestWord]byte
	word := fold(&buf, c.p1.in(text))
	return c.schema == schemaNone && construct(word) || withoutSideEffects(word)
}

// alias reports whether p1, a name without a schema, names no function where
// it stands: it names a column list, continues an operand, or is a word of the
// grammar there that could be a function's name elsewhere.
func (c *calls) alias(text []byte) bool {
	if c.before.kind == kindClose && !c.before.clause {
		return true // OVER (, FILTER (, (VALUES …) v(a, b)
	}
	switch c.before.kw {
	case kwWith, kwRecursive, kwOrdinality:
		return true
	case kwTablesample:
		return c.samples(text)
	}
	switch c.p1.kw {
	case kwOperator:
		return true
	case kwBy:
		return c.before.kw == kwGroup || c.before.kw == kwOrder || c.before.kw == kwPartition
	case kwJoin:
		return c.before.kw == kwJoinKind || c.operand(text)
	case kwLike:
		return c.operand(text)
	case kwRollup:
		return c.before.kw == kwBy && c.p3.kw == kwGroup
	case kwSets:
		return c.before.kw == kwGrouping
	case kwMaterialized:
		return c.before.kw == kwNot && c.p3.kw == kwAs
	case kwVarying:
		return c.character(text)
	}
	return false
}

// operand reports whether the token before the name ends an operand.
func (c *calls) operand(text []byte) bool {
	switch c.before.kind {
	case kindQuoted, kindUnicodeQuoted, kindNumber, kindParam:
		return true
	case kindWord:
		var buf [longestWord]byte
		word := fold(&buf, c.before.in(text))
		return len(word) > 0 && !precedesExpression(word)
	}
	return c.before.kind.isString()
}

// character reports whether the token before the name begins CHARACTER VARYING
// and its like.
func (c *calls) character(text []byte) bool {
	var buf [longestWord]byte
	switch string(fold(&buf, c.before.in(text))) {
	case "bit", "char", "character", "nchar":
		return true
	}
	return false
}

// samples knows the sampling methods that are built in.
func (c *calls) samples(text []byte) bool {
	var buf [longestWord]byte
	switch string(fold(&buf, c.p1.in(text))) {
	case "bernoulli", "system":
		return c.p1.kind == kindWord
	}
	return false
}
