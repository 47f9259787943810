package sqlrewrite

// verdict gives the class of a whole statement.
func (c *classifier) verdict() (Class, Flags, Why) {
	because := why(ReasonCommand, c.headAt, c.headAt)
	switch c.phase {
	case phaseQuery:
		return c.queryVerdict()
	case phaseExplain, phaseExplainOpen, phaseExplainOptions:
		return MayWrite, 0, because
	}
	if c.head == kwExplain {
		return Read, 0, why(ReasonNotRun, c.headAt, c.headAt)
	}
	class, flags := c.transactionVerdict()
	if class == MayWrite && flags == 0 {
		class, flags = c.commandVerdict()
	}
	if class == Prepare {
		because.Reason = ReasonNotRun
	}
	return class, flags, because
}

// queryVerdict judges a query and the commands that wrap one.
func (c *classifier) queryVerdict() (Class, Flags, Why) {
	flags := c.found
	switch {
	case c.head == kwDeclare && !c.hold:
		flags |= NeedsBlock
	case c.head == kwCopy && c.found&CopyOut == 0:
		c.spoil(ReasonCopy, c.headAt, c.headAt)
	}
	if c.spoiled {
		return MayWrite, flags, c.why
	}
	return Read, flags, why(ReasonPlain, c.headAt, c.headAt)
}

// transactionVerdict knows the commands that begin, end and mark transactions.
func (c *classifier) transactionVerdict() (Class, Flags) {
	second := c.words[1].kw
	switch c.head {
	case kwBegin:
		return Begin, 0
	case kwStart:
		if second == kwTransaction {
			return Begin, 0
		}
	case kwCommit, kwEnd:
		if second == kwPrepared {
			return MayWrite, NotInBlock
		}
		return Commit, c.found & Chain
	case kwRollback, kwAbort:
		switch {
		case second == kwPrepared:
			return MayWrite, NotInBlock
		case second == kwTo || c.words[2].kw == kwTo:
			return RollbackTo, NeedsBlock
		}
		return Rollback, c.found & Chain
	case kwSavepoint:
		return Savepoint, NeedsBlock
	case kwRelease:
		return Release, NeedsBlock
	case kwPrepare:
		if second == kwTransaction && c.words[2].kind.isString() {
			return Prepare2PC, 0
		}
		return Prepare, 0
	}
	return MayWrite, 0
}

// commandVerdict knows the other commands that aren't queries.
func (c *classifier) commandVerdict() (Class, Flags) {
	second := c.words[1].kw
	switch c.head {
	case kwSet:
		if second == kwConstraints {
			return MayWrite, NeedsBlock
		}
		return SetOrShow, 0
	case kwReset:
		if second == kwAll {
			return SetOrShow, TouchesTag
		}
		return SetOrShow, 0
	case kwShow:
		return SetOrShow, 0
	case kwDiscard:
		if second == kwAll {
			return Discard, DropsPrepared | TouchesTag | NotInBlock
		}
		return Discard, 0
	case kwDeallocate:
		return Discard, DropsPrepared
	case kwClose:
		return Read, 0
	case kwLock:
		return MayWrite, NeedsBlock
	case kwCall, kwDo:
		return MayWrite, MayCommit
	case kwVacuum:
		return MayWrite, NotInBlock
	case kwCluster:
		return MayWrite, partitionFlags(c.clusterFlags())
	case kwReindex:
		return MayWrite, partitionFlags(c.found & NotInBlock)
	case kwCreate, kwDrop, kwAlter:
		return MayWrite, c.found&NotInBlock | c.definitionFlags()
	}
	return MayWrite, 0
}

// partitionFlags adds what partitions may make of a statement to its flags.
func partitionFlags(f Flags) Flags {
	if f&NotInBlock == 0 {
		f |= MayNotInBlock
	}
	return f
}

// clusterFlags: CLUSTER without the name of a table goes through all of them,
// one transaction each.
func (c *classifier) clusterFlags() Flags {
	bare := c.n == 1 || c.n == 2 && c.words[1].kw == kwVerbose || c.last.kind == kindClose
	if bare {
		return NotInBlock
	}
	return 0
}

// definitionFlags knows the objects whose CREATE, DROP or ALTER touches more
// than the database's own tables.
func (c *classifier) definitionFlags() Flags {
	second := c.words[1].kw
	switch c.head {
	case kwCreate, kwDrop:
		switch second {
		case kwDatabase, kwTablespace, kwSubscription:
			return NotInBlock
		}
	case kwAlter:
		if second == kwSystem {
			return NotInBlock
		}
	}
	return 0
}

// isString tells the tokens that the grammar takes for a string constant.
func (k kind) isString() bool {
	switch k {
	case kindString, kindEscapeString, kindUnicodeString, kindDollarString:
		return true
	}
	return false
}
