package leases

import (
	"context"
	"fmt"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fenceproxy/fenceproxy/fencing"
)

// An Authority tells claims whether a token is the current holder's. It keeps
// nothing from one question to the next; any number may be asked at once, and
// share requests then.
type Authority struct {
	// Prefix is where locks live, DefaultPrefix unless set before the first
	// question.
	Prefix string

	client  *clientv3.Client
	readers readers
}

// NewAuthority returns an Authority that asks over client, which stays the
// caller's to close. With a client of NewClient the refusals name causes that
// the etcd client otherwise swallows.
func NewAuthority(client *clientv3.Client) *Authority {
	return &Authority{Prefix: DefaultPrefix, client: client, readers: readers{client: client}}
}

// Verify asks etcd with a linearizable range whether token is the create
// revision of the holder's key of lock key; fencing.Authority is its
// contract. It takes as long as ctx lets it: give ctx a deadline.
func (a *Authority) Verify(ctx context.Context, key string, token fencing.Token) (fencing.Verification, error) {
	q, err := a.ask(ctx, LockPrefix(a.Prefix, key))
	if err != nil {
		return fencing.Verification{}, a.unverified(key, token, err)
	}
	holder := q.holder()
	if holder == nil || holder.token != token {
		return fencing.Verification{}, q.refuse(key, token)
	}
	return fencing.Verification{LockKey: holder.key, Cluster: q.cluster, Revision: q.revision}, nil
}

// Ping returns nil if etcd answers a linearizable read, which takes a leader
// and a quorum. Otherwise ErrUnavailable in one line that names the endpoints
// and the cause.
func (a *Authority) Ping(ctx context.Context) error {
	_, _, err := a.Position(ctx)
	return err
}

// ask reads a lock's queue. A try uses at most two thirds of the time that is
// left, so that one frozen member out of several, which accepts the question
// and never answers, doesn't use up a claim's time: the next try goes to
// another member.
func (a *Authority) ask(ctx context.Context, lockPrefix string) (*queue, error) {
	_, bounded := ctx.Deadline()
	ctx, seen := noting(clientv3.WithRequireLeader(ctx))
	for {
		try, cancel := shorter(ctx)
		q, err := a.readers.read(try, lockPrefix)
		// etcd knows the deadline, and may say that it has passed before the
		// clock here does.
		late := try.Err() != nil || timedOut(err)
		cancel()
		switch {
		case err == nil:
			return q, nil
		case late && bounded && ctx.Err() == nil:
			continue
		default:
			return nil, seen.explain(ctx, err)
		}
	}
}

// shorter returns ctx with its deadline drawn in by a third, or as it is if
// too little is left to share.
func shorter(ctx context.Context) (context.Context, context.CancelFunc) {
	const least = 200 * time.Millisecond
	deadline, ok := ctx.Deadline()
	left := time.Until(deadline)
	if !ok || left < least {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, left*2/3)
}

func (a *Authority) unverified(key string, token fencing.Token, err error) *fencing.Error {
	return fencing.Refuse(fencing.CodeUnverified, "%s token %d could not be verified: %s", show(key), token, reason(a.client, err)).With(
		fmt.Sprintf("Key %s, presented token %d, etcd at %s.", show(key), token, a.endpoints()),
		"Retry: nothing was changed, and sessions that were claimed before go on. If it lasts, look at etcd: "+
			"`etcdctl --endpoints="+a.endpoints()+" endpoint status --write-out=table` must show every member and one leader.",
	).Because(err)
}

func (a *Authority) endpoints() string { return strings.Join(a.client.Endpoints(), ",") }
