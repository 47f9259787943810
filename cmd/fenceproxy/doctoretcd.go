package main

import (
	"context"

	"github.com/fenceproxy/fenceproxy/fencing"
	"github.com/fenceproxy/fenceproxy/leases"
)

// lookAtEtcd looks at etcd's members and at its history; l is nil where the
// marks' is not known.
func lookAtEtcd(ctx context.Context, d *diagnosis, authority *leases.Authority, l *fencing.Lineage) {
	ctx, cancel := context.WithTimeout(ctx, doctorTimeout)
	defer cancel()
	d.area = "etcd"
	lookAtMembers(ctx, d, authority)
	short, stop := context.WithTimeout(ctx, startTimeout)
	defer stop()
	survey, err := authority.Survey(short)
	if err != nil {
		d.fail("Start it, or mend --etcd.", "no new claim can be verified: %v", err)
		return
	}
	d.ok("cluster %s answers at revision %d; locks held: %d", survey.Cluster, survey.Revision, len(survey.Locks))
	if len(survey.Strays) > 0 {
		d.warn("Escape slashes and spaces of a key as in a URL, as `fenceproxy lock` does.",
			"below %s there are keys that are no lock's, most often of a key that was not escaped: %s", authority.Prefix, some(survey.Strays))
	}
	if l != nil {
		d.area = "Lineage"
		lookAtLineage(d, survey, *l)
	}
}

func lookAtMembers(ctx context.Context, d *diagnosis, authority *leases.Authority) {
	members, voters := authority.Members(ctx)
	reached, cluster := 0, ""
	for _, m := range members {
		role := "a follower"
		switch {
		case m.Leads:
			role = "the leader"
		case m.Learner:
			role = "a learner"
		}
		switch {
		case m.Err != nil:
			d.warn("Start it, or take it out of --etcd.", "member %s: %v", m.Endpoint, m.Err)
			continue
		case len(m.Troubles) > 0:
			d.fail("etcdctl alarm list; the operations guide of etcd tells how to mend each.", "member %s, version %s, %s: %s", m.Endpoint, m.Version, role, some(m.Troubles))
		case cluster != "" && m.Cluster != cluster:
			d.fail("Let --etcd name the members of one cluster.", "member %s belongs to cluster %s, and another one to %s: tokens of the two can't be compared", m.Endpoint, m.Cluster, cluster)
		default:
			d.ok("member %s, version %s, %s", m.Endpoint, m.Version, role)
		}
		reached++
		cluster = m.Cluster
	}
	if voters > len(members) {
		d.warn("Name the others too, so that claims go on when these are away.", "--etcd names %d of %d members", len(members), voters)
	}
}

// lookAtLineage looks whether etcd's history is the one that the marks came from.
func lookAtLineage(d *diagnosis, survey leases.Survey, l fencing.Lineage) {
	fits, why := l.Fits(survey.Cluster, survey.Revision)
	switch {
	case !fits:
		d.fail("If etcd was replaced or restored for good: fenceproxy adopt-lineage.", "%s: every new claim is refused (LF006)", why)
	case l.Epoch == 0:
		d.ok("no claim was ever made in this database")
	default:
		d.ok("epoch %d, cluster %s, seen up to revision %d: etcd's history fits", l.Epoch, l.Cluster, l.Highest)
	}
}
