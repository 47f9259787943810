package leases

import (
	"context"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Held returns those of some locks that somebody holds, as etcd had them at one
// revision, by one question. It is for people who look on, and never for a claim. The
// error is ErrUnavailable, as Ping's, or ErrInvalid for too many keys.
func (a *Authority) Held(ctx context.Context, keys []string) ([]Lock, error) {
	if len(keys) > vacancyOps {
		return nil, fmt.Errorf("%w: %d keys in one question, and %d is the most", ErrInvalid, len(keys), vacancyOps)
	}
	ctx, seen := noting(clientv3.WithRequireLeader(ctx))
	prefixes := make([]string, len(keys))
	for i, key := range keys {
		prefixes[i] = LockPrefix(a.Prefix, key)
	}
	lines, err := readQueues(ctx, a.client, prefixes)
	if err != nil {
		return nil, outage(a.client, seen.explain(ctx, err))
	}
	var held []Lock
	for i, line := range lines {
		if holder := line.holder(); holder != nil {
			held = append(held, Lock{keys[i], holder.token, holder.key, len(line.places) - 1, holder.lease})
		}
	}
	return held, nil
}
