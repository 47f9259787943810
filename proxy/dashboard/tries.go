package dashboard

import (
	"container/list"
	"net/netip"
	"sync"
	"time"
)

// Who sends wrong tokens is held off, by address: the first freeTries are answered at
// once, and from then on one each tryEvery is looked at. Many sent at the same time
// add up, to longestHold at most.
const (
	freeTries   = 10
	tryEvery    = time.Second
	longestHold = time.Minute
	// mostAddresses bounds what is remembered. The address that was wrong longest ago
	// is forgotten first: somebody with very many addresses gets more tries by it, and
	// keeps nobody else out.
	mostAddresses = 1024
)

// tries remembers from where wrong tokens came. An address that sent none is not in
// it, and is never held off.
type tries struct {
	mu     sync.Mutex
	of     map[netip.Prefix]*list.Element
	recent list.List // of *tried, the last to be wrong at the back
}

// tried is what an address owes: each wrong token adds tryEvery to until.
type tried struct {
	from  netip.Prefix
	until time.Time
}

// holdFor is how much longer an address is held off; 0: it isn't.
func (t *tries) holdFor(from netip.Prefix, now time.Time) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	at := t.of[from]
	if at == nil {
		return 0
	}
	return max(at.Value.(*tried).until.Sub(now)-(freeTries-1)*tryEvery, 0)
}

// wrong counts a wrong token, and reports whether its address is held off by that.
func (t *tries) wrong(from netip.Prefix, now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	at := t.of[from]
	if at == nil {
		at = t.addLocked(from, now)
	}
	t.recent.MoveToBack(at)
	owes := at.Value.(*tried)
	if owes.until.Before(now) {
		owes.until = now
	}
	before := owes.until.Sub(now) > (freeTries-1)*tryEvery
	owes.until = owes.until.Add(tryEvery)
	if most := now.Add(freeTries*tryEvery + longestHold); owes.until.After(most) {
		owes.until = most
	}
	return !before && owes.until.Sub(now) > (freeTries-1)*tryEvery
}

func (t *tries) addLocked(from netip.Prefix, now time.Time) *list.Element {
	if t.of == nil {
		t.of = map[netip.Prefix]*list.Element{}
	}
	if len(t.of) >= mostAddresses {
		oldest := t.recent.Remove(t.recent.Front()).(*tried)
		delete(t.of, oldest.from)
	}
	t.of[from] = t.recent.PushBack(&tried{from, now})
	return t.of[from]
}

// network is what counts as one address: an address of IPv4, the 64 bits of IPv6 that
// one customer has, and loopback, of which a program can pick any.
func network(remote string) netip.Prefix {
	addr, err := netip.ParseAddrPort(remote)
	if err != nil {
		return netip.Prefix{} // a socket without addresses: all of them are one
	}
	ip, bits := addr.Addr().Unmap().WithZone(""), 32
	switch {
	case ip.IsLoopback():
		ip = netip.IPv6Loopback()
		bits = ip.BitLen()
	case ip.Is6():
		bits = 64
	}
	from, err := ip.Prefix(bits)
	if err != nil {
		return netip.Prefix{} // not reached: no address is shorter
	}
	return from
}
