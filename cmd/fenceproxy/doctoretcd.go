package main

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/fenceproxy/fenceproxy/fencing"
	"github.com/fenceproxy/fenceproxy/leases"
)

// A lineage is the etcd history that the marks of a database came from.
type lineage struct {
	epoch   int
	cluster string // "" where no claim was ever made
	highest fencing.Token
	key     string // of the highest mark
}

// readLineage returns nil where the lineage can't be read.
func readLineage(ctx context.Context, d *diagnosis, conn *pgx.Conn) *lineage {
	const query = `
		SELECT l.epoch, l.cluster, coalesce(m.token, 0), coalesce(m.resource_key, '')
		FROM fence.lineage AS l LEFT JOIN LATERAL (
			SELECT token, resource_key FROM fence.mark WHERE lineage = l.epoch ORDER BY lineage DESC, token DESC LIMIT 1) AS m ON true
		ORDER BY l.epoch DESC LIMIT 1`
	var l lineage
	err := conn.QueryRow(ctx, query).Scan(&l.epoch, &l.cluster, &l.highest, &l.key)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		d.unseen("the lineage of the marks", err)
		return nil
	}
	return &l
}

// lookAtEtcd looks at etcd's members and at its history; l is nil where the
// marks' is not known.
func lookAtEtcd(ctx context.Context, d *diagnosis, authority *leases.Authority, l *lineage) {
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
func lookAtLineage(d *diagnosis, survey leases.Survey, l lineage) {
	const adopt = `See "When etcd is replaced" in the README.`
	switch {
	case l.cluster == "":
		d.ok("no claim was ever made in this database")
	case l.cluster != survey.Cluster:
		d.fail(adopt, "the marks came from etcd cluster %s, and this is %s: every new claim is refused (LF006)", l.cluster, survey.Cluster)
	case int64(l.highest) > survey.Revision:
		d.fail(adopt, "etcd is at revision %d, below the mark %d of %s: its history went backwards, and every new claim is refused (LF006)", survey.Revision, l.highest, l.key)
	default:
		d.ok("epoch %d, cluster %s, highest mark %d: etcd's history fits", l.epoch, l.cluster, l.highest)
	}
}
