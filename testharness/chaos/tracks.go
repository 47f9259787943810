package chaos

import (
	"time"

	"github.com/fenceproxy/fenceproxy/testharness/fault"
)

// workerTracks is how many workers are harmed at a time, at most.
const workerTracks = 4

// Plan is the plan of faults that a run of these options carries out.
func Plan(o Options) []fault.Event { return fault.Draw(o.Seed, o.Duration, o.Calm, o.tracks()...) }

// tracks are the lines of faults of a run.
func (o *Options) tracks() []fault.Track {
	tracks := []fault.Track{o.databaseTrack(), o.etcdTrack(), o.proxyTrack(), o.nearTrack(), o.proxyLinksTrack(), o.farTrack()}
	for i := range workerTracks {
		if t := o.workerTrack(i); len(t.Cards) > 0 {
			tracks = append(tracks, t)
		}
	}
	return tracks
}

func (o *Options) databaseTrack() fault.Track {
	card := func(kind string, most time.Duration) fault.Card {
		return fault.Card{Kind: kind, Targets: []string{""}, Most: most}
	}
	return fault.Track{Name: "database", Least: 4 * time.Second, Most: 12 * time.Second, Cards: []fault.Card{
		card(failover, time.Second), card(failoverOld, 5*time.Second), card(stopPrimary, time.Second), card(killPrimary, time.Second),
		card(killStandby, 3*time.Second), card(killBackend, time.Second), card(pausePrimary, 3*time.Second),
		// Long enough for leases to run out whose holders wait for a commit.
		{Kind: failoverLate, Targets: []string{""}, Least: 2 * time.Second, Most: 5 * time.Second},
	}}
}

func (o *Options) etcdTrack() fault.Track {
	return fault.Track{Name: "etcd", Least: 3 * time.Second, Most: 10 * time.Second, Cards: []fault.Card{
		{Kind: killMember, Targets: named(memberName, members), Most: 4 * time.Second},
		{Kind: pauseMember, Targets: named(memberName, members), Most: 4 * time.Second},
		{Kind: killMember, Targets: []string{leader}, Most: 3 * time.Second},
		{Kind: pauseMember, Targets: []string{leader}, Most: 4 * time.Second},
	}}
}

func (o *Options) proxyTrack() fault.Track {
	targets := named(proxyName, o.Proxies)
	return fault.Track{Name: "proxies", Least: 2 * time.Second, Most: 8 * time.Second, Cards: []fault.Card{
		{Kind: killProxy, Targets: targets, Most: 2 * time.Second},
		{Kind: pauseProxy, Targets: targets, Most: 3 * mostTTL},
	}}
}

// nearTrack harms the links of workers: to one proxy or member, or to all.
func (o *Options) nearTrack() fault.Track {
	var targets []string
	for _, zone := range named(zoneName, zones) {
		gates := append(named(proxyName, o.Proxies), "proxy")
		if o.Straight {
			gates = append(slots(), "pg")
		}
		targets = append(targets, zone+"→", zone+"→etcd")
		for _, to := range append(gates, named(memberName, members)...) {
			targets = append(targets, linkName(zone, to))
		}
	}
	return links("near links", targets)
}

// proxyLinksTrack harms the links of the proxies to PostgreSQL, on which a claim
// that etcd has confirmed can get stuck until it is too late.
func (o *Options) proxyLinksTrack() fault.Track {
	var targets []string
	for _, p := range named(proxyName, o.Proxies) {
		targets = append(targets, p+"→pg")
	}
	t := links("proxy links", targets)
	t.Most = 3 * time.Second
	for i := range t.Cards {
		if kind := t.Cards[i].Kind; kind == fault.Silent.String() || kind == fault.SilentThere.String() {
			t.Cards[i].Copies, t.Cards[i].Most = 2, 6*time.Second
		}
	}
	return t
}

// farTrack harms the other links that the workers don't see.
func (o *Options) farTrack() fault.Track {
	targets := []string{linkStandby, linkStandby, "proxy→etcd", "etcd→etcd"}
	for _, p := range named(proxyName, o.Proxies) {
		targets = append(targets, p+"→etcd")
		for _, m := range named(memberName, members) {
			targets = append(targets, linkName(p, m))
		}
	}
	for i, m := range named(memberName, members) {
		// One member and all others, and one and another one.
		targets = append(targets, m+both+"etcd", m+both+memberName((i+1)%members))
	}
	return links("far links", targets)
}

func links(name string, targets []string) fault.Track {
	t := fault.Track{Name: name, Least: time.Second, Most: 6 * time.Second}
	for _, mode := range linkModes() {
		t.Cards = append(t.Cards, fault.Card{Kind: mode.String(), Targets: targets, Least: 100 * time.Millisecond, Most: 4 * time.Second})
	}
	return t
}

// workerTrack harms every fourth worker: for as long as three leases last, and
// so that it is often paused with its lock lost.
func (o *Options) workerTrack(i int) fault.Track {
	t := fault.Track{Name: "workers " + string(rune('a'+i)), Most: time.Second, Worker: true}
	var targets []string
	for w := i; w < o.Workers; w += workerTracks {
		targets = append(targets, workerName(w))
	}
	if len(targets) > 0 {
		t.Cards = []fault.Card{
			{Kind: pauseWorker, Targets: targets, Most: 3 * mostTTL, Copies: 3}, {Kind: killWorker, Targets: targets, Most: time.Second},
		}
	}
	return t
}

func named(name func(int) string, n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = name(i)
	}
	return out
}
