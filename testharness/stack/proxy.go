package stack

import (
	"errors"
	"fmt"
	"log/slog"
	"net"

	"github.com/fenceproxy/fenceproxy/fencing"
	"github.com/fenceproxy/fenceproxy/leases"
	"github.com/fenceproxy/fenceproxy/proxy"
)

// A Proxy is a proxy in this process.
type Proxy struct {
	Server  *proxy.Server
	Claimer *fencing.Claimer
	Store   *fencing.Store // nil: it is closed

	ln     net.Listener
	served chan error
}

// StartProxy starts a proxy whose claims run in the databases of the stack;
// database is the one that its DSN names. addr "" takes a free port.
func (s *Stack) StartProxy(database, addr string, logger *slog.Logger) (*Proxy, error) {
	p, err := s.OpenProxy(database, addr, logger)
	if err != nil {
		return nil, err
	}
	p.Serve()
	return p, nil
}

// OpenProxy is StartProxy for a proxy that is furnished before its first session:
// clients wait until it is told to Serve.
func (s *Stack) OpenProxy(database, addr string, logger *slog.Logger) (*Proxy, error) {
	store, err := fencing.NewStore(s.DSN(RoleFence, database))
	if err != nil {
		return nil, fmt.Errorf("open upstream: %w", err)
	}
	if addr == "" {
		addr = "127.0.0.1:0"
	}
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		store.Close()
		return nil, fmt.Errorf("listen for clients: %w", err)
	}
	claimer := fencing.NewClaimer(store, leases.NewAuthority(s.Client), nil)
	server := proxy.NewServer(proxy.TCP(s.Postgres.Addr()), claimer)
	if logger != nil {
		server.Logger = logger
	}
	claimer.Evictor = server
	server.Lender, server.Lending.Allow = leases.NewLender(s.Client), true
	p := &Proxy{Server: server, Claimer: claimer, Store: store, ln: ln}
	s.proxies = append(s.proxies, p)
	return p, nil
}

// Serve begins to take sessions.
func (p *Proxy) Serve() {
	p.served = make(chan error, 1)
	go p.serve()
}

// serve ends when the server is closed.
func (p *Proxy) serve() { p.served <- p.Server.Serve(p.ln) }

// Addr is where clients connect.
func (p *Proxy) Addr() string { return p.ln.Addr().String() }

// Close cuts all sessions off and ends the proxy. It may be called twice.
func (p *Proxy) Close() error {
	if p.Store == nil {
		return nil
	}
	err := p.Server.Close()
	if p.served == nil {
		p.ln.Close()
	} else {
		err = errors.Join(err, <-p.served)
	}
	p.Claimer.Close()
	p.Store.Close()
	p.Store = nil
	return err
}
