package leases

import (
	"context"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fenceproxy/fenceproxy/fencing"
)

// surveyPage is how many keys one read of a survey asks for.
const surveyPage = 1000

// A Survey is every lock there is, as etcd had them at one revision.
type Survey struct {
	Cluster  string // hex
	Revision int64
	Locks    []Lock // by key
	// Strays are etcd keys below the prefix that are no lock's: most often of a
	// lock whose name was written without escaping a slash or a space in it.
	Strays []string
}

// A Lock is one that somebody holds.
type Lock struct {
	Key     string // the resource key
	Token   fencing.Token
	LockKey string // etcd key of the holder
	Waiting int    // clients that stand behind the holder

	lease clientv3.LeaseID
}

// Survey reads every lock below the prefix. It is for people who look on, and
// never for a claim. The error is ErrUnavailable, as Ping's.
func (a *Authority) Survey(ctx context.Context) (Survey, error) {
	ctx, seen := noting(clientv3.WithRequireLeader(ctx))
	var s Survey
	lines := map[string]*queue{}
	from, end := a.Prefix, clientv3.GetPrefixRangeEnd(a.Prefix)
	for {
		resp, err := a.client.Get(ctx, from, clientv3.WithRange(end), clientv3.WithLimit(surveyPage), clientv3.WithRev(s.Revision))
		if err != nil {
			return Survey{}, outage(a.client, seen.explain(ctx, err))
		}
		if s.Revision == 0 { // the pages that follow are of the first one's revision
			s.Revision, s.Cluster = resp.Header.Revision, strconv.FormatUint(resp.Header.ClusterId, 16)
		}
		for _, kv := range resp.Kvs {
			key, name, ok := lockOf(strings.TrimPrefix(string(kv.Key), a.Prefix))
			if !ok {
				s.Strays = append(s.Strays, string(kv.Key))
				continue
			}
			if lines[key] == nil {
				lines[key] = &queue{}
			}
			lines[key].places = append(lines[key].places, newPlace(kv, name))
		}
		if len(resp.Kvs) > 0 {
			from = string(resp.Kvs[len(resp.Kvs)-1].Key) + "\x00"
		}
		if !resp.More {
			break
		}
	}
	for key, line := range lines {
		line.sort()
		holder := line.holder()
		s.Locks = append(s.Locks, Lock{key, holder.token, holder.key, len(line.places) - 1, holder.lease})
	}
	slices.SortFunc(s.Locks, func(a, b Lock) int { return strings.Compare(a.Key, b.Key) })
	return s, nil
}

// lockOf returns the resource key whose lock an etcd key stands in line for, and
// what the client calls itself there; rest is what follows the prefix.
func lockOf(rest string) (key, name string, ok bool) {
	escaped, name, found := strings.Cut(rest, "/")
	key, err := url.PathUnescape(escaped)
	ok = found && err == nil && key != "" && name != "" && !strings.Contains(name, "/") && LockPrefix("", key) == escaped
	return key, name, ok
}

// Left asks etcd for how long the lease of a lock's holder lasts if it isn't
// renewed; 0 is for one that has ended or never had a lease.
func (a *Authority) Left(ctx context.Context, l Lock) (time.Duration, error) {
	if l.lease == clientv3.NoLease {
		return 0, nil
	}
	ctx, seen := noting(ctx)
	resp, err := a.client.TimeToLive(ctx, l.lease)
	if err != nil {
		return 0, outage(a.client, seen.explain(ctx, err))
	}
	return time.Duration(max(resp.TTL, 0)) * time.Second, nil
}
