package fencing

import "sync"

// A history remembers which etcd cluster, and how high a token, the last marks
// of each database came from, as far as this proxy has raised them. A
// verification that can't be of the same etcd history will be refused by
// fence.claim, so no session is ended for its sake.
type history struct {
	mu   sync.Mutex
	last map[string]verificationOf // by database
}

type verificationOf struct {
	cluster string
	highest Token
}

// fits reports whether a verification may be of the history that is known.
func (h *history) fits(database string, v Verification) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	last, ok := h.last[database]
	return !ok || last.cluster == v.Cluster && int64(last.highest) <= v.Revision
}

// add takes a token that was accepted.
func (h *history) add(database string, t Token, v Verification) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.last == nil {
		h.last = map[string]verificationOf{}
	}
	last := h.last[database]
	if last.cluster == v.Cluster {
		t = max(t, last.highest)
	}
	h.last[database] = verificationOf{v.Cluster, t}
}
