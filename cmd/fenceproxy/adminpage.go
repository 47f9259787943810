package main

import (
	"context"
	"log/slog"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/fenceproxy/fenceproxy/fencing"
	"github.com/fenceproxy/fenceproxy/leases"
	"github.com/fenceproxy/fenceproxy/proxy"
	"github.com/fenceproxy/fenceproxy/proxy/dashboard"
	"github.com/fenceproxy/fenceproxy/proxy/live"
)

// newPage returns the dashboard of a server, for those whom the flags let in.
func (f *adminFlags) newPage(server *proxy.Server, marks dashboard.Marks, authority *leases.Authority, logger *slog.Logger) *dashboard.Dashboard {
	page := dashboard.New(server, server.Journal)
	page.Marks, page.Locks, page.Version = marks, etcdLocks{authority}, buildVersion()
	page.Gate.Logger, page.Gate.Certificates = logger, f.ca != ""
	if f.token.set() {
		page.Gate.Token = f.readToken
	}
	return page
}

// newAdmin returns the admin port of serve.
func (c *serveCommand) newAdmin(registry *prometheus.Registry, u *upstream, authority *leases.Authority, logger *slog.Logger) (*admin, error) {
	encrypted, err := c.admin.open(logger)
	if err != nil {
		return nil, err
	}
	if encrypted == nil && c.admin.listen.exposed() {
		logger.Warn("the admin port doesn't encrypt: whoever is on the network before it can read its token; admin_tls_cert and admin_tls_key mend that")
	}
	a := newAdmin(registry, c.admin.newPage(u.server, u, authority, logger), encrypted, newProbe("upstream", u.ping), newProbe("etcd", authority.Ping))
	a.count(registry)
	return a, nil
}

// count has the page show what the metrics have counted.
func (a *admin) count(gatherer prometheus.Gatherer) {
	stats := serving{gatherer: gatherer}
	a.page.Counters = func() dashboard.Counters {
		c := dashboard.Counters{Draining: a.draining.Load()}
		all, err := stats.Stats()
		if err != nil {
			return c
		}
		for _, s := range all {
			switch n := int(s.Value); s.Name {
			case "fenceproxy_sessions_opened_total":
				c.Opened += n
			case "fenceproxy_refusals_total":
				c.Refused += n
			case "fenceproxy_evictions_total":
				c.Evicted += n
			case "fenceproxy_claims_total":
				if strings.Contains(s.Labels, `outcome="raised"`) {
					c.Claims += n
				}
			}
		}
		return c
	}
}

// MarksOf asks as ListMarks does.
func (u *upstream) MarksOf(ctx context.Context, database string, keys []string) (marks []fencing.ListedMark, err error) {
	err = u.first(ctx, func(s *fencing.Store) (err error) {
		marks, err = s.MarksOf(ctx, database, keys)
		return err
	})
	return marks, err
}

// leasesAtOnce is how many leases etcd is asked for at the same time.
const leasesAtOnce = 8

// etcdLocks is dashboard.Locks and console.Locks.
type etcdLocks struct{ authority *leases.Authority }

// HeldLocks asks once for the holders, and for the lease of each.
func (e etcdLocks) HeldLocks(ctx context.Context, keys []string) ([]live.Lock, error) {
	held, err := e.authority.Held(ctx, keys)
	if err != nil {
		return nil, err
	}
	all := make([]live.Lock, len(held))
	var asking errgroup.Group
	asking.SetLimit(leasesAtOnce)
	for i, lock := range held {
		all[i] = live.Lock{Key: lock.Key, Token: lock.Token, Waiting: lock.Waiting}
		asking.Go(func() error {
			if left, err := e.authority.Left(ctx, lock); err == nil {
				all[i].Left = left
			} // else who holds the lock is known all the same
			return nil
		})
	}
	return all, asking.Wait()
}
