package chaos

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/fenceproxy/fenceproxy/testharness/child"
	"github.com/fenceproxy/fenceproxy/testharness/fault"
	"github.com/fenceproxy/fenceproxy/testharness/history"
	"github.com/fenceproxy/fenceproxy/testharness/stack"
)

const (
	// database is the one that everything is about.
	database = "chaos"
	// members is how many etcd has.
	members = 3
	// zones is how many links there are from workers to each proxy and to each
	// member of etcd; a worker goes by those of its zone.
	zones = 5
)

// A cluster is all that the workers use, and the links between its parts. Its
// parts may be harmed by one track of faults each at a time: members, proxies
// and the database have no lock of their own.
type cluster struct {
	options *Options
	record  *history.Recorder
	dir     string // of etcd's data
	etcd    []*stack.Member
	db      *pair
	proxies []*stack.Process
	links   map[string]*fault.Link // by name: "proxy-1→etcd-2"
	// forks are what the other members dial, one a member; each goes on by a
	// link of its own.
	forks [members]*fault.Fork
	pids  [members]atomic.Int64 // of the members' processes, 0 for one that was killed
}

// start starts etcd, PostgreSQL and the proxies. After an error close is to be
// called all the same.
func (c *cluster) start(ctx context.Context) (err error) {
	if c.dir, err = os.MkdirTemp("", "fenceproxy-chaos-"); err != nil {
		return fmt.Errorf("make etcd's folder: %w", err)
	}
	c.links = map[string]*fault.Link{}
	if err := errors.Join(c.openLinks(), c.openForks()); err != nil {
		return err
	}
	if err := c.startEtcd(); err != nil {
		return err
	}
	c.db = &pair{cluster: c}
	if err := c.db.start(ctx, c.endpoints("harness")); err != nil {
		return err
	}
	for i := range c.options.Proxies {
		c.proxies = append(c.proxies, nil)
		if err := c.startProxy(ctx, i); err != nil {
			return err
		}
	}
	return nil
}

func (c *cluster) close() error {
	var errs []error
	for _, p := range c.proxies {
		if p != nil {
			p.Kill()
		}
	}
	if c.db != nil {
		errs = append(errs, c.db.close())
	}
	for _, m := range c.etcd {
		errs = append(errs, m.Kill())
	}
	for _, f := range c.forks {
		if f != nil {
			f.Close()
		}
	}
	for _, l := range c.links {
		l.Close()
	}
	if c.dir != "" {
		errs = append(errs, os.RemoveAll(c.dir))
	}
	return errors.Join(errs...)
}

func memberName(i int) string { return fmt.Sprintf("etcd-%d", i+1) }
func proxyName(i int) string  { return fmt.Sprintf("proxy-%d", i+1) }
func zoneName(i int) string   { return fmt.Sprintf("zone-%d", i%zones+1) }

// linkName is a link from who dials to who is dialled.
func linkName(from, to string) string { return from + "→" + to }

// openLinks opens all links; where they lead is not known yet.
func (c *cluster) openLinks() error {
	var names []string
	clients := []string{"harness"}
	for z := range zones {
		clients = append(clients, zoneName(z))
	}
	for i := range c.options.Proxies {
		clients = append(clients, proxyName(i))
		for _, slot := range slots() {
			names = append(names, linkName(proxyName(i), slot))
		}
		for z := range zones {
			names = append(names, linkName(zoneName(z), proxyName(i)))
		}
	}
	for m := range members {
		for other := range members {
			if other != m {
				names = append(names, linkName(memberName(other), memberName(m)))
			}
		}
		for _, client := range clients {
			names = append(names, linkName(client, memberName(m)))
		}
	}
	for z := range zones {
		for _, slot := range slots() {
			names = append(names, linkName(zoneName(z), slot))
		}
	}
	names = append(names, linkStandby)
	for _, name := range names {
		link, err := fault.NewLink("")
		if err != nil {
			return err
		}
		c.links[name] = link
	}
	return nil
}

// lead has all links to one party lead to an address.
func (c *cluster) lead(to, addr string) {
	for name, link := range c.links {
		if strings.HasSuffix(name, "→"+to) {
			link.SetTarget(addr)
		}
	}
}

// linksTo are the names of the links from who dials to parties, by the
// beginnings of their names.
func (c *cluster) linksTo(from, to string) []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(c.links)), func(name string) bool {
		a, b, _ := strings.Cut(name, "→")
		return !strings.HasPrefix(a, from) || !strings.HasPrefix(b, to)
	})
}

// endpoints are etcd's, over the links of one client.
func (c *cluster) endpoints(client string) []string {
	urls := make([]string, members)
	for m := range members {
		urls[m] = "http://" + c.links[linkName(client, memberName(m))].Addr()
	}
	return urls
}

// openForks opens what the members dial. Their addresses must be the same for
// all, since an etcd knows its members by them.
func (c *cluster) openForks() (err error) {
	for m := range members {
		c.forks[m], err = fault.NewFork(func(from, to netip.AddrPort) *fault.Link {
			if c.pids[m].Load() == 0 {
				return nil // nobody is there, whoever dials, and they do so often
			}
			return c.links[linkName(c.dialled(from, to), memberName(m))]
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// dialled is the name of the member that a connection comes from, or "".
func (c *cluster) dialled(from, to netip.AddrPort) string {
	var pids []int
	for m := range members {
		pids = append(pids, int(c.pids[m].Load()))
	}
	pid, err := child.Dialled(from, to, pids...)
	if err != nil || pid == 0 {
		return "" // one that has just been started dials again
	}
	return memberName(slices.Index(pids, pid))
}

func (c *cluster) startEtcd() error {
	var all []string
	for m := range members {
		all = append(all, memberName(m)+"=http://"+c.forks[m].Addr())
	}
	token := rand.Text()
	for m := range members {
		_, peer, _ := strings.Cut(all[m], "=")
		c.etcd = append(c.etcd, stack.NewMember(append(c.options.Self[:len(c.options.Self):len(c.options.Self)], roleMember), stack.MemberConfig{
			Name: memberName(m), Dir: filepath.Join(c.dir, memberName(m)), Peer: peer, Cluster: strings.Join(all, ","), Token: token,
		}))
		if err := c.startMember(m); err != nil {
			return err
		}
	}
	return nil
}

// startMember starts a member, again perhaps, and leads its links to it.
func (c *cluster) startMember(m int) error {
	if err := c.etcd[m].Start(); err != nil {
		return err
	}
	c.pids[m].Store(int64(c.etcd[m].PID()))
	for name, link := range c.links {
		switch from, to, _ := strings.Cut(name, "→"); {
		case to != memberName(m):
		case strings.HasPrefix(from, "etcd-"):
			link.SetTarget(c.etcd[m].Peer)
		default:
			link.SetTarget(c.etcd[m].Client)
		}
	}
	return nil
}

// startProxy starts a proxy, again perhaps, and leads its links to it.
func (c *cluster) startProxy(ctx context.Context, i int) error {
	var servers []string
	for _, slot := range slots() {
		servers = append(servers, c.links[linkName(proxyName(i), slot)].Addr())
	}
	way := stack.Way{
		Upstream: c.db.ProxyDSN(strings.Join(servers, ","), stack.RoleFence, database),
		Etcd:     c.endpoints(proxyName(i)),
	}
	p, err := c.db.Launch(ctx, way, c.options.Program)
	if err != nil {
		return err
	}
	c.proxies[i] = p
	c.lead(proxyName(i), p.Addr)
	return nil
}

// gates are the DSNs of a zone's workers.
func (c *cluster) gates(zone string) []string {
	if c.options.Straight {
		var servers []string
		for _, slot := range slots() {
			servers = append(servers, c.links[linkName(zone, slot)].Addr())
		}
		return []string{c.db.ProxyDSN(strings.Join(servers, ","), stack.RoleApp, database) + "&target_session_attrs=read-write"}
	}
	var gates []string
	for i := range c.options.Proxies {
		gates = append(gates, c.db.ProxyDSN(c.links[linkName(zone, proxyName(i))].Addr(), stack.RoleApp, database))
	}
	return gates
}
