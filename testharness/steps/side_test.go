package steps_test

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/fenceproxy/fenceproxy/testharness/fault"
	"github.com/fenceproxy/fenceproxy/testharness/history"
)

// A meter counts steps, and breaks something at one of them.
type meter struct {
	mu     sync.Mutex
	armed  bool
	busy   bool     // what is broken is being broken, and nothing is counted
	names  []string // of the steps so far
	at     int      // where to break something, -1 nowhere
	kind   kind
	struck chan error // told when it is broken; nil until then
	faults []history.Fault
}

// arm begins to count anew.
func (m *meter) arm(at int, k kind) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.armed, m.names, m.at, m.kind, m.struck, m.faults = true, nil, at, k, nil, nil
}

// disarm ends counting. It returns which steps there were, and waits for what
// was broken at one of them, if it was.
func (m *meter) disarm() (names []string, hit bool, err error) {
	m.mu.Lock()
	m.armed = false
	names, struck := m.names, m.struck
	m.mu.Unlock()
	if struck == nil {
		return names, false, nil
	}
	return names, true, <-struck
}

// step counts one, on a link of a side, and breaks what is to be broken before
// the message is passed on.
func (m *meter) step(s *side, name string) {
	m.mu.Lock()
	counts := m.armed && !m.busy
	if counts {
		m.names = append(m.names, name)
	}
	if !counts || len(m.names)-1 != m.at {
		m.mu.Unlock()
		return
	}
	struck := make(chan error, 1)
	m.struck, m.busy = struck, true
	k := m.kind
	m.mu.Unlock()
	f := history.Fault{Kind: k.String(), Target: name, Begin: history.Now()}
	if !k.strikes(name) {
		k = heldUp
	}
	err := s.strike(k)
	f.End = history.Now()
	m.mu.Lock()
	m.busy = false
	if !k.holds() { // or the next holder's claim could take its time, too
		m.faults = append(m.faults, f)
	}
	m.mu.Unlock()
	struck <- err
}

// A kind is what is broken at a step.
type kind int

const (
	cutClient   kind = iota // the link between the client and the proxy
	cutPostgres             // those between the proxy and PostgreSQL
	cutEtcd                 // and etcd
	killProxy               // and all of them for good: a new proxy takes its place
	endBackends             // sessions are ended in PostgreSQL
	heldUp                  // the message waits while the next holder takes over by the other proxy
	heldUpHere              // and by the same one
	kinds
)

func (k kind) String() string {
	return [...]string{"client cut off", "PostgreSQL cut off", "etcd cut off", "proxy killed", "sessions ended in PostgreSQL",
		"held up", "held up in the next holder's proxy"}[k]
}

// holds reports whether a kind holds a message up.
func (k kind) holds() bool { return k == heldUp || k == heldUpHere }

// strikes reports whether a kind can be tried at a step. All that a proxy asks
// etcd goes over one connection: what is held up there holds up the next holder's
// claim by the same proxy, too.
func (k kind) strikes(name string) bool { return k != heldUpHere || !strings.HasPrefix(name, "etcd ") }

// A side is a proxy and the links around it.
type side struct {
	lane                   *lane
	client, postgres, etcd *fault.Link
	proxy                  program
}

func newSide(t *testing.T, l *lane, g *ground, p program) *side {
	t.Helper()
	s := &side{lane: l, proxy: p}
	for name, link := range map[string]struct {
		to     **fault.Link
		target string
		frames func() (there, back fault.Framer)
	}{
		"client":     {&s.client, "127.0.0.1:1", fault.PostgreSQL},
		"PostgreSQL": {&s.postgres, g.pg.Addr(), fault.PostgreSQL},
		"etcd":       {&s.etcd, g.etcd.Endpoint()[len("http://"):], fault.HTTP2},
	} {
		made, err := fault.NewLink(link.target)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(made.Close)
		made.Watch(link.frames, func(there bool, message string) {
			way := "→"
			if !there {
				way = "←"
			}
			l.steps.step(s, fmt.Sprintf("%s %s %s", name, way, message))
		})
		*link.to = made
	}
	t.Cleanup(func() {
		if err := s.proxy.stop(); err != nil {
			t.Error(err)
		}
	})
	if err := s.start(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s
}

// start starts the proxy and leads its clients' link to it.
func (s *side) start(ctx context.Context) error {
	dsn, err := url.Parse(s.lane.dsn)
	if err != nil {
		return err
	}
	dsn.Host = s.postgres.Addr()
	addr, err := s.proxy.start(ctx, dsn.String(), "http://"+s.etcd.Addr())
	if err == nil {
		s.client.SetTarget(addr)
	}
	return err
}

// strike breaks something, and has it mended when it returns.
func (s *side) strike(k kind) error {
	all := []*fault.Link{s.client, s.postgres, s.etcd}
	switch k {
	case endBackends:
		return s.lane.endSessions()
	case heldUp:
		return s.lane.now.succeed(s.lane.besides(s))
	case heldUpHere:
		return s.lane.now.succeed(s)
	case killProxy:
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := s.proxy.kill(all); err != nil {
			return err
		}
		return s.start(ctx)
	default:
		all[k].Set(fault.Cut)
		all[k].Set(fault.Open)
		return nil
	}
}
