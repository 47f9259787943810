package stack

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fenceproxy/fenceproxy/leases"
	"github.com/fenceproxy/fenceproxy/leases/embedded"
	"github.com/fenceproxy/fenceproxy/testharness/postgres"
)

// Options say what stack to start. The zero value takes free ports.
type Options struct {
	Postgres postgres.Options // Auth is SCRAM, whatever it says
	EtcdAddr string           // host:port on loopback; "" takes a free port
	// Endpoints are those of an etcd that runs already and stays the caller's:
	// none is started then, and Etcd is nil.
	Endpoints []string
}

// A Stack is a PostgreSQL and an etcd, and the proxies started on them.
type Stack struct {
	Postgres *postgres.Server
	Etcd     *embedded.Etcd
	Client   *clientv3.Client // of Etcd

	endpoints []string
	dir       string            // etcd's data
	passwords map[string]string // of the roles, by name
	proxies   []*Proxy
	processes []*Process
}

// Start starts PostgreSQL and etcd and makes the roles. After an error nothing
// is left running.
func Start(ctx context.Context, options Options) (*Stack, error) {
	s := &Stack{passwords: map[string]string{}}
	if err := s.start(ctx, options); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (s *Stack) start(ctx context.Context, options Options) (err error) {
	if options.Postgres.Password == "" {
		options.Postgres.Password = rand.Text()
	}
	options.Postgres.Auth = postgres.AuthSCRAM
	s.passwords[postgres.Superuser] = options.Postgres.Password
	s.passwords[RoleFence], s.passwords[RoleApp] = rand.Text(), rand.Text()
	if s.Postgres, err = postgres.Start(ctx, options.Postgres); err != nil {
		return err
	}
	if s.endpoints = options.Endpoints; len(s.endpoints) == 0 {
		if err := s.startEtcd(ctx, options.EtcdAddr); err != nil {
			return err
		}
	}
	if s.Client, err = leases.NewClient(s.endpoints, nil); err != nil {
		return err
	}
	return s.createRoles(ctx)
}

func (s *Stack) startEtcd(ctx context.Context, addr string) (err error) {
	if s.dir, err = os.MkdirTemp("", "fenceproxy-etcd-"); err != nil {
		return fmt.Errorf("make etcd's folder: %w", err)
	}
	etcd := embedded.New(s.dir)
	etcd.Addr = "127.0.0.1:0"
	if addr != "" {
		etcd.Addr = addr
	}
	if err := etcd.Start(ctx); err != nil {
		return err
	}
	s.Etcd, s.endpoints = etcd, []string{etcd.Endpoint()}
	return nil
}

// Close ends all of it and removes what it wrote. It may be called twice.
func (s *Stack) Close() error {
	var errs []error
	for _, p := range s.processes {
		p.Kill()
	}
	for _, p := range s.proxies {
		errs = append(errs, p.Close())
	}
	s.processes, s.proxies = nil, nil
	if s.Client != nil {
		s.Client.Close()
		s.Client = nil
	}
	if s.Etcd != nil {
		s.Etcd.Close()
		s.Etcd = nil
	}
	if s.dir != "" {
		errs = append(errs, os.RemoveAll(s.dir))
		s.dir = ""
	}
	if s.Postgres != nil {
		errs = append(errs, s.Postgres.Close())
		s.Postgres = nil
	}
	return errors.Join(errs...)
}
