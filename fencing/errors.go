package fencing

import "fmt"

// A Code is the SQLSTATE that a refusal reaches the application with. The
// class LF is one that the SQL standard leaves to implementations, so no
// framework takes a refusal for a serialization failure and retries it.
type Code string

// The refusals. Each ends a session's statement, never the whole proxy.
const (
	// CodeStale: a higher token was accepted for the key.
	CodeStale Code = "LF001"
	// CodeNotHolder: etcd does not know the token as the current holder's.
	CodeNotHolder Code = "LF002"
	// CodeUnverified: etcd could not be asked, so a new claim fails.
	CodeUnverified Code = "LF003"
	// CodeTokenRequired: a write without a tag where one is required.
	CodeTokenRequired Code = "LF004"
	// CodeEvicted: the transaction was ended by a higher claim.
	CodeEvicted Code = "LF005"
	// CodeLineage: etcd's history went backwards or is another cluster's.
	CodeLineage Code = "LF006"
	// CodeNotFenceable: the statement can't be made atomic with the check.
	CodeNotFenceable Code = "LF007"
	// CodeClaimTimeout: stale work could not be ended in time.
	CodeClaimTimeout Code = "LF008"
	// CodeMalformedTag: a tag that can't be parsed or is incomplete.
	CodeMalformedTag Code = "LF009"
	// CodeNotInstalled: the database has no schema fence (SQLSTATE
	// invalid_schema_name, which is PostgreSQL's own).
	CodeNotInstalled Code = "3F000"
)

// Codes returns those of refusals.
func Codes() []Code {
	return []Code{
		CodeStale, CodeNotHolder, CodeUnverified, CodeTokenRequired, CodeEvicted, CodeLineage, CodeNotFenceable,
		CodeClaimTimeout, CodeMalformedTag, CodeNotInstalled,
	}
}

var codeNames = map[Code]string{
	CodeStale:         "stale_token",
	CodeNotHolder:     "not_holder",
	CodeUnverified:    "unverified",
	CodeTokenRequired: "token_required",
	CodeEvicted:       "evicted",
	CodeLineage:       "lineage",
	CodeNotFenceable:  "not_fenceable",
	CodeClaimTimeout:  "claim_timeout",
	CodeMalformedTag:  "malformed_tag",
	CodeNotInstalled:  "not_installed",
	CodeLockTaken:     "lock_not_available",
	CodeBadArgument:   "invalid_parameter_value",
}

// Name returns the word that messages, metrics and logs use for c.
func (c Code) Name() string {
	if n, ok := codeNames[c]; ok {
		return n
	}
	return "internal"
}

// An Error is a refusal as the application sees it. The fields are those of
// PostgreSQL's ErrorResponse; Message starts with the code's name.
type Error struct {
	Code    Code
	Message string
	Detail  string
	Hint    string

	// Cause is what went wrong underneath, for logs; never sent to a client.
	Cause error
}

// Refuse makes a refusal whose message is the code's name, a colon, and the
// formatted text.
func Refuse(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Message: code.Name() + ": " + fmt.Sprintf(format, args...)}
}

// With returns e with its detail and hint set.
func (e *Error) With(detail, hint string) *Error {
	e.Detail, e.Hint = detail, hint
	return e
}

// Because returns e with its cause set.
func (e *Error) Because(err error) *Error {
	e.Cause = err
	return e
}

func (e *Error) Error() string {
	if e.Cause != nil {
		return fmt.Sprintf("%s (%s): %v", e.Message, e.Code, e.Cause)
	}
	return fmt.Sprintf("%s (%s)", e.Message, e.Code)
}

func (e *Error) Unwrap() error { return e.Cause }
