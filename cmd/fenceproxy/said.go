package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"

	"github.com/jackc/pgx/v5/pgconn"
)

// said is what the server or the system said, without the connection string
// and without the address, which the caller names.
func said(err error) error {
	var refused *pgconn.PgError
	var lookup *net.DNSError
	text := rootCause(err).Error()
	switch {
	case errors.As(err, &refused):
		text = fmt.Sprintf("%s (%s)", refused.Message, refused.Code)
	case errors.As(err, &lookup) && lookup.IsNotFound:
		text = "no such host"
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded):
		text = "no answer in time"
	}
	return &saidError{text, err}
}

type saidError struct {
	text  string
	cause error
}

func (e *saidError) Error() string { return e.text }
func (e *saidError) Unwrap() error { return e.cause }

// mend is what to do about a connection that can't be made, or "" where
// the error has said enough. password is where that came from.
func mend(err error, password string) string {
	const dsn = "mend the DSN of --upstream"
	var refused *pgconn.PgError
	var lookup *net.DNSError
	var dial *net.OpError
	switch {
	case errors.As(err, &refused):
		switch refused.Code {
		case "28000", "28P01": // of pg_hba.conf, and a wrong password
			return "mend " + password + " or the server's pg_hba.conf"
		case "3D000": // there is no such database
			return "create it, or " + dsn
		case "42704", "42501", "22023": // of settings in the DSN
			return dsn
		}
		return ""
	case errors.As(err, &lookup):
		return dsn
	case errors.As(err, &dial) && dial.Op == "dial", errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded):
		return "start it, or " + dsn
	}
	return dsn
}

// rootCause is the innermost error: the system's own words. Of several tries
// it is the last one's.
func rootCause(err error) error {
	for {
		inner := errors.Unwrap(err)
		if tries, ok := err.(interface{ Unwrap() []error }); ok && len(tries.Unwrap()) > 0 {
			inner = tries.Unwrap()[len(tries.Unwrap())-1]
		}
		if inner == nil {
			return err
		}
		err = inner
	}
}
