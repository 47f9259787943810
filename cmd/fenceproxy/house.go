package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/jackc/pgx/v5"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fenceproxy/fenceproxy/fencing"
	"github.com/fenceproxy/fenceproxy/leases"
	"github.com/fenceproxy/fenceproxy/leases/embedded"
	"github.com/fenceproxy/fenceproxy/testharness/fault"
	"github.com/fenceproxy/fenceproxy/testharness/postgres"
	"github.com/fenceproxy/fenceproxy/testharness/scenario"
	"github.com/fenceproxy/fenceproxy/testharness/stack"
)

// gatesEach is how many gates a run has: machines with workers, and in a
// fenced run with a proxy, that can be cut off from etcd.
const gatesEach = 2

// A house is what one run has to itself: a database, gates with proxies and
// links to etcd, servers if the story has a standby, and an etcd in the place
// of the theatre's if the story replaces it. It is the scenario.Backstage of
// the run.
type house struct {
	theatre          *theatre
	stack            *stack.Stack // the theatre's, or that of servers
	servers          *servers     // nil but for a story with a standby
	flags            []string     // of the proxies, beside those that all have
	database, prefix string

	gates  []*scenario.Gate
	dir    string // data of etcd
	etcd   *embedded.Etcd
	client *clientv3.Client // of etcd
}

// open opens the gates.
func (h *house) open(ctx context.Context, arm scenario.Arm, standby scenario.Standby) (err error) {
	h.stack = h.theatre.stack
	if standby != scenario.StandbyNone {
		if h.servers, err = startServers(ctx, h.theatre.stack, standby); err != nil {
			return err
		}
		h.stack = h.servers.stack
	}
	if err := h.stack.CreateDatabase(ctx, h.database); err != nil {
		return err
	}
	if arm == scenario.ArmFenced {
		if err := h.stack.Install(ctx, h.database); err != nil {
			return err
		}
	}
	for i := range gatesEach {
		link, err := fault.NewLink(strings.TrimPrefix(h.theatre.stack.Etcd.Endpoint(), "http://"))
		if err != nil {
			return err
		}
		gate := &scenario.Gate{DSN: h.dsn(stack.RoleApp), Etcd: link}
		h.gates = append(h.gates, gate)
		if arm == scenario.ArmFenced {
			if err := h.man(ctx, gate, i+1); err != nil {
				return err
			}
		}
	}
	return nil
}

// man puts a proxy behind a gate, a process of its own.
func (h *house) man(ctx context.Context, gate *scenario.Gate, nr int) error {
	p, err := h.startProxy(ctx, gate, "127.0.0.1:0")
	if err != nil {
		return err
	}
	gate.Name = fmt.Sprintf("%s %d", scenario.LaneProxy, nr)
	gate.DSN = h.stack.ProxyDSN(p.Addr, stack.RoleApp, h.database)
	gate.Proxy = p
	gate.Restart = func(ctx context.Context) (scenario.Process, error) { return h.startProxy(ctx, gate, p.Addr) }
	return nil
}

func (h *house) startProxy(ctx context.Context, gate *scenario.Gate, addr string) (*stack.Process, error) {
	h.theatre.mu.Lock()
	defer h.theatre.mu.Unlock()
	way := stack.Way{Upstream: h.dsn(stack.RoleFence), Etcd: []string{"http://" + gate.Etcd.Addr()}}
	flags := append([]string{"--lock-prefix", h.prefix, "--listen", addr}, h.flags...)
	return h.stack.Launch(ctx, way, []string{h.theatre.self}, flags...)
}

// dsn is how a role reaches the run's database, round every proxy.
func (h *house) dsn(role string) string {
	if h.servers != nil {
		return h.stack.ProxyDSN(h.servers.link.Addr(), role, h.database)
	}
	return h.stack.DSN(role, h.database)
}

// close ends all that the run had to itself, but for its database.
func (h *house) close() error {
	for _, g := range h.gates {
		if g.Proxy != nil {
			g.Proxy.Kill()
		}
		g.Etcd.Close()
	}
	var err error
	if h.servers != nil {
		err = h.servers.close()
	}
	if h.client != nil {
		h.client.Close()
	}
	if h.etcd != nil {
		h.etcd.Close()
	}
	if h.dir != "" {
		err = errors.Join(err, os.RemoveAll(h.dir))
	}
	return err
}

// Protect is fenceproxy protect, by a role that may make triggers on the
// application's table.
func (h *house) Protect(ctx context.Context, table, template string) error {
	key, err := fencing.ParseTemplate(template)
	if err != nil {
		return err
	}
	conn, err := pgx.Connect(ctx, h.dsn(postgres.Superuser))
	if err != nil {
		return fmt.Errorf("connect to guard %s: %w", table, err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	_, err = fencing.Protect(ctx, conn, table, key, fencing.ReplicaUnset)
	return err
}

// ReplaceEtcd has all gates lead to an etcd that has just been made, instead
// of the one before.
func (h *house) ReplaceEtcd(ctx context.Context) (*clientv3.Client, error) {
	if h.etcd != nil {
		return nil, errors.New("etcd was replaced before")
	}
	var err error
	if h.dir, err = os.MkdirTemp("", "fenceproxy-etcd-"); err != nil {
		return nil, fmt.Errorf("make etcd's folder: %w", err)
	}
	etcd := embedded.New(h.dir)
	etcd.Addr = "127.0.0.1:0"
	if err := etcd.Start(ctx); err != nil {
		return nil, err
	}
	h.etcd = etcd
	if h.client, err = leases.NewClient([]string{etcd.Endpoint()}, nil); err != nil {
		return nil, err
	}
	for _, g := range h.gates {
		g.Etcd.SetTarget(strings.TrimPrefix(etcd.Endpoint(), "http://"))
		g.Etcd.Set(fault.Cut)
		g.Etcd.Set(fault.Open)
	}
	return h.client, nil
}

// AdoptEtcd is fenceproxy adopt-lineage, for the etcd that the gates lead to.
func (h *house) AdoptEtcd(ctx context.Context) error {
	cluster, revision, err := leases.NewAuthority(h.client).Position(ctx)
	if err != nil {
		return err
	}
	conn, err := pgx.Connect(ctx, h.dsn(stack.RoleFence))
	if err != nil {
		return fmt.Errorf("connect to adopt etcd: %w", err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	old, err := fencing.LineageOf(ctx, conn)
	if err != nil {
		return err
	}
	_, err = fencing.Adopt(ctx, conn, old, cluster, revision, "the demo")
	return err
}
