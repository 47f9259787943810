package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/fenceproxy/fenceproxy/fencing"
	"github.com/fenceproxy/fenceproxy/proxy"
)

// upstream is the PostgreSQL that serve protects: a store and a claimer for each
// server that it may be, since a claim must be made where its session lives,
// and the proxy that is before them.
type upstream struct {
	server *proxy.Server
	hosts  []upstreamHost
	asks   bool // it matters which server a session goes to
}

type upstreamHost struct {
	name    string
	store   *fencing.Store
	claimer *fencing.Claimer
	asker   *asker
}

// openUpstream connects to nothing yet. No claim is made before verifyBy.
func openUpstream(d dsn, newClaimer func(*fencing.Store) *fencing.Claimer) *upstream {
	u := &upstream{asks: d.target != nil}
	var hosts proxy.Upstream
	for _, h := range d.hosts {
		store := fencing.NewStoreOf(h.config)
		host := upstreamHost{name: h.name, store: store, claimer: newClaimer(store), asker: newAsker(h, d.target)}
		u.hosts = append(u.hosts, host)
		out := h.upstream()
		out.Claims = host.claimer
		if u.asks {
			out.Ask = host.asker.ask
		}
		hosts = append(hosts, out)
	}
	u.server = proxy.NewServer(hosts, u.hosts[0].claimer)
	for _, h := range u.hosts {
		h.claimer.Evictor = u.server
	}
	return u
}

// observe has an observer hear of every claim.
func (u *upstream) observe(o fencing.Observer) {
	for _, h := range u.hosts {
		h.claimer.Observer = o
	}
}

// verifyBy says who verifies tokens, before the first session.
func (u *upstream) verifyBy(authority fencing.Authority) {
	for _, h := range u.hosts {
		h.claimer.Authority = authority
	}
}

// close ends the sessions first, which use the rest.
func (u *upstream) close() {
	_ = u.server.Close()
	for _, h := range u.hosts {
		h.claimer.Close()
		h.store.Close()
		h.asker.close()
	}
}

// preflight looks whether claims can work, where sessions go now; where that is
// a standby, whether they can on any of the servers.
func (u *upstream) preflight(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	now, err := u.server.Reach(ctx, true)
	if err != nil {
		return fmt.Errorf("find a PostgreSQL to connect to: %w", err)
	}
	err = u.hosts[now].store.Preflight(ctx)
	for i, h := range u.hosts {
		if err == nil {
			return nil
		}
		if i != now && h.store.Preflight(ctx) == nil {
			return nil
		}
	}
	return err
}

// ping says whether there is a server that takes a session.
func (u *upstream) ping(ctx context.Context) error {
	if u.asks {
		_, err := u.server.Reach(ctx, true)
		return err
	}
	var why []error
	for _, h := range u.hosts {
		err := u.pingOne(ctx, h)
		if err == nil {
			return nil
		}
		why = append(why, fmt.Errorf("%s: %w", h.name, err))
	}
	return errors.Join(why...)
}

// pingOne connects anew, as a client would.
func (u *upstream) pingOne(ctx context.Context, h upstreamHost) error {
	a := &asker{config: h.asker.config, before: h.asker.before}
	defer a.close()
	_, err := a.ask(ctx)
	return err
}

// RoleSecret asks the server that sessions go to now, or the first that answers.
func (u *upstream) RoleSecret(ctx context.Context, role string) (secret string, err error) {
	err = u.first(ctx, func(s *fencing.Store) (err error) {
		secret, err = s.RoleSecret(ctx, role)
		return err
	})
	return secret, err
}

// MockKey asks as RoleSecret does.
func (u *upstream) MockKey(ctx context.Context) (key []byte, iterations int, err error) {
	err = u.first(ctx, func(s *fencing.Store) (err error) {
		key, iterations, err = s.MockKey(ctx)
		return err
	})
	return key, iterations, err
}

// first asks the server that sessions go to now; where any will do, the first
// that answers.
func (u *upstream) first(ctx context.Context, ask func(*fencing.Store) error) error {
	if u.asks {
		now, err := u.server.Reach(ctx, false)
		if err != nil {
			return fmt.Errorf("find a PostgreSQL to ask: %w", err)
		}
		return ask(u.hosts[now].store)
	}
	var err error
	for _, h := range u.hosts {
		if err = ask(h.store); err == nil {
			break
		}
	}
	return err
}
