package sqlrewrite

import (
	"errors"
	"fmt"
	"strings"
)

// Splitting.
var (
	// ErrUnterminated: a string, quoted identifier or comment never ends.
	// PostgreSQL refuses such a text whole, before it runs any of it.
	ErrUnterminated = errors.New("unterminated")
	// ErrUnsafe: U&'…' with standard_conforming_strings off. PostgreSQL refuses
	// such a text whole, too.
	ErrUnsafe = errors.New("unsafe string")
	// ErrUncertain: the text may mean something else to PostgreSQL than it
	// says here. Nothing can be said of what it does.
	ErrUncertain = errors.New("can't be split with certainty")
)

// Options are the settings of the session that change what a text means.
type Options struct {
	// BackslashQuotes: standard_conforming_strings is off, so a backslash
	// escapes in '…' as in E'…'. No statement is a plain read then.
	BackslashQuotes bool
	// UnsafeEncoding: client_encoding is SJIS, SHIFT_JIS_2004, BIG5, GBK,
	// GB18030, UHC or JOHAB, where a byte that looks like ASCII can be half of
	// a character. No statement is a plain read then, and text with a byte
	// above 0x7F in it is ErrUncertain.
	UnsafeEncoding bool
}

// A Class says what a statement is for whoever guards the transaction.
type Class uint8

const (
	// MayWrite: it may write. Whatever isn't known to be something else.
	MayWrite Class = iota
	// Read: nothing in the text can write: SELECT, VALUES, TABLE and WITH of
	// built-in functions only, EXPLAIN without ANALYZE, a cursor or a COPY TO
	// STDOUT over one of them, CLOSE.
	Read
	// Begin: BEGIN, START TRANSACTION.
	Begin
	// Commit: COMMIT, END. COMMIT PREPARED may write instead.
	Commit
	// Rollback: ROLLBACK, ABORT of the whole transaction.
	Rollback
	// RollbackTo: ROLLBACK TO SAVEPOINT.
	RollbackTo
	// Savepoint: SAVEPOINT.
	Savepoint
	// Release: RELEASE SAVEPOINT.
	Release
	// Prepare2PC: PREPARE TRANSACTION.
	Prepare2PC
	// Prepare: PREPARE name AS …, which runs nothing. EXECUTE may write.
	Prepare
	// SetOrShow: SET, RESET, SHOW. SET CONSTRAINTS fires deferred triggers and
	// may write instead.
	SetOrShow
	// Discard: DISCARD, DEALLOCATE.
	Discard
)

func (c Class) String() string {
	switch c {
	case MayWrite:
		return "may write"
	case Read:
		return "read"
	case Begin:
		return "begin"
	case Commit:
		return "commit"
	case Rollback:
		return "rollback"
	case RollbackTo:
		return "rollback to savepoint"
	case Savepoint:
		return "savepoint"
	case Release:
		return "release savepoint"
	case Prepare2PC:
		return "prepare transaction"
	case Prepare:
		return "prepare"
	case SetOrShow:
		return "set or show"
	case Discard:
		return "discard"
	}
	return fmt.Sprintf("class %d", uint8(c))
}

// Flags are what else the text of a statement tells.
type Flags uint16

const (
	// Chain: AND CHAIN, so the next transaction begins at once.
	Chain Flags = 1 << iota
	// NotInBlock: PostgreSQL refuses it inside a transaction block, and so
	// beside any other statement in one Query: VACUUM, CREATE DATABASE,
	// CREATE INDEX CONCURRENTLY, COMMIT PREPARED, DISCARD ALL, …
	NotInBlock
	// NeedsBlock: PostgreSQL refuses it outside a transaction block, or does
	// nothing there but warn, as alone in its Query SET CONSTRAINTS: LOCK,
	// SAVEPOINT, RELEASE, ROLLBACK TO, DECLARE without HOLD.
	NeedsBlock
	// MayCommit: it may end the transaction and begin others: CALL, DO.
	MayCommit
	// CopyIn: COPY … FROM STDIN.
	CopyIn
	// CopyOut: COPY … TO STDOUT.
	CopyOut
	// DropsPrepared: prepared statements go: DISCARD ALL, DEALLOCATE.
	DropsPrepared
	// TouchesTag: it mentions a setting that carries a tag in a way that could
	// change it, or it resets every setting. Settings tells more. What it
	// prepares or defines can change the tag later, unseen.
	TouchesTag
	// Backslash: a '…' string in it holds a backslash, so where the statement
	// ends depends on standard_conforming_strings.
	Backslash
	// MayNotInBlock: it is NotInBlock if what it names has partitions, which
	// only PostgreSQL knows: REINDEX, CLUSTER.
	MayNotInBlock
	// FreeFlag and what is above it are the caller's own to use.
	FreeFlag
)

var flagNames = [...]string{
	"chain", "not in a block", "needs a block", "may commit", "copy in", "copy out",
	"drops prepared statements", "touches the tag", "backslash in a string", "not in a block if partitioned",
}

func (f Flags) String() string {
	var names []string
	for i, name := range flagNames {
		if f&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return strings.Join(names, ", ")
}

// A Statement is one of the statements of a text. Start and End are the bytes
// it takes, without the space, comments and semicolon around it.
type Statement struct {
	Start, End int
	Class      Class
	Flags      Flags
	Why        Why
}

// A Why names what decided a statement's class, and the bytes of the text
// where it stands.
type Why struct {
	Reason     Reason
	Start, End int
}

// A Reason is why a statement has its class.
type Reason uint8

const (
	// ReasonCommand: the command itself.
	ReasonCommand Reason = iota
	// ReasonPlain: nothing in a query can write.
	ReasonPlain
	// ReasonWord: INSERT, UPDATE, DELETE, MERGE or INTO stands in a query.
	ReasonWord
	// ReasonCall: a name before a parenthesis isn't on the list of built-in
	// functions without side effects.
	ReasonCall
	// ReasonLock: FOR UPDATE or FOR SHARE locks rows.
	ReasonLock
	// ReasonHold: a cursor WITH HOLD runs its query at COMMIT.
	ReasonHold
	// ReasonCopy: COPY FROM, and COPY to a file or a program.
	ReasonCopy
	// ReasonOptions: strings may mean something else in this session.
	ReasonOptions
	// ReasonNotRun: the statement is only planned or prepared.
	ReasonNotRun
)

func (r Reason) String() string {
	switch r {
	case ReasonCommand:
		return "the command"
	case ReasonPlain:
		return "nothing in the query can write"
	case ReasonWord:
		return "a word that stands for a write"
	case ReasonCall:
		return "a function that isn't on the list of functions without side effects"
	case ReasonLock:
		return "rows are locked"
	case ReasonHold:
		return "a cursor WITH HOLD runs its query at COMMIT"
	case ReasonCopy:
		return "COPY is not to the client"
	case ReasonOptions:
		return "standard_conforming_strings is off or the client_encoding is unsafe"
	case ReasonNotRun:
		return "the statement is not run"
	}
	return fmt.Sprintf("reason %d", uint8(r))
}
