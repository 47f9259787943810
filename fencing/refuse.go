package fencing

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// claimSignature names fence.claim as regprocedure reads it.
const claimSignature = "fence.claim(text, bigint, text, text, bigint, integer, text)"

// claimFunctions are what a role needs EXECUTE on to claim without owning the
// schema.
var claimFunctions = []string{claimSignature, "fence.accepted(text)", "fence.current_lineage()", "fence.version()"}

func grantClaims(role string) string {
	return "GRANT EXECUTE ON FUNCTION " + strings.Join(claimFunctions, ", ") + " TO " + role
}

// SQLSTATEs that a claim meets.
const (
	codeDeadlock    = "40P01"
	codeOvertaken   = "40001" // of fence.claim
	codeLockTimeout = "55P03"
	codeCanceled    = "57014" // by statement_timeout, here
	codeReadOnly    = "25006"
	codeDenied      = "42501"
	codeNoSchema    = "3F000"
	codeNoFunction  = "42883"
	codeNoTable     = "42P01"
	codeNoColumn    = "42703"
)

// timedOut answers a claim that could not be finished in time.
func (c *Claimer) timedOut(database string, p Pair, w *watch, err error) *Error {
	refusal := Refuse(CodeClaimTimeout, "%s token %d could not be claimed within %s", p.Key, p.Token, c.times().ClaimTimeout).Because(err)
	if w.pool != nil {
		return refusal.With(w.detail(), w.hint(pgx.Identifier{c.Store.config.ConnConfig.User}.Sanitize()))
	}
	if full, most := c.Store.claimsFull(database); full {
		return refusal.With(fmt.Sprintf("All %d claim connections to database %s are taken by claims that wait.", most, database), "Retry.")
	}
	return c.Store.refusal(database, p, err)
}

// stale is LF001, in the words of fence.check.
func stale(p Pair, m Mark) *Error {
	return Refuse(CodeStale, "%s token %d was superseded by %d", p.Key, p.Token, m.Token).With(
		fmt.Sprintf("Key %s, presented token %d, accepted token %d since %s by lock key %s.",
			p.Key, p.Token, m.Token, m.ClaimedAt.UTC().Format("2006-01-02T15:04:05.000Z"), m.LockKey),
		"Stop: another holder has this lock. Acquire it again and use the new token.")
}

// lineage is LF006.
func lineage(p Pair, format string, args ...any) *Error {
	return Refuse(CodeLineage, "%s token %d: "+format, append([]any{p.Key, p.Token}, args...)...).With(
		"etcd was restored from an older backup or replaced, so its revisions and the tokens accepted so far can't be compared.",
		"Every new claim in this database is refused until an operator has looked at etcd. If it was replaced for good, run fenceproxy adopt-lineage; \"When etcd is replaced\" in fenceproxy's README says what to do before.")
}

// NotInstalled says whether err tells that a database has no schema fence.
func NotInstalled(err error) bool { return notInstalled(err) }

func notInstalled(err error) bool {
	return hasCode(err, codeNoSchema, codeNoFunction, codeNoTable, codeNoColumn)
}

// refusal turns what PostgreSQL, or the way to it, answered to a claim into
// what the application is told. Addresses and such stay in the cause.
func (s *Store) refusal(database string, p Pair, err error) *Error {
	var pgErr *pgconn.PgError
	switch said := errors.As(err, &pgErr); {
	case notInstalled(err):
		return Refuse(CodeNotInstalled, "database %s has no schema fence, or an old one", database).
			With("", "Run: "+s.InitCommand(database)).Because(err)
	case hasCode(err, codeDenied):
		return Refuse(CodeUnverified, "%s token %d: the proxy's role may not claim in database %s", p.Key, p.Token, database).
			With(pgErr.Message+".", "Run: "+grantClaims(pgx.Identifier{s.config.ConnConfig.User}.Sanitize())).Because(err)
	case hasCode(err, codeReadOnly):
		return Refuse(CodeUnverified, "%s token %d: PostgreSQL is read-only, so no mark can be raised", p.Key, p.Token).
			With("", "Let the proxy's upstream be the primary, and retry.").Because(err)
	case errors.Is(err, errNotDurable):
		return Refuse(CodeUnverified, "%s token %d: the wait for a synchronous standby was broken off", p.Key, p.Token).
			With("", "Retry.").Because(err)
	case said:
		return Refuse(CodeUnverified, "%s token %d: PostgreSQL refused the claim", p.Key, p.Token).
			With(fmt.Sprintf("%s (%s).", pgErr.Message, pgErr.Code), "Retry.").Because(err)
	default:
		return Refuse(CodeUnverified, "%s token %d: PostgreSQL could not be reached for the claim", p.Key, p.Token).
			With("", "Retry.").Because(err)
	}
}

// hasCode says whether err is PostgreSQL's, with one of codes.
func hasCode(err error, codes ...string) bool {
	var pgErr *pgconn.PgError
	return errors.As(err, &pgErr) && slices.Contains(codes, pgErr.Code)
}
