package steps_test

import (
	"context"
	"errors"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fenceproxy/fenceproxy/fencing"
	"github.com/fenceproxy/fenceproxy/leases"
	"github.com/fenceproxy/fenceproxy/proxy"
	"github.com/fenceproxy/fenceproxy/testharness/fault"
	"github.com/fenceproxy/fenceproxy/testharness/stack"
)

// evictAfter keeps a claim from waiting long for what is in its way.
const evictAfter = 5 * time.Millisecond

// A program is a proxy that can be killed, and started again.
type program interface {
	// start returns where clients connect.
	start(ctx context.Context, upstream, etcd string) (addr string, err error)
	// kill ends it at once, whatever it is at. links are all that it has.
	kill(links []*fault.Link) error
	// stop ends it for good.
	stop() error
}

// An inside is a proxy in this process. It is killed by cutting all of its links
// at once, before it can do anything about it: that is all that others see of a
// process that is killed.
type inside struct {
	server *proxy.Server
	claims *fencing.Claimer
	store  *fencing.Store
	locks  *clientv3.Client
	served chan error
}

func (p *inside) start(_ context.Context, upstream, etcd string) (addr string, err error) {
	if p.store, err = fencing.NewStore(upstream); err != nil {
		return "", err
	}
	if p.locks, err = leases.NewClient([]string{etcd}, nil); err != nil {
		return "", err
	}
	p.claims = fencing.NewClaimer(p.store, leases.NewAuthority(p.locks), nil)
	p.claims.EvictAfter = evictAfter
	server, err := url.Parse(upstream)
	if err != nil {
		return "", err
	}
	p.server = proxy.NewServer(proxy.TCP(server.Host), p.claims)
	p.claims.Evictor = p.server
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	p.served = make(chan error, 1)
	go func() { p.served <- p.server.Serve(ln) }()
	return ln.Addr().String(), nil
}

func (p *inside) kill(links []*fault.Link) error {
	for _, link := range links {
		link.Set(fault.Cut)
	}
	err := p.stop()
	for _, link := range links {
		link.Set(fault.Open)
	}
	return err
}

func (p *inside) stop() error {
	if p.served == nil {
		return nil
	}
	err := errors.Join(p.server.Close(), <-p.served)
	p.claims.Close()
	p.store.Close()
	p.locks.Close()
	p.served = nil
	return err
}

// A separate is a proxy in a process of its own, which is killed by SIGKILL. What
// it has sent is on its way then, and arrives.
type separate struct {
	file    string // the program
	stack   stack.Stack
	process *stack.Process
}

func (p *separate) start(ctx context.Context, upstream, etcd string) (addr string, err error) {
	p.process, err = p.stack.Launch(ctx, stack.Way{Upstream: upstream, Etcd: []string{etcd}}, []string{p.file}, "--evict-after", evictAfter.String())
	if err != nil {
		return "", err
	}
	return p.process.Addr, nil
}

func (p *separate) kill([]*fault.Link) error {
	p.process.Kill()
	return nil
}

func (p *separate) stop() error { return p.stack.Close() }

// build makes the program that a separate runs.
func build(t *testing.T) (file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "fenceproxy")
	cmd := exec.Command("go", "build", "-o", file, "github.com/fenceproxy/fenceproxy/cmd/fenceproxy")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build fenceproxy: %v: %s", err, out)
	}
	return file
}
