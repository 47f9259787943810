package leases_test

import (
	"fmt"
	"net"
	"net/url"
	"strings"
	"sync"
	"testing"

	"go.etcd.io/etcd/server/v3/embed"

	"github.com/fenceproxy/fenceproxy/testharness/etcdtest"
)

// startPair runs a cluster of two. Either loses its quorum by the other's stop,
// which may be called at any time.
func startPair(t testing.TB) (members [2]*embed.Etcd, stop [2]func()) {
	t.Helper()
	all, stops := startMembers(t, len(members))
	copy(members[:], all)
	copy(stop[:], stops)
	return members, stop
}

// startMembers runs a cluster of n.
func startMembers(t testing.TB, n int) (members []*embed.Etcd, stop []func()) {
	t.Helper()
	peers, initial := make([]url.URL, n), make([]string, n)
	for i := range peers {
		peers[i] = freeURL(t)
		initial[i] = fmt.Sprintf("m%d=%s", i, peers[i].String())
	}
	type started struct {
		etcd *embed.Etcd
		err  error
	}
	results := make([]chan started, n)
	for i := range peers {
		results[i] = make(chan started, 1)
		config := etcdtest.Foreign(t.TempDir())
		config.Name = fmt.Sprintf("m%d", i)
		config.ListenPeerUrls, config.AdvertisePeerUrls = []url.URL{peers[i]}, []url.URL{peers[i]}
		config.InitialCluster = strings.Join(initial, ",")
		config.TickMs, config.ElectionMs = 50, 500
		go func() {
			etcd, err := embed.StartEtcd(config)
			results[i] <- started{etcd, err}
		}()
	}
	for i := range results {
		got := wait(t, "a member to start", results[i])
		if got.err != nil {
			t.Fatalf("start member %d: %v", i, got.err)
		}
		members, stop = append(members, got.etcd), append(stop, sync.OnceFunc(got.etcd.Close))
		t.Cleanup(stop[i])
	}
	for _, member := range members {
		wait(t, "a member to be ready", member.Server.ReadyNotify())
	}
	return members, stop
}

// freeURL returns that of a port which nobody listens on at the moment.
func freeURL(t testing.TB) url.URL {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("listen: %v", err)
	}
	defer listener.Close()
	return url.URL{Scheme: "http", Host: listener.Addr().String()}
}
