package leases

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
)

// Timeouts of a client's connections.
const (
	// DefaultDialTimeout bounds one try to connect to one member.
	DefaultDialTimeout = 3 * time.Second
	// DefaultRedialDelay is the longest pause between two tries, so that
	// claims work again within seconds of etcd's return. gRPC's own limit is
	// two minutes.
	DefaultRedialDelay = 2 * time.Second
	// DefaultKeepAliveTime is how long a connection with a request under way
	// may be silent before it is probed. gRPC raises anything less to this.
	DefaultKeepAliveTime = 10 * time.Second
	// DefaultKeepAliveTimeout is how long a probe may go unanswered.
	DefaultKeepAliveTimeout = 3 * time.Second
)

// NewClient returns a client of the etcd cluster at endpoints, URLs such as
// http://127.0.0.1:2379. It connects in the background and logs nothing; ask
// Authority.Ping whether etcd answers. An https endpoint uses config, which
// may be nil for the system's certificates. The caller closes the client.
//
// It returns ErrInvalid for an endpoint that can't be right.
func NewClient(endpoints []string, config *tls.Config) (*clientv3.Client, error) {
	return NewClientFor(endpoints, config, Login{})
}

// A Login is a user of etcd (etcdctl auth enable) and the password.
type Login struct{ User, Password string }

// NewClientFor is NewClient of a user; the zero Login is nobody. As a user it asks
// etcd at once, for up to DefaultDialTimeout, and returns what is wrong.
func NewClientFor(endpoints []string, config *tls.Config, login Login) (*clientv3.Client, error) {
	if len(endpoints) == 0 {
		return nil, fmt.Errorf("%w: no etcd endpoint given", ErrInvalid)
	}
	for _, endpoint := range endpoints {
		if err := checkEndpoint(endpoint); err != nil {
			return nil, err
		}
	}
	redial := backoff.DefaultConfig
	redial.BaseDelay = 100 * time.Millisecond
	redial.MaxDelay = DefaultRedialDelay
	client, err := clientv3.New(clientv3.Config{
		Endpoints:            endpoints,
		TLS:                  config,
		Username:             login.User,
		Password:             login.Password,
		DialTimeout:          DefaultDialTimeout,
		DialKeepAliveTime:    DefaultKeepAliveTime,
		DialKeepAliveTimeout: DefaultKeepAliveTimeout,
		Logger:               zap.NewNop(),
		DialOptions: []grpc.DialOption{
			grpc.WithConnectParams(grpc.ConnectParams{Backoff: redial, MinConnectTimeout: DefaultDialTimeout}),
			grpc.WithChainUnaryInterceptor(noteAttempt),
		},
	})
	switch {
	case login.User != "" && errors.Is(err, context.DeadlineExceeded):
		return nil, fmt.Errorf("log in to etcd at %s as %q: no answer within %v: %w", strings.Join(endpoints, ","), login.User, DefaultDialTimeout, err)
	case err != nil:
		return nil, fmt.Errorf("make etcd client: %w", err)
	}
	return client, nil
}

func checkEndpoint(endpoint string) error {
	u, err := url.Parse(endpoint)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" {
		return fmt.Errorf("%w: etcd endpoint %q is not a URL like http://127.0.0.1:2379", ErrInvalid, endpoint)
	}
	if _, _, err := net.SplitHostPort(u.Host); err != nil {
		return fmt.Errorf("%w: etcd endpoint %q names no port, etcd's is usually 2379", ErrInvalid, endpoint)
	}
	return nil
}

// attemptKey is the context key of an *attempt.
type attemptKey struct{}

// An attempt takes down the last error that the tries of one request met. The
// etcd client tries again until the request's time is up, and then reports
// only that. It belongs to the goroutine that makes the request.
type attempt struct{ err error }

// noting returns ctx with an attempt that its requests are taken down in.
func noting(ctx context.Context) (context.Context, *attempt) {
	seen := &attempt{}
	return context.WithValue(ctx, attemptKey{}, seen), seen
}

// explain adds to err what the tries met, if the time for them is up: it says
// more than that.
func (a *attempt) explain(ctx context.Context, err error) error {
	if ctx.Err() == nil || a.err == nil {
		return err
	}
	return fmt.Errorf("%w: %w", ctx.Err(), a.err)
}

// noteAttempt is called for each try; the etcd client's own interceptor, which
// does the trying again, is outside of it.
func noteAttempt(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	err := invoke(ctx, method, req, reply, cc, opts...)
	if seen, ok := ctx.Value(attemptKey{}).(*attempt); ok && err != nil {
		// A try that ran into the deadline says less than one before it.
		if seen.err == nil || ctx.Err() == nil && !timedOut(err) {
			seen.err = err
		}
	}
	return err
}
