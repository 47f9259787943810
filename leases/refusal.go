package leases

import (
	"fmt"
	"net/url"
	"strings"

	"github.com/fenceproxy/fenceproxy/fencing"
)

// refuse says why token, presented for key, is not the holder's. What a
// number looks like is a guess from one read and serves the text only: every
// answer is LF002.
func (q *queue) refuse(key string, token fencing.Token) *fencing.Error {
	holder := q.holder()
	if holder == nil {
		return q.refuseFree(key, token)
	}
	var what, hint string
	switch at, lease := q.find(token), q.findLease(int64(token)); {
	case at > 0:
		what = fmt.Sprintf("is a waiter's, number %d in line", at+1)
		hint = "You are waiting for this lock: write nothing until your Lock call has returned and your key has the lowest create revision. Then the same number will be right."
	case lease == 0:
		what = "is the lease ID of the holder, not its token"
		hint = fmt.Sprintf("Present the create revision of the key instead of the lease ID: %d.", holder.token)
	case lease > 0:
		what = fmt.Sprintf("is the lease ID of a waiter, number %d in line", lease+1)
		hint = fmt.Sprintf("You are waiting for this lock: write nothing yet. Your token, once the lock is yours, is not the lease ID but the create revision of your key: %d.", q.places[lease].token)
	case token < holder.token:
		what = "is gone"
		hint = "The lock was lost, by a lease that ran out or by a release, and somebody else holds it now: stop, and re-acquire the lock before writing again."
	case int64(token) <= q.revision:
		what = "is not the create revision of any key in line"
		hint = q.hintRevision(token)
	default:
		what = fmt.Sprintf("is above etcd's revision, %d", q.revision)
		hint = fmt.Sprintf("This etcd has not given out the number yet: it comes from a lease ID, from another etcd cluster, or from before etcd was restored from a backup. %s", q.onlyIfHolder())
	}
	return fencing.Refuse(fencing.CodeNotHolder, "%s token %d %s; the holder's token is %d", show(key), token, what, holder.token).
		With(q.detail(key, token), hint)
}

// refuseFree is the answer when nobody stands in line.
func (q *queue) refuseFree(key string, token fencing.Token) *fencing.Error {
	hint := "Your lease ran out or the lock was released: stop, and re-acquire the lock before writing again."
	if escaped := url.PathEscape(key); escaped != key {
		hint += fmt.Sprintf(" If you are sure to hold it: the lock must be taken at %s, with the key escaped.", strings.TrimSuffix(q.dir, "/"))
	}
	return fencing.Refuse(fencing.CodeNotHolder, "%s token %d is gone; nobody holds the lock", show(key), token).
		With(q.detail(key, token), hint)
}

// hintRevision explains a number that etcd has passed but that is no key's
// create revision.
func (q *queue) hintRevision(token fencing.Token) string {
	looks := "a header revision (Mutex.Header().Revision, or ETCD_LOCK_REV of `etcdctl lock`), which is that of a later read"
	if int64(token) == q.holder().modified {
		looks = "the mod revision of the holder's key"
	}
	return fmt.Sprintf("%d looks like %s. %s", token, looks, q.onlyIfHolder())
}

// onlyIfHolder gives the right number away together with the test whether it
// is the reader's to use: a client that has lost the lock must not tag itself
// with its successor's token.
func (q *queue) onlyIfHolder() string {
	h := q.holder()
	return fmt.Sprintf("If your own key is %s, present its create revision: %d. If it isn't, you don't hold the lock: stop.", h.key, h.token)
}

func (q *queue) detail(key string, token fencing.Token) string {
	var b strings.Builder
	fmt.Fprintf(&b, "Key %s, presented token %d", show(key), token)
	if h := q.holder(); h != nil {
		fmt.Fprintf(&b, ", holder's token %d by etcd key %s", h.token, h.key)
		if h.lease == 0 {
			b.WriteString(" (which has no lease and stays until somebody deletes it)")
		}
		if waiters := len(q.places) - 1; waiters > 0 {
			fmt.Fprintf(&b, ", waiters %d", waiters)
		}
	} else {
		fmt.Fprintf(&b, ", no key directly under %s", q.dir)
	}
	if q.nested > 0 {
		fmt.Fprintf(&b, "; %d keys further down belong to other locks", q.nested)
	}
	fmt.Fprintf(&b, ". Read at revision %d of etcd cluster %s.", q.revision, q.cluster)
	return b.String()
}
