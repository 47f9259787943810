package leases

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"
)

// Of Locker and Lease. Each comes wrapped with the key and what is known.
var (
	// ErrInvalid: the key, the time to live or an endpoint is not acceptable.
	ErrInvalid = errors.New("invalid argument")
	// ErrTaken: somebody else holds the lock.
	ErrTaken = errors.New("lock is taken")
	// ErrLost: the lease ran out or was revoked, or the lock's key was deleted.
	ErrLost = errors.New("lock is lost")
	// ErrReleased: Release was called; the cause of a Lease's ended Context.
	ErrReleased = errors.New("lock was released")
	// ErrUnavailable: etcd could not be asked, or did not answer in time.
	ErrUnavailable = errors.New("etcd is unavailable")
)

// errIncomplete: etcd's answer has fewer parts than the question. It isn't shown:
// each part is asked again by itself.
var errIncomplete = errors.New("etcd left questions unanswered")

// reason puts into words why a question to etcd over client failed with err.
// The words are safe to show to anybody; addresses and causes are not in them.
func reason(client *clientv3.Client, err error) string {
	known := err
	var answer rpctypes.EtcdError
	var wire interface{ GRPCStatus() *status.Status }
	if errors.As(err, &wire) {
		known = rpctypes.Error(wire.GRPCStatus().Err())
	}
	switch {
	case errors.Is(known, rpctypes.ErrNoLeader):
		return "etcd has no leader"
	case errors.As(known, &answer):
		return "etcd can't answer (" + answer.Error() + ")"
	case errors.Is(err, context.Canceled):
		return "the question was given up"
	case timedOut(err) && client.ActiveConnection().GetState() == connectivity.Ready:
		return "etcd did not answer in time"
	case timedOut(err):
		// The etcd client waits for a connection until the time is up.
		return "etcd can't be reached"
	}
	switch status.Code(err) {
	case codes.Unavailable:
		return "etcd can't be reached"
	case codes.Canceled:
		return "the question was given up"
	case codes.Unauthenticated, codes.PermissionDenied:
		return "etcd refuses this client's credentials"
	default:
		return "etcd can't answer"
	}
}

// outage is the error of a question that etcd didn't answer, in one line with
// where etcd was asked and what the way to it said: ErrUnavailable, and err.
func outage(client *clientv3.Client, err error) error {
	return outageAt(client, strings.Join(client.Endpoints(), ","), err)
}

// outageAt is outage where one of the endpoints was asked.
func outageAt(client *clientv3.Client, endpoint string, err error) error {
	text := fmt.Sprintf("%s (%s)", reason(client, err), endpoint)
	if why := refused(err); why != "" {
		text += ": " + why
	}
	return &outageError{text, err}
}

type outageError struct {
	text  string
	cause error
}

func (e *outageError) Error() string   { return e.text }
func (e *outageError) Unwrap() []error { return []error{ErrUnavailable, e.cause} }

// refused is what kept a connection from being made, in the system's words, or
// "". gRPC has it in a text only: connection error: desc = "transport: …".
func refused(err error) string {
	for _, one := range causes(err) {
		if _, desc, found := strings.Cut(status.Convert(one).Message(), `desc = "transport: `); found {
			return strings.TrimPrefix(strings.TrimSuffix(desc, `"`), "Error while dialing: ")
		}
	}
	return ""
}

// causes are the errors that err joins, or err alone.
func causes(err error) []error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		return joined.Unwrap()
	}
	return []error{err}
}

// timedOut says whether err is that of a deadline, of either side's clock.
func timedOut(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || status.Code(err) == codes.DeadlineExceeded
}
