package fencing

import "sync"

// verifiedMost bounds each of the two generations of a verified set.
const verifiedMost = 1 << 15

// verified remembers which tokens were verified, the newest for each key, and
// on which PostgreSQL. Forgetting one costs a question to etcd and no more, so
// it forgets by halves: what was added before the last verifiedMost others.
type verified struct {
	mu       sync.Mutex
	now, old map[verifiedKey]verifiedToken
}

type verifiedKey struct{ database, key string }

type verifiedToken struct {
	token Token
	where whereabouts
}

func newVerified() *verified {
	return &verified{now: map[verifiedKey]verifiedToken{}}
}

func (v *verified) add(database string, p Pair, where whereabouts) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.now) >= verifiedMost {
		v.now, v.old = map[verifiedKey]verifiedToken{}, v.now
	}
	v.now[verifiedKey{database, p.Key}] = verifiedToken{p.Token, where}
}

func (v *verified) get(database string, p Pair) (whereabouts, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	k := verifiedKey{database, p.Key}
	t, ok := v.now[k]
	if !ok {
		t, ok = v.old[k]
	}
	return t.where, ok && t.token == p.Token
}
