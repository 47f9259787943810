package scram

import (
	"errors"
	"fmt"
)

// SQLSTATEs of the errors that a client is told. PostgreSQL: errcodes.txt.
const (
	codeProtocol    = "08P01" // protocol_violation
	codeUnsupported = "0A000" // feature_not_supported
	codeChannel     = "28000" // invalid_authorization_specification
	codePassword    = "28P01" // invalid_password
	codeInternal    = "XX000" // internal_error
)

// Errors of secrets and of files of secrets.
var (
	// ErrMalformedSecret: a text isn't a SCRAM-SHA-256 secret.
	ErrMalformedSecret = errors.New("malformed SCRAM secret")
	// ErrIterations: an iteration count is below 1 or above what is allowed.
	ErrIterations = errors.New("SCRAM iteration count out of bounds")
	// ErrMD5: an entry holds an MD5 hash, which SCRAM can't use.
	ErrMD5 = errors.New("an MD5 hash is of no use for SCRAM: store the role's SCRAM-SHA-256 secret instead")
	// ErrNoPassword: an entry's password is empty, which PostgreSQL refuses.
	ErrNoPassword = errors.New("the password is empty")
	// ErrUserlist: a file doesn't have the format of PgBouncer's userlist.txt.
	ErrUserlist = errors.New("malformed userlist")
)

// Errors of a login to PostgreSQL.
var (
	// ErrMechanism: the server offers no mechanism that is spoken here.
	ErrMechanism = errors.New("the server offers no SCRAM-SHA-256")
	// ErrSecretChanged: the server's salt or iteration count is not the
	// Secret's, or the key doesn't belong to the Secret: the password was
	// changed since the Secret was read. Read it again.
	ErrSecretChanged = errors.New("PostgreSQL asks for another SCRAM secret: the role's password is past its VALID UNTIL, or another one than is known here")
	// ErrMalformed: the server sent what isn't a SCRAM message, or too much.
	ErrMalformed = errors.New("malformed SCRAM message from the server")
	// ErrNonce: the server's nonce doesn't continue ours.
	ErrNonce = errors.New("the server's SCRAM nonce does not match")
	// ErrSignature: the server doesn't know the role's ServerKey, so it is not
	// the server that the Secret is of.
	ErrSignature = errors.New("the server's SCRAM signature is wrong")
	// ErrRefused: the server ended the exchange with an error attribute.
	ErrRefused = errors.New("the server refused the SCRAM exchange")
	// ErrOrder: a step was called out of its turn.
	ErrOrder = errors.New("SCRAM message out of turn")
)

// An Error is a refusal to be told to the client as a FATAL. Its texts are
// PostgreSQL's (auth-scram.c, auth-sasl.c, pqformat.c, auth.c), and printable
// ASCII but for the user's name.
type Error struct {
	Code    string // SQLSTATE
	Message string
	Detail  string // may be ""
}

func (e *Error) Error() string {
	if e.Detail == "" {
		return fmt.Sprintf("%s (%s)", e.Message, e.Code)
	}
	return fmt.Sprintf("%s: %s (%s)", e.Message, e.Detail, e.Code)
}

// UnexpectedMessage returns PostgreSQL's refusal of a message of type t where
// an answer ('p') is due.
func UnexpectedMessage(t byte) *Error {
	return &Error{Code: codeProtocol, Message: fmt.Sprintf("expected SASL response, got message type %d", t)}
}

// PasswordFailed returns PostgreSQL's refusal of a user whose password is
// wrong, who has none, or who doesn't exist.
func PasswordFailed(user string) *Error {
	return &Error{Code: codePassword, Message: fmt.Sprintf("password authentication failed for user \"%s\"", user)}
}

func malformed(detail string) *Error {
	return &Error{Code: codeProtocol, Message: "malformed SCRAM message", Detail: detail}
}
