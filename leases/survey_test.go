package leases_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/leases"
)

func TestAuthority_Survey(t *testing.T) {
	etcd := startEtcd(t)
	client := newClient(t, etcd.Endpoint())
	authority := leases.NewAuthority(client)
	locker := leases.NewLocker(client)
	for _, key := range []string{"b", "a/1", "a!", "ü x"} {
		acquire(t, locker, key)
	}
	// Waiters, more than one page of them, and what is no lock at all.
	put := func(key string) {
		if _, err := client.Put(t.Context(), leases.DefaultPrefix+key, ""); err != nil {
			t.Fatal(err)
		}
	}
	const waiting = 1100
	for i := range waiting {
		put(fmt.Sprintf("b/%d", i))
	}
	strays := []string{"a/1/99", "bare", "sp ace/99"}
	for _, key := range strays {
		put(key)
	}
	survey, err := authority.Survey(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var keys []string
	for _, l := range survey.Locks {
		keys = append(keys, l.Key)
		if _, err := authority.Verify(t.Context(), l.Key, l.Token); err != nil {
			t.Errorf("%s: got %v, want the holder's token", l.Key, err)
		}
		if want := map[string]int{"b": waiting}[l.Key]; l.Waiting != want {
			t.Errorf("%s: got %d waiting, want %d", l.Key, l.Waiting, want)
		}
		if left, err := authority.Left(t.Context(), l); err != nil || left <= 0 || left > leases.DefaultTTL {
			t.Errorf("%s: got %v, %v left, want at most the time to live", l.Key, left, err)
		}
	}
	if want := []string{"a!", "a/1", "b", "ü x"}; !slices.Equal(keys, want) {
		t.Errorf("got %q, want %q", keys, want)
	}
	held, err := authority.Held(t.Context(), []string{"b", "nobody's", "a/1"})
	if err != nil || !slices.Equal(held, []leases.Lock{survey.Locks[2], survey.Locks[1]}) {
		t.Errorf("got %v, %v, want b and a/1 as the survey has them: %v", held, err, survey.Locks)
	}
	if _, err := authority.Held(t.Context(), make([]string, 101)); !errors.Is(err, leases.ErrInvalid) {
		t.Errorf("101 keys: got %v, want %v", err, leases.ErrInvalid)
	}
	for i := range strays {
		strays[i] = leases.DefaultPrefix + strays[i]
	}
	if !slices.Equal(survey.Strays, strays) {
		t.Errorf("got strays %q, want %q", survey.Strays, strays)
	}
}

func TestAuthority_Survey_Away(t *testing.T) {
	authority := leases.NewAuthority(newClient(t, "http://127.0.0.1:1"))
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := authority.Survey(ctx); !errors.Is(err, leases.ErrUnavailable) {
		t.Errorf("got %v, want %v", err, leases.ErrUnavailable)
	}
	if _, err := authority.Held(ctx, []string{"a"}); !errors.Is(err, leases.ErrUnavailable) {
		t.Errorf("some locks: got %v, want %v", err, leases.ErrUnavailable)
	}
}

func TestAuthority_Members(t *testing.T) {
	checkLeaks(t)
	cluster, stop := startPair(t)
	urls := make([]string, len(cluster))
	for i, m := range cluster {
		urls[i] = "http://" + m.Clients[0].Addr().String()
	}
	authority := leases.NewAuthority(newClient(t, urls...))
	members, voters := authority.Members(t.Context())
	leaders := 0
	for i, m := range members {
		if m.Err != nil || m.Endpoint != urls[i] || m.Cluster != members[0].Cluster || m.Version == "" || len(m.Troubles) > 0 {
			t.Errorf("got %+v, want a member without troubles", m)
		}
		if m.Leads {
			leaders++
		}
	}
	if len(members) != 2 || voters != 2 || leaders != 1 {
		t.Errorf("got %d members, %d voters, %d leaders, want 2, 2, 1", len(members), voters, leaders)
	}
	stop[0]()
	poll(t, "the members to say that one is gone", func() bool {
		m, _ := authority.Members(t.Context())
		return errors.Is(m[0].Err, leases.ErrUnavailable) && m[1].Err == nil && len(m[1].Troubles) > 0
	})
}
