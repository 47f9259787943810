package proxy

import (
	"github.com/fenceproxy/fenceproxy/proxy/wire"
	"github.com/fenceproxy/fenceproxy/sqlrewrite"
)

// A block is what the request side knows of the transaction block that its
// next statement will run in.
type block uint8

const (
	// blockNone: no block; a statement is a transaction of its own.
	blockNone block = iota
	// blockOpen: inside BEGIN … COMMIT.
	blockOpen
	// blockFailed: inside a block that only ROLLBACK gets out of.
	blockFailed
	// blockUnknown: replies that decide it are still due.
	blockUnknown
)

var blockNames = [...]string{"none", "open", "failed", "unknown"}

func (b block) String() string { return blockNames[b] }

// blockOf turns the status of a ReadyForQuery into a block.
func blockOf(status byte) block {
	switch status {
	case wire.StatusIdle:
		return blockNone
	case wire.StatusBlock:
		return blockOpen
	case wire.StatusFailed:
		return blockFailed
	}
	return blockUnknown
}

// ends records how transactions ended in a segment, for those who must follow
// what became of a setting.
type ends uint8

const (
	endCommit ends = 1 << iota
	endRollback
	endRollbackTo
)

// blockMatters reports whether a statement can't be followed without knowing
// the block that it runs in.
func blockMatters(class sqlrewrite.Class, flags sqlrewrite.Flags) bool {
	const decides = sqlrewrite.NeedsBlock | sqlrewrite.NotInBlock | sqlrewrite.MayCommit | sqlrewrite.Chain | sqlrewrite.TouchesTag
	return class == sqlrewrite.Commit || class == sqlrewrite.Prepare2PC || flags&decides != 0
}

// configures is a flag of the proxy's own, beside sqlrewrite's: a statement
// that may write does nothing but change settings by name, as a call of
// set_config does.
const configures = sqlrewrite.FreeFlag << 1

// A check is what must be put in front of a statement.
type check uint8

const (
	checkNone check = iota
	// checkEarly: the check whose failure spares the statement.
	checkEarly
	// checkLate: the check, if the transaction has written anything.
	checkLate
	// checkFull: the check of a transaction that may write at its very end, as
	// a cursor WITH HOLD does.
	checkFull
)

// A txn predicts, statement by statement, what the backend will find: in
// which block, and whether a check covers the open transaction. It assumes
// that every statement succeeds; where one fails, the server skips the rest
// of the segment and the next segment starts from what ReadyForQuery said.
type txn struct {
	block block
	// checked: a check runs in the transaction that is open at this point, and
	// nothing after it may have made it void. Must be certain.
	checked bool
	// uncovered: something runs in the open transaction that no check before
	// it covers, so one must come before its end.
	uncovered bool
	// ran: something runs under the present tag that no check before it
	// covers, so one must come before the tag changes.
	ran bool
	// guess: checked, uncovered and ran are only assumed, since replies that
	// tell are still due.
	guess bool
	// spared: nothing that could commit at a Sync has run since a COMMIT or ROLLBACK
	// that is in doubt: it has ended the block, or left it open.
	spared bool
	// held: a check ran at some point of the open transaction, so it may hold
	// a share lock on a mark, and may have begun what only writes at its end.
	held bool
	// ends since the last take.
	ends ends
}

// step takes the next statement and returns the check to put before it.
func (t *txn) step(class sqlrewrite.Class, flags sqlrewrite.Flags) check {
	t.spared = false
	if t.block == blockFailed {
		t.leaveFailed(class, flags)
		return checkNone
	}
	if flags&sqlrewrite.NeedsBlock != 0 && t.block == blockNone {
		t.bound()        // beside others in one text it doesn't fail
		return checkNone // fails by itself, with PostgreSQL's own words
	}
	switch class {
	case sqlrewrite.Read, sqlrewrite.Prepare:
		t.bound()
		return checkNone
	case sqlrewrite.Begin:
		t.block = blockOpen
		return checkNone
	case sqlrewrite.Commit:
		c := checkNone
		if t.uncovered && !t.checked {
			c = t.late()
		}
		t.end(endCommit, flags)
		return c
	case sqlrewrite.Rollback:
		t.end(endRollback, flags)
		return checkNone
	case sqlrewrite.RollbackTo:
		t.backTo()
		return checkNone
	case sqlrewrite.Release:
		// A subtransaction can be read-only, where a check takes no lock, and
		// the transaction that it is released into read-write.
		t.checked, t.uncovered, t.ran, t.guess = false, true, true, false
		return checkNone
	case sqlrewrite.Prepare2PC:
		c := t.mayWrite(flags)
		t.end(endCommit, 0) // what comes next runs in another transaction
		return c
	case sqlrewrite.SetOrShow, sqlrewrite.Discard:
		if flags&sqlrewrite.TouchesTag == 0 {
			return checkNone
		}
		return t.configure()
	}
	if flags&doubtful != 0 {
		t.bound()
		return checkNone
	}
	if flags&configures != 0 {
		c := t.configure()
		t.uncovered = true // a search_path can give set_config another meaning
		return c
	}
	return t.mayWrite(flags)
}

// learn takes the block that was found to be open before the segment, and of
// its transaction whether a check covers it and whether something ran in it
// that none does.
func (t *txn) learn(b block, checked, ran bool) {
	t.block = b
	if t.guess {
		open := b == blockOpen
		t.checked, t.uncovered, t.ran, t.guess = open && checked, open && !checked, open && ran, false
	}
}

// settled takes the block in which a message ended, once its replies are there.
func (t *txn) settled(b block, checked, ran bool) {
	*t = txn{guess: true, held: t.held && b != blockNone}
	t.learn(b, checked, ran)
}

// bound takes what may write unseen: it runs under the check that the
// transaction has had, or must be covered later.
func (t *txn) bound() {
	t.spared = false
	if !t.checked {
		t.uncovered, t.ran, t.guess = true, true, false
	}
}

// doubt takes that the statement which step has taken may in truth have been
// another that reads or writes. within is the block that it ran in.
func (t *txn) doubt(class sqlrewrite.Class, flags sqlrewrite.Flags, within block) {
	if t.checked || within == blockFailed || confirmed(class, within) {
		return
	}
	t.uncovered, t.ran, t.guess = true, t.ran || !precedes(class, flags), false
	t.spared = within == blockOpen && (class == sqlrewrite.Commit || class == sqlrewrite.Rollback)
}

// precedes reports whether a statement in doubt may come before a SET TRANSACTION,
// which no query may precede: so that a change of the tag brings no check.
func precedes(class sqlrewrite.Class, flags sqlrewrite.Flags) bool {
	return class == sqlrewrite.SetOrShow && flags&sqlrewrite.TouchesTag != 0
}

// confirmed reports whether it is confirmed at once that a BEGIN in doubt is one.
func confirmed(class sqlrewrite.Class, within block) bool {
	return class == sqlrewrite.Begin && within != blockOpen && within != blockFailed
}

// late returns the check at the end of a transaction.
func (t *txn) late() check {
	if t.held {
		return checkFull
	}
	return checkLate
}

// configure takes a change of the tag. What ran under the tag before must
// have been checked under it; what the transaction has written is checked
// under the new one too, before its end.
func (t *txn) configure() check {
	c := checkNone
	if t.ran && !t.checked {
		c, t.held = checkLate, true
	}
	t.uncovered = t.uncovered || t.checked || t.block != blockNone
	t.checked, t.ran, t.guess = false, false, false
	return c
}

// backTo takes a ROLLBACK TO: locks that were taken after the savepoint are
// gone, and settings are what they were at it.
func (t *txn) backTo() {
	t.checked, t.uncovered, t.ran, t.guess = false, true, true, false
	t.ends |= endRollbackTo
}

// mayWrite asks for an early check unless one covers the statement already.
func (t *txn) mayWrite(flags sqlrewrite.Flags) check {
	c := checkNone
	if !t.checked {
		t.checked, t.uncovered, t.ran, t.guess, t.held = true, false, false, false, true
		c = checkEarly
	}
	if flags&sqlrewrite.TouchesTag != 0 {
		t.checked, t.uncovered, t.ran = false, true, true
	}
	return c
}

// unknown takes a statement whose text the proxy never saw or can't be sure
// of: it may write, and may end a transaction.
func (t *txn) unknown() check {
	c := checkEarly
	if t.block == blockFailed {
		c = checkNone
	}
	*t = txn{block: blockUnknown, uncovered: true, ran: true, held: true, ends: t.ends | endRollback | endCommit}
	return c
}

// leaveFailed follows the statements that a failed block listens to.
func (t *txn) leaveFailed(class sqlrewrite.Class, flags sqlrewrite.Flags) {
	switch class {
	case sqlrewrite.Commit, sqlrewrite.Rollback, sqlrewrite.Prepare2PC:
		t.end(endRollback, flags)
	case sqlrewrite.RollbackTo:
		t.block = blockOpen
		t.backTo()
	}
}

func (t *txn) end(how ends, flags sqlrewrite.Flags) {
	next := txn{ends: t.ends | how}
	if flags&sqlrewrite.Chain != 0 && t.block != blockNone {
		next.block = t.block
		if next.block == blockFailed {
			next.block = blockOpen
		}
	}
	*t = next
}

// needsLate reports whether a check must come before the end of the implicit
// transaction that is open.
func (t *txn) needsLate() bool {
	return (t.block == blockNone || t.block == blockUnknown) && t.uncovered && !t.checked && !t.spared
}

// sync takes the end of a segment: an implicit transaction ends there. It
// returns how transactions ended in the segment.
func (t *txn) sync() ends {
	e := t.ends
	t.ends = 0
	switch t.block {
	case blockNone:
		*t = txn{}
	case blockUnknown:
		*t = txn{block: t.block, held: t.held}
	}
	return e
}
