package proxy

import (
	"strings"

	"github.com/fenceproxy/fenceproxy/fencing"
	"github.com/fenceproxy/fenceproxy/proxy/queue"
	"github.com/fenceproxy/fenceproxy/proxy/wire"
	"github.com/fenceproxy/fenceproxy/sqlrewrite"
)

// What PostgreSQL says to a statement in a block that it can't run in, to one
// that tries to end it from inside, and to what it can't parse (errcodes.txt).
const (
	activeTransaction  = "25001"
	invalidTermination = "2D000"
	syntaxError        = "42601"
	noTransaction      = "25P01"
)

// An alone says what a statement is that would be a transaction by itself but
// for the check beside it.
type alone uint8

const (
	// aloneNot: others stand beside it, or a block is open.
	aloneNot alone = iota
	// alonePlain: a statement of no other kind.
	alonePlain
	// alonePartitions: one that needs a transaction for each partition.
	alonePartitions
	// aloneCommits: one that may end the transaction.
	aloneCommits
)

func aloneAs(flags sqlrewrite.Flags) alone {
	switch {
	case flags&sqlrewrite.MayCommit != 0:
		return aloneCommits
	case flags&sqlrewrite.MayNotInBlock != 0:
		return alonePartitions
	}
	return alonePlain
}

// blockedBy refuses a statement that failed only because a check stands beside
// it, which makes a transaction block of what would have been a transaction by
// itself. nil is any other error: one with a context was raised by a function,
// which would have raised it without the check too.
func blockedBy(a alone, r wire.Report) *fencing.Error {
	blocked := false
	switch r.Code {
	case activeTransaction:
		blocked = a == alonePartitions || a != aloneNot && r.Where == ""
	case invalidTermination:
		blocked = a == aloneCommits
	}
	if !blocked {
		return nil
	}
	return fencing.Refuse(fencing.CodeNotFenceable, "the statement can't run in a transaction, so no check can be made atomic with it").With(
		"PostgreSQL says: "+r.Message+".", "Run it in an untagged session.")
}

// notBegin refuses a BEGIN that was none.
func notBegin() *fencing.Error {
	return fencing.Refuse(fencing.CodeNotFenceable, "the prepared statement is no longer the BEGIN that was prepared under its name").With(
		"", "Code has given the name away by DEALLOCATE and PREPARE: prepare the statement again.")
}

// asAtEnd words a syntax error at the ";" that separates the client's text from
// a check as the one that it is without: the text ends too early. PostgreSQL's
// own words are known in English; in another language they stay, and only the
// position, which is mapped elsewhere, is that of the end.
func asAtEnd(e *queue.Entry, r wire.Report, body []byte) []byte {
	if e.Separator == 0 || r.Position != e.Separator || r.Code != syntaxError {
		return body
	}
	what, found := strings.CutSuffix(r.Message, ` at or near ";"`)
	if !found {
		return body
	}
	return wire.WithMessage(nil, body, what+" at end of input")[wire.HeaderLen:]
}
