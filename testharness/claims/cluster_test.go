package claims_test

import (
	"fmt"
	"net"
	"net/url"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"

	"github.com/fenceproxy/fenceproxy/leases"
)

// members is how many an etcd cluster has, as a rule.
const members = 3

// startCluster runs an etcd cluster in this process and returns a client of all
// its members.
func startCluster(b *testing.B) *clientv3.Client {
	b.Helper()
	var peers []url.URL
	var names []string
	for i := range members {
		peers = append(peers, freeURL(b))
		names = append(names, fmt.Sprintf("m%d=%s", i, peers[i].String()))
	}
	started := make([]*embed.Etcd, members)
	failed := make(chan error, members)
	for i := range members {
		config := memberConfig(b.TempDir(), peers[i])
		config.Name, config.InitialCluster = fmt.Sprintf("m%d", i), strings.Join(names, ",")
		go func() { // it returns when the member has found the others, or failed
			var err error
			started[i], err = embed.StartEtcd(config)
			failed <- err
		}()
	}
	for range members {
		if err := <-failed; err != nil {
			b.Fatalf("start an etcd cluster: %v", err)
		}
	}
	var endpoints []string
	for _, member := range started {
		b.Cleanup(member.Close)
		<-member.Server.ReadyNotify()
		endpoints = append(endpoints, "http://"+member.Clients[0].Addr().String())
	}
	client, err := leases.NewClient(endpoints, nil)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { client.Close() })
	return client
}

// memberConfig is etcd's own defaults, on free ports.
func memberConfig(dir string, peer url.URL) *embed.Config {
	free := url.URL{Scheme: "http", Host: "127.0.0.1:0"}
	config := embed.NewConfig()
	config.Dir = dir
	config.ListenClientUrls, config.AdvertiseClientUrls = []url.URL{free}, []url.URL{free}
	config.ListenPeerUrls, config.AdvertisePeerUrls = []url.URL{peer}, []url.URL{peer}
	config.EnableGRPCGateway = false
	config.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
	return config
}

// freeURL returns that of a port which nobody listens on at the moment.
func freeURL(b *testing.B) url.URL {
	b.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatalf("listen: %v", err)
	}
	defer listener.Close()
	return url.URL{Scheme: "http", Host: listener.Addr().String()}
}
