package sqlrewrite

// A phase says what a classifier makes of the next token.
type phase uint8

const (
	// phaseHead: the statement's first word is still to come.
	phaseHead phase = iota
	// phaseQuery: a query, or what wraps one; each token is looked at.
	phaseQuery
	// phaseExplain: behind EXPLAIN, its options or its statement follow.
	phaseExplain
	// phaseExplainOpen: behind EXPLAIN (, an option or a query follows.
	phaseExplainOpen
	// phaseExplainOptions: in the parentheses of EXPLAIN's options.
	phaseExplainOptions
	// phaseCommand: a command known by its first words.
	phaseCommand
)

// A classifier judges one statement, token by token.
type classifier struct {
	phase   phase
	head    keyword
	headAt  seen
	lead    int       // parentheses before the head
	words   [4]seen   // the first tokens, from the head on
	n       int8      // how many of words are filled
	found   Flags     // that single tokens tell
	analyze bool      // EXPLAIN ANALYZE
	hold    bool      // WITH HOLD
	last    seen      // the token before
	spoiled bool      // the query may write
	why     Why       // what spoiled it
	copying copyState // COPY only
	calls   calls
}

// A copyState is how much of COPY has passed.
type copyState uint8

const (
	copySource copyState = iota // the table or the query
	copyFrom                    // behind FROM
	copyTo                      // behind TO
	copyRest                    // the options
)

func (c *classifier) add(text []byte, t token, kw keyword) {
	now := seen{token: t, kw: kw}
	if c.phase != phaseHead && int(c.n) < len(c.words) {
		c.words[c.n] = now
		c.n++
	}
	switch c.phase {
	case phaseHead:
		c.begin(text, now)
	case phaseQuery:
		c.query(text, now)
	case phaseExplain, phaseExplainOpen, phaseExplainOptions:
		c.explain(text, now)
	case phaseCommand:
		c.command(now)
	}
	c.last = now
}

// done reports whether the rest of the statement changes nothing. It is so for
// the commands that most writes are.
func (c *classifier) done() bool {
	if c.phase != phaseCommand {
		return false
	}
	switch c.head {
	case kwInsert, kwUpdate, kwDelete, kwMerge:
		return true
	}
	return false
}

// begin looks at the first word of a statement, or of what EXPLAIN ANALYZE
// runs.
func (c *classifier) begin(text []byte, t seen) {
	if t.kind == kindOpen {
		c.headAt = t // until the first word is found
		c.lead++
		c.calls.add(text, t)
		return
	}
	c.head, c.headAt = t.kw, t
	c.words[0], c.n = t, 1
	c.phase = phaseCommand
	switch {
	case t.kw == kwSelect, t.kw == kwValues, t.kw == kwTable, t.kw == kwWith:
		c.phase = phaseQuery
	case c.lead > 0:
		// Only a query may stand in parentheses.
		c.head = kwNone
	case t.kw == kwDeclare, t.kw == kwCopy:
		c.phase = phaseQuery
	case t.kw == kwExplain:
		c.phase = phaseExplain
	}
	c.calls.add(text, t)
}

// query looks for anything in a query that can write.
func (c *classifier) query(text []byte, t seen) {
	switch t.kw {
	case kwInsert, kwUpdate, kwDelete, kwMerge, kwInto:
		c.spoil(ReasonWord, t, t)
	case kwShare, kwKey, kwNo:
		if c.last.kw == kwFor {
			c.spoil(ReasonLock, c.last, t)
		}
	case kwHold:
		if c.last.kw == kwWith && c.head == kwDeclare {
			c.hold = true
			c.spoil(ReasonHold, c.last, t)
		}
	}
	if c.head == kwCopy && c.calls.depth == 0 && t.kind != kindClose {
		c.copy(t)
		if t.kind == kindOpen {
			c.calls.forget()
		}
	}
	if !c.calls.add(text, t) {
		c.spoil(ReasonCall, c.calls.bad, c.calls.bad)
	}
}

// copy follows COPY name [(columns)] or COPY (query), FROM or TO, and where.
func (c *classifier) copy(t seen) {
	switch {
	case c.copying == copySource && t.kw == kwFrom && c.last.kind != kindDot:
		c.copying = copyFrom
		c.spoil(ReasonCopy, t, t)
	case c.copying == copySource && t.kw == kwTo && c.last.kind != kindDot:
		c.copying = copyTo
	case c.copying == copyFrom:
		if t.kw == kwStdio {
			c.found |= CopyIn
		}
		c.copying = copyRest
	case c.copying == copyTo:
		if t.kw == kwStdio {
			c.found |= CopyOut
		} else {
			c.spoil(ReasonCopy, t, t)
		}
		c.copying = copyRest
	}
}

// explain finds out whether EXPLAIN runs its statement. Options may be spelled
// as quoted identifiers, so any of those counts as ANALYZE.
func (c *classifier) explain(text []byte, t seen) {
	switch c.phase {
	case phaseExplain:
		switch {
		case t.kw == kwAnalyze:
			c.analyze = true
			return
		case t.kw == kwVerbose:
			return
		case t.kind == kindOpen && c.last.kw == kwExplain:
			c.phase = phaseExplainOpen
			return
		}
	case phaseExplainOpen:
		switch t.kw {
		case kwSelect, kwValues, kwTable, kwWith:
		default:
			if t.kind != kindOpen {
				c.phase = phaseExplainOptions
				c.explain(text, t)
				return
			}
		}
	case phaseExplainOptions:
		switch {
		case t.kw == kwAnalyze, t.kind == kindQuoted, t.kind == kindUnicodeQuoted:
			c.analyze = true
		case t.kind == kindClose:
			c.phase = phaseExplain
		}
		return
	}
	if !c.analyze {
		c.phase = phaseCommand
		return
	}
	c.explained(text, t)
}

// explained goes on with the statement that EXPLAIN ANALYZE runs.
func (c *classifier) explained(text []byte, t seen) {
	c.phase = phaseHead
	c.calls = calls{}
	c.begin(text, t)
	if c.phase == phaseExplain || c.head == kwDeclare || c.head == kwCopy {
		c.phase, c.head = phaseCommand, kwNone
	}
	if c.phase == phaseCommand {
		c.head = kwNone
	}
}

// command looks for the words that decide the flags of other commands.
func (c *classifier) command(t seen) {
	switch t.kw {
	case kwChain:
		if c.last.kw == kwAnd {
			c.found |= Chain
		}
	case kwConcurrently:
		switch c.head {
		case kwCreate, kwDrop, kwAlter, kwReindex:
			c.found |= NotInBlock
		}
	case kwDatabase, kwSchema, kwSystem:
		if c.head == kwReindex && (c.last.kw == kwReindex || c.last.kind == kindClose) {
			c.found |= NotInBlock
		}
	case kwTablespace:
		if c.last.kw == kwSet && c.head == kwAlter && c.words[1].kw == kwDatabase {
			c.found |= NotInBlock
		}
	case kwPublication, kwRefresh:
		if c.head == kwAlter && c.words[1].kw == kwSubscription {
			c.found |= NotInBlock
		}
	}
}

// spoil remembers the first reason why a query may write, from token to token.
func (c *classifier) spoil(r Reason, from, to seen) {
	if !c.spoiled {
		c.spoiled = true
		c.why = why(r, from, to)
	}
}

func why(r Reason, from, to seen) Why {
	return Why{r, int(from.start), int(to.end)}
}
