package steps_test

import (
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fenceproxy/fenceproxy/fencing"
	"github.com/fenceproxy/fenceproxy/leases"
	"github.com/fenceproxy/fenceproxy/proxy"
	"github.com/fenceproxy/fenceproxy/testharness/fault"
	"github.com/fenceproxy/fenceproxy/testharness/history"
)

// evictAfter keeps a claim from waiting long for what is in its way.
const evictAfter = 5 * time.Millisecond

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
	err := s.strike(k)
	f.End = history.Now()
	m.mu.Lock()
	m.busy = false
	if k != heldUp { // or the next holder's claim could take its time, too
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
	kinds
)

func (k kind) String() string {
	return [...]string{"client cut off", "PostgreSQL cut off", "etcd cut off", "proxy killed", "sessions ended in PostgreSQL", "held up"}[k]
}

// A side is a proxy and the links around it.
type side struct {
	lane                   *lane
	client, postgres, etcd *fault.Link
	upstream               *pgxpool.Config

	server *proxy.Server
	claims *fencing.Claimer
	store  *fencing.Store
	locks  *clientv3.Client
	served chan error
}

func newSide(t *testing.T, l *lane, g *ground) *side {
	t.Helper()
	s := &side{lane: l}
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
	config, err := pgxpool.ParseConfig(l.dsn)
	if err != nil {
		t.Fatal(err)
	}
	host, port, err := net.SplitHostPort(s.postgres.Addr())
	if err != nil {
		t.Fatal(err)
	}
	config.ConnConfig.Host = host
	if _, err := fmt.Sscan(port, &config.ConnConfig.Port); err != nil {
		t.Fatal(err)
	}
	s.upstream = config
	if err := s.start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.stop(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// start starts the proxy and leads its clients' link to it.
func (s *side) start() (err error) {
	s.store = fencing.NewStoreOf(s.upstream.Copy())
	if s.locks, err = leases.NewClient([]string{"http://" + s.etcd.Addr()}, nil); err != nil {
		return err
	}
	s.claims = fencing.NewClaimer(s.store, leases.NewAuthority(s.locks), nil)
	s.claims.EvictAfter = evictAfter
	s.server = proxy.NewServer(proxy.TCP(s.postgres.Addr()), s.claims)
	s.claims.Evictor = s.server
	ln, err := listen()
	if err != nil {
		return err
	}
	s.served = make(chan error, 1)
	go func() { s.served <- s.server.Serve(ln) }()
	s.client.SetTarget(ln.Addr().String())
	return nil
}

func (s *side) stop() error {
	err := s.server.Close()
	if served := <-s.served; err == nil {
		err = served
	}
	s.claims.Close()
	s.store.Close()
	s.locks.Close()
	return err
}

// strike breaks something, and has it mended when it returns. A proxy in this
// process is killed by cutting all of its links at once, before it can do
// anything about it: that is all that others see of a process that is killed.
func (s *side) strike(k kind) error {
	all := []*fault.Link{s.client, s.postgres, s.etcd}
	switch k {
	case endBackends:
		return s.lane.endSessions()
	case heldUp:
		return s.lane.now.succeed(s)
	case killProxy:
		for _, link := range all {
			link.Set(fault.Cut)
		}
		if err := s.stop(); err != nil {
			return err
		}
		if err := s.start(); err != nil {
			return err
		}
		for _, link := range all {
			link.Set(fault.Open)
		}
	default:
		all[k].Set(fault.Cut)
		all[k].Set(fault.Open)
	}
	return nil
}
