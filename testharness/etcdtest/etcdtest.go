// Package etcdtest runs etcds for tests.
package etcdtest

import (
	"bytes"
	"context"
	"net/url"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"

	"github.com/fenceproxy/fenceproxy/leases/embedded"
)

// startWithin is longer than any healthy start comes near.
const startWithin = 30 * time.Second

// New runs an etcd of the test's own on a free port, to the end of the test.
func New(t testing.TB) *embedded.Etcd {
	t.Helper()
	return On(t, t.TempDir(), "127.0.0.1:0")
}

// On is New with a folder, which may be that of one that has ended, and an
// address. An etcd that is well has nothing to log, so this one mustn't.
func On(t testing.TB, dir, addr string) *embedded.Etcd {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), startWithin)
	defer cancel()
	var log Log
	e := embedded.New(dir)
	e.Addr, e.Log = addr, &log
	if err := e.Start(ctx); err != nil {
		t.Fatalf("start etcd: %v", err)
	}
	t.Cleanup(func() {
		e.Close()
		if got := log.String(); got != "" {
			t.Errorf("etcd logged: %s", got)
		}
	})
	return e
}

// A Log keeps what is written, and can be read meanwhile.
type Log struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// Foreign is the configuration of an etcd that somebody else runs: etcd's own
// defaults, on a free port, without a peer to talk to.
func Foreign(dir string) *embed.Config {
	free := url.URL{Scheme: "http", Host: "127.0.0.1:0"}
	config := embed.NewConfig()
	config.Dir = dir
	config.ListenClientUrls, config.AdvertiseClientUrls = []url.URL{free}, []url.URL{free}
	config.ListenPeerUrls = nil
	config.EnableGRPCGateway = false
	config.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
	return config
}
