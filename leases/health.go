package leases

import (
	"context"
	"strconv"
)

// A Member is what one endpoint of the client said of itself.
type Member struct {
	Endpoint string
	Err      error // it can't be asked; the rest is empty then
	Cluster  string
	Version  string
	Leads    bool
	Learner  bool     // it has no vote yet
	Troubles []string // in etcd's own words: alarms, no leader
}

// Members asks each of the client's endpoints how it stands, for
// DefaultDialTimeout at most. Voters is how many
// members of the cluster have a vote, 0 where none would tell.
func (a *Authority) Members(ctx context.Context) (members []Member, voters int) {
	for _, endpoint := range a.client.Endpoints() {
		members = append(members, a.member(ctx, endpoint))
	}
	ctx, cancel := context.WithTimeout(ctx, DefaultDialTimeout) // it takes a quorum
	defer cancel()
	list, err := a.client.MemberList(ctx)
	if err != nil {
		return members, 0
	}
	for _, m := range list.Members {
		if !m.IsLearner {
			voters++
		}
	}
	return members, voters
}

func (a *Authority) member(ctx context.Context, endpoint string) Member {
	ctx, cancel := context.WithTimeout(ctx, DefaultDialTimeout)
	defer cancel()
	ctx, seen := noting(ctx)
	status, err := a.client.Status(ctx, endpoint)
	if err != nil {
		return Member{Endpoint: endpoint, Err: outageAt(a.client, endpoint, seen.explain(ctx, err))}
	}
	return Member{
		Endpoint: endpoint,
		Cluster:  strconv.FormatUint(status.Header.ClusterId, 16),
		Version:  status.Version,
		Leads:    status.Leader == status.Header.MemberId,
		Learner:  status.IsLearner,
		Troubles: status.Errors,
	}
}
