package leases

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// vacancyOps bounds the keys of one question: etcd takes 128 operations in a
// transaction by default (--max-txn-ops).
const vacancyOps = 100

// Vacant asks with one linearizable transaction which of the locks nobody holds
// or awaits; fencing.Vacancies is its contract. A lock that has locks below it
// whose names were not escaped is not taken for vacant.
func (a *Authority) Vacant(ctx context.Context, keys []string) (vacant []string, cluster string, revision int64, err error) {
	if len(keys) > vacancyOps {
		return nil, "", 0, fmt.Errorf("%w: %d keys in one question, and %d is the most", ErrInvalid, len(keys), vacancyOps)
	}
	ops := make([]clientv3.Op, len(keys))
	for i, key := range keys {
		ops[i] = clientv3.OpGet(LockPrefix(a.Prefix, key)+"/", clientv3.WithPrefix(), clientv3.WithCountOnly())
	}
	resp, err := a.client.Txn(clientv3.WithRequireLeader(ctx)).Then(ops...).Commit()
	if err != nil {
		return nil, "", 0, outage(a.client, err)
	}
	for i, r := range resp.Responses {
		if r.GetResponseRange().Count == 0 {
			vacant = append(vacant, keys[i])
		}
	}
	return vacant, strconv.FormatUint(resp.Header.ClusterId, 16), resp.Header.Revision, nil
}

// Position returns the etcd cluster's id and its revision, by one linearizable
// read. The error is Ping's.
func (a *Authority) Position(ctx context.Context) (cluster string, revision int64, err error) {
	q, err := a.ask(ctx, strings.TrimSuffix(a.Prefix, "/")+"/.ping")
	if err != nil {
		return "", 0, outage(a.client, err)
	}
	return q.cluster, q.revision, nil
}
