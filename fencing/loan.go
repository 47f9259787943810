package fencing

import (
	"slices"
	"time"
)

// A Loan is a lock that a proxy has taken for a session which asked for it in
// SQL. Nobody renews it but the session, by asking again.
type Loan struct {
	Key     string
	Token   Token
	LockKey string // the holder's own key in etcd
	Lease   int64  // the lease ID; it is no token
	TTL     time.Duration
	Until   time.Time // up to when the lock is known to be held
}

// What a session hears that asks for a lock which it doesn't get. The codes and
// their names are PostgreSQL's own (errcodes.txt), for drivers and frameworks
// know them.
const (
	// CodeLockTaken: somebody else holds the lock.
	CodeLockTaken Code = "55P03"
	// CodeBadArgument: a key or a time that no lock can have.
	CodeBadArgument Code = "22023"
	// CodeInBlock: locks are neither taken nor given back inside a transaction.
	CodeInBlock Code = "25001"
	// CodeHeldAlready: by the session that asks for it.
	CodeHeldAlready Code = "55006"
	// CodeNotHeld: by the session that wants to renew it.
	CodeNotHeld Code = "55000"
	// CodeNotAllowed: the proxy takes no locks for its sessions.
	CodeNotAllowed Code = "42501"
	// CodeTooManyLocks: the session holds as many as it may.
	CodeTooManyLocks Code = "53400"
)

// LoanCodes returns those of who asks for locks.
func LoanCodes() []Code {
	return []Code{CodeLockTaken, CodeBadArgument, CodeInBlock, CodeHeldAlready, CodeNotHeld, CodeNotAllowed, CodeTooManyLocks}
}

// AboutLocks reports whether c is one of LoanCodes.
func (c Code) AboutLocks() bool { return slices.Contains(LoanCodes(), c) }
