package console

import (
	"errors"
	"fmt"

	"github.com/fenceproxy/fenceproxy/proxy/wire"
)

// A fault is why a statement isn't carried out, as the client is told.
type fault struct{ wire.Report }

func (f *fault) Error() string { return f.Message }

// SQLSTATEs of the console's own (errcodes.txt).
const (
	codeSyntax        = "42601"
	codeUnsupported   = "0A000"
	codeDenied        = "42501"
	codeNoSuchThing   = "42704"
	codeAmbiguous     = "21000" // more than one where one was expected
	codeBadValue      = "22023"
	codeNotText       = "22021"
	codeProtocol      = "08P01"
	codeTooMuch       = "54000"
	codeConfig        = "F0000"
	codeCanceled      = "57014"
	codeUnavailable   = "58000"
	codeFailedBlock   = "25P02"
	codeInBlock       = "25001"
	codeNoBlock       = "25P01"
	codeNoStatement   = "26000"
	codeSameStatement = "42P05"
	codeNoPortal      = "34000"
	codeSamePortal    = "42P03"
	codePortalRun     = "55000"
)

func faultf(code, format string, args ...any) *fault {
	return &fault{wire.Report{Severity: "ERROR", Code: code, Message: fmt.Sprintf(format, args...)}}
}

// hint adds what to do.
func (f *fault) hint(format string, args ...any) *fault {
	f.Hint = fmt.Sprintf(format, args...)
	return f
}

// asFault makes a fault of any error.
func asFault(err error) *fault {
	var f *fault
	if errors.As(err, &f) {
		return f
	}
	return faultf(codeUnavailable, "%v", err)
}

// notice is what the client is told besides.
func notice(severity, format string, args ...any) wire.Report {
	code := "00000"
	if severity == "WARNING" {
		code = "01000"
	}
	return wire.Report{Severity: severity, Code: code, Message: fmt.Sprintf(format, args...)}
}
