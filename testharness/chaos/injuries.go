package chaos

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/fenceproxy/fenceproxy/testharness/fault"
	"github.com/fenceproxy/fenceproxy/testharness/stack"
)

// The kinds of faults.
const (
	pauseWorker  = "pause worker"
	killWorker   = "kill worker"
	pauseProxy   = "pause proxy"
	killProxy    = "kill proxy"
	pauseMember  = "pause etcd"
	killMember   = "kill etcd"
	pausePrimary = "pause primary"
	stopPrimary  = "restart primary"
	killPrimary  = "kill primary"
	killStandby  = "kill standby"
	killBackend  = "kill backend"
	failover     = "failover"
	failoverOld  = "failover, old primary awake"
	failoverLate = "failover, standby behind"
)

// leader is the member of etcd that leads when the fault begins.
const leader = "leader"

// repairTime bounds how long a repair may be tried while other faults are in
// its way.
const repairTime = 90 * time.Second

// injuries are what the kinds of faults do to a cluster and its workers.
func (c *cluster) injuries(crew *crew) map[string]fault.Injury {
	all := map[string]fault.Injury{
		pauseWorker: crew.pause, killWorker: crew.kill,
		pauseProxy: c.pauseProxy, killProxy: c.killProxy,
		pauseMember: c.pauseMember, killMember: c.killMember,
		pausePrimary: c.db.pausePrimary, stopPrimary: c.db.stopPrimary, killPrimary: c.db.killPrimary,
		killStandby: c.db.killStandby, killBackend: c.db.killBackend,
		failover: c.db.failover, failoverOld: c.db.failoverOld, failoverLate: c.db.failoverLate,
	}
	for _, mode := range linkModes() {
		all[mode.String()] = func(_ context.Context, target string) (func(context.Context) error, error) {
			return c.setLinks(target, mode)
		}
	}
	return all
}

func linkModes() []fault.Mode {
	return []fault.Mode{fault.Cut, fault.Silent, fault.SilentThere, fault.SilentBack, fault.Slow}
}

// both joins the names of parties that dial each other: what goes from the first
// to the second is there, whoever dialled.
const both = "↔"

// modes are those of all links between parties: target is the beginnings of their
// names.
func (c *cluster) modes(target string, mode fault.Mode) map[string]fault.Mode {
	from, to, _ := strings.Cut(strings.Replace(target, both, "→", 1), "→")
	modes := map[string]fault.Mode{}
	if strings.Contains(target, both) {
		for _, name := range c.linksTo(to, from) {
			modes[name] = mode.Reversed()
		}
	}
	for _, name := range c.linksTo(from, to) {
		modes[name] = mode
	}
	return modes
}

// setLinks puts all links between parties into a mode.
func (c *cluster) setLinks(target string, mode fault.Mode) (func(context.Context) error, error) {
	modes := c.modes(target, mode)
	if len(modes) == 0 {
		return nil, fmt.Errorf("no link is called %s", target)
	}
	for name, mode := range modes {
		c.links[name].Set(mode)
	}
	return func(context.Context) error {
		for name := range modes {
			c.links[name].Set(fault.Open)
		}
		return nil
	}, nil
}

// persist tries a repair until it succeeds: what it needs may be broken too.
func persist(ctx context.Context, repair func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, repairTime)
	defer cancel()
	for {
		try, cancel := context.WithTimeout(ctx, repairTime/3)
		err := repair(try)
		cancel()
		if err == nil || !pause(ctx) {
			return err
		}
	}
}

func (c *cluster) pauseProxy(_ context.Context, target string) (func(context.Context) error, error) {
	p := c.proxies[number(target, proxyName, len(c.proxies))]
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		return nil, err
	}
	return func(context.Context) error { return p.Signal(syscall.SIGCONT) }, nil
}

func (c *cluster) killProxy(_ context.Context, target string) (func(context.Context) error, error) {
	i := number(target, proxyName, len(c.proxies))
	c.proxies[i].Kill()
	return func(ctx context.Context) error {
		return persist(ctx, func(ctx context.Context) error { return c.startProxy(ctx, i) })
	}, nil
}

// member is the one that a target means.
func (c *cluster) member(ctx context.Context, target string) int {
	if target != leader {
		return number(target, memberName, members)
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	for i, endpoint := range c.endpoints("harness") {
		if status, err := c.db.Client.Status(ctx, endpoint); err == nil && status.Leader == status.Header.MemberId {
			return i
		}
	}
	return 0 // nobody leads: any will do
}

func (c *cluster) pauseMember(ctx context.Context, target string) (func(context.Context) error, error) {
	m := c.etcd[c.member(ctx, target)]
	if err := m.Signal(syscall.SIGSTOP); err != nil {
		return nil, err
	}
	return func(context.Context) error { return m.Signal(syscall.SIGCONT) }, nil
}

func (c *cluster) killMember(ctx context.Context, target string) (func(context.Context) error, error) {
	m := c.member(ctx, target)
	c.pids[m].Store(0)
	if err := c.etcd[m].Kill(); err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		return persist(ctx, func(context.Context) error { return c.startMember(m) })
	}, nil
}

func (p *pair) pausePrimary(context.Context, string) (func(context.Context) error, error) {
	primary := p.servers[p.primary]
	primary.Pause()
	return func(context.Context) error { primary.Resume(); return nil }, nil
}

func (p *pair) stopPrimary(context.Context, string) (func(context.Context) error, error) {
	return p.restarted(p.servers[p.primary].Stop())
}

func (p *pair) killPrimary(context.Context, string) (func(context.Context) error, error) {
	return p.restarted(p.servers[p.primary].Kill())
}

func (p *pair) restarted(err error) (func(context.Context) error, error) {
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		if err := persist(ctx, p.servers[p.primary].Restart); err != nil {
			return err
		}
		if err := p.noteMarks(ctx); err != nil {
			return err
		}
		return p.replicated(ctx)
	}, nil
}

func (p *pair) killStandby(context.Context, string) (func(context.Context) error, error) {
	standby := p.servers[p.standby()]
	if err := standby.Kill(); err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		if err := persist(ctx, standby.Restart); err != nil {
			return err
		}
		return p.replicated(ctx)
	}, nil
}

// killBackend kills a session's process, upon which PostgreSQL ends all others
// and recovers.
func (p *pair) killBackend(ctx context.Context, _ string) (func(context.Context) error, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	conn, err := p.connect(ctx)
	if err != nil {
		return nil, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	var pid int
	err = conn.QueryRow(ctx, "SELECT coalesce(min(pid), 0) FROM pg_stat_activity WHERE usename = $1", stack.RoleApp).Scan(&pid)
	if err != nil {
		return nil, fmt.Errorf("look for a backend: %w", err)
	}
	if pid > 0 {
		_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended by itself
	}
	return p.replicated, nil
}

// failover kills the primary and promotes the standby. A new standby takes the
// old primary's place.
func (p *pair) failover(ctx context.Context, _ string) (func(context.Context) error, error) {
	if err := p.replicated(ctx); err != nil {
		return nil, err
	}
	if err := p.servers[p.primary].Kill(); err != nil {
		return nil, err
	}
	return p.promoted(ctx)
}

// failoverOld promotes the standby while the primary hangs, and wakes that: it
// takes itself for the primary, and its sessions go on, until a new standby
// takes its place.
func (p *pair) failoverOld(ctx context.Context, _ string) (func(context.Context) error, error) {
	if err := p.replicated(ctx); err != nil {
		return nil, err
	}
	old := p.servers[p.primary]
	old.Pause()
	heal, err := p.promoted(ctx)
	old.Resume()
	return heal, err
}

// failoverLate has the standby hear nothing any more, and promotes it in the
// end: whatever was committed meanwhile is lost, which nobody was told of.
func (p *pair) failoverLate(ctx context.Context, _ string) (func(context.Context) error, error) {
	if err := p.replicated(ctx); err != nil {
		return nil, err
	}
	link := p.cluster.links[linkStandby]
	link.Set(fault.Silent)
	return func(ctx context.Context) error {
		err := p.servers[p.primary].Kill()
		link.Set(fault.Cut) // what it has kept back is lost
		var heal func(context.Context) error
		if err == nil {
			heal, err = p.promoted(ctx)
		}
		link.Set(fault.Open)
		if err != nil {
			return err
		}
		return heal(ctx)
	}, nil
}

func (p *pair) promoted(ctx context.Context) (func(context.Context) error, error) {
	if err := p.servers[p.standby()].Promote(ctx); err != nil {
		return nil, err
	}
	p.primary = p.standby()
	if err := p.noteMarks(ctx); err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		if err := persist(ctx, p.rebuild); err != nil {
			return err
		}
		return p.replicated(ctx)
	}, nil
}

// number is which of several a name means; names are made by this package.
func number(target string, name func(int) string, n int) int {
	names := make([]string, n)
	for i := range names {
		names[i] = name(i)
	}
	return max(slices.Index(names, target), 0)
}
