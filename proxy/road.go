package proxy

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"
)

// A Fit says whether a server is one that sessions shall go to: libpq's
// target_session_attrs.
type Fit uint8

const (
	// FitNo: sessions must not go there.
	FitNo Fit = iota
	// FitSecond: only if no other server fits (prefer-standby).
	FitSecond
	// FitYes: sessions may go there.
	FitYes
)

func (f Fit) String() string {
	switch f {
	case FitNo:
		return "no"
	case FitSecond:
		return "second"
	case FitYes:
		return "yes"
	}
	return fmt.Sprintf("fit %d", uint8(f))
}

// A Standing is how a server stands.
type Standing struct {
	Fit     Fit
	Why     string // why it doesn't fit
	Standby bool
	// Timeline is the one that a primary writes, 0 where it can't be told. Of
	// two servers that both take themselves for the primary, the one that was
	// promoted later has the higher one.
	Timeline uint32
}

// Better reports whether a server that stands so is to be preferred to one
// named before it.
func (a Standing) Better(b Standing) bool {
	if a.Fit != b.Fit {
		return a.Fit > b.Fit
	}
	return !a.Standby && !b.Standby && a.Timeline > b.Timeline
}

const (
	// freshFor is how long it is taken for granted how the servers stand.
	freshFor = time.Second
	// laterWait is how long a server that fits waits for the answers of others,
	// of which one may fit better.
	laterWait = 100 * time.Millisecond
)

// A road knows which of the servers sessions are to go to.
type road struct {
	mu     sync.Mutex
	asked  []asked // one a host
	chosen *Host
	at     time.Time     // when chosen was chosen
	err    error         // why there is none
	asking chan struct{} // closed at the end of the round that is under way
	came   chan struct{} // holds one token when answers have come in

	closed bool
	asks   sync.WaitGroup // Add under mu, and only while not closed
}

// asked is what is known of one host.
type asked struct {
	running  bool // a question is under way
	late     bool // since an earlier round
	answered bool // in this round
	standing Standing
	err      error
}

// asks reports whether it matters which server a session goes to.
func (u Upstream) asks() bool {
	for i := range u {
		if u[i].Ask != nil {
			return true
		}
	}
	return false
}

// choose returns the server that sessions go to now. Questions are put to all
// servers at once, and one that doesn't answer is waited for only while no
// other fits. Callers at the same time share one round of questions; fresh asks
// for one that has not begun yet.
func (s *Server) choose(ctx context.Context, fresh bool) (*Host, error) {
	r := &s.road
	for {
		r.mu.Lock()
		if r.asking == nil {
			if !fresh && r.chosen != nil && time.Since(r.at) < freshFor {
				defer r.mu.Unlock()
				return r.chosen, nil
			}
			if err := s.begin(); err != nil {
				r.mu.Unlock()
				return nil, err
			}
			fresh = false
		}
		round := r.asking
		r.mu.Unlock()
		select {
		case <-round:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		if !fresh {
			r.mu.Lock()
			defer r.mu.Unlock()
			return r.chosen, r.err
		}
	}
}

// begin begins a round: it asks every server that isn't being asked. The caller
// holds the road's mu.
func (s *Server) begin() error {
	r := &s.road
	if r.closed {
		return errDrained
	}
	if r.asked == nil {
		r.asked, r.came = make([]asked, len(s.Upstream)), make(chan struct{}, 1)
	}
	r.asking = make(chan struct{})
	r.asks.Add(1)
	go s.round(r.asking)
	for i := range r.asked {
		r.asked[i].answered, r.asked[i].late = false, r.asked[i].running
		if !r.asked[i].running {
			r.asked[i].running = true
			r.asks.Add(1)
			go s.ask(i)
		}
	}
	return nil
}

// round waits for the answers and chooses. It returns within the longest
// time-out of a host, since then all of them have answered or given up.
func (s *Server) round(done chan struct{}) {
	r := &s.road
	defer r.asks.Done()
	var later <-chan time.Time
	enough := false
	for {
		r.mu.Lock()
		best, complete := r.best()
		if complete || enough {
			r.conclude(s.Upstream, best)
			close(done)
			r.mu.Unlock()
			return
		}
		r.mu.Unlock()
		if best >= 0 && later == nil {
			later = time.After(laterWait)
		}
		select {
		case <-r.came:
		case <-later:
			enough = true
		}
	}
}

func (s *Server) timeout(h *Host) time.Duration {
	if h.Timeout > 0 {
		return h.Timeout
	}
	return s.DialTimeout
}

// ask puts the question to one server. It returns when the server answers, at
// the host's time-out, or at Close.
func (s *Server) ask(i int) {
	r, h := &s.road, &s.Upstream[i]
	defer r.asks.Done()
	ctx, cancel := context.WithTimeout(s.ctx, s.timeout(h))
	defer cancel()
	standing, err := h.Ask(ctx)
	if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("no answer within %v", s.timeout(h))
	}
	r.mu.Lock()
	r.asked[i] = asked{answered: true, standing: standing, err: err}
	r.mu.Unlock()
	select {
	case r.came <- struct{}{}:
	default:
	}
}

// best returns the index of the server that fits best of those that have
// answered, -1 without one, and whether there is nobody left to wait for: who
// is late is waited for only while no other fits. The caller holds mu.
func (r *road) best() (best int, complete bool) {
	best = -1
	due, late := false, false
	for i := range r.asked {
		a := &r.asked[i]
		switch {
		case !a.answered:
			due, late = due || !a.late, late || a.late
		case a.err != nil || a.standing.Fit == FitNo:
		case best < 0 || a.standing.Better(r.asked[best].standing):
			best = i
		}
	}
	return best, !due && (!late || best >= 0)
}

// conclude ends a round. The caller holds mu.
func (r *road) conclude(hosts Upstream, best int) {
	r.asking, r.err, r.chosen = nil, nil, nil
	if best >= 0 {
		r.chosen, r.at = &hosts[best], time.Now()
		return
	}
	var why []error
	for i := range r.asked {
		a := &r.asked[i]
		switch {
		case a.err != nil:
			why = append(why, hosts[i].failure(a.err))
		default:
			why = append(why, fmt.Errorf("%s: %s", hosts[i].Name, a.standing.Why))
		}
	}
	r.err = &unreachable{why}
}

// unreachable is an error about several hosts, in one line.
type unreachable struct{ why []error }

func (u *unreachable) Error() string {
	words := make([]string, len(u.why))
	for i, err := range u.why {
		words[i] = strings.ReplaceAll(err.Error(), "\n", "; ")
	}
	return strings.Join(words, "; ")
}

func (u *unreachable) Unwrap() []error { return u.why }

// stood reports how a server stood when it was asked last.
func (s *Server) stood(h *Host) Standing {
	s.road.mu.Lock()
	defer s.road.mu.Unlock()
	for i := range s.road.asked {
		if &s.Upstream[i] == h {
			return s.road.asked[i].standing
		}
	}
	return Standing{}
}

// elsewhere returns the name of the server that sessions are to go to now if
// that is not h, "" if it is or can't be told.
func (s *Server) elsewhere(ctx context.Context, h *Host) string {
	if !s.Upstream.asks() {
		return ""
	}
	if chosen, err := s.choose(ctx, false); err == nil && chosen != h {
		return chosen.Name
	}
	return ""
}

// Reach finds out which server sessions go to now, as its index in Upstream; 0
// where any server will do. fresh has all of them asked once more. The error says
// of each server why it isn't that one.
func (s *Server) Reach(ctx context.Context, fresh bool) (int, error) {
	if !s.Upstream.asks() {
		return 0, nil
	}
	h, err := s.choose(ctx, fresh)
	for i := range s.Upstream {
		if h == &s.Upstream[i] {
			return i, nil
		}
	}
	return 0, err
}

// close has no round begin any more, and waits for the questions that are under
// way; the Server's context has ended, and with it each of them.
func (r *road) close() {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.asks.Wait()
}
