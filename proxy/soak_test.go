package proxy_test

import (
	"crypto/tls"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fenceproxy/fenceproxy/proxy"
	"github.com/fenceproxy/fenceproxy/testharness/certs"
	"github.com/fenceproxy/fenceproxy/testharness/poll"
)

// Ten thousand clients that come and go in every way leave no goroutine, no
// descriptor and no backend behind.
func TestServer_TenThousandClients(t *testing.T) {
	s := newStack(t, 0)
	s.exec("CREATE ROLE patient LOGIN PASSWORD 'secret'")
	s.authenticate("patient", "password")
	ca := certs.New(t)
	shown := &tls.Config{Certificates: []tls.Certificate{ca.Leaf("proxy")}}
	addr := s.addProxy(s.pg.Addr(), func(server *proxy.Server) {
		server.ClientIdleTimeout = time.Hour // so that the sweeper runs
		server.TLS = proxy.ClientTLS{Mode: proxy.TLSAllow, Config: func() *tls.Config { return shown }}
	})
	trusting := &tls.Config{RootCAs: ca.Pool, ServerName: "127.0.0.1"}
	rawPeer(t, addr, nil, "").conn.Close()
	s.gone()
	goroutines, descriptors := goleak.IgnoreCurrent(), openFiles(t)

	const patient = "\x00\x00\x00\x16\x00\x03\x00\x00user\x00patient\x00\x00"
	visits := []func(*testing.T){
		func(t *testing.T) { // says goodbye
			p := rawPeer(t, addr, nil, "")
			p.query(t, "SELECT 1")
			p.conn.Write(frame('X', ""))
			p.conn.Close()
		},
		func(t *testing.T) { // over TLS
			p := rawPeer(t, addr, trusting, "")
			p.conn.Close()
		},
		func(t *testing.T) { // a cancel request for nobody
			p := dialPeer(t, addr)
			p.conn.Write(cancelRequest([]byte("\x00\x00\x00\x01\x00\x00\x00\x02")))
			p.told(t)
			p.conn.Close()
		},
		func(t *testing.T) { // half a startup packet
			p := dialPeer(t, addr)
			p.conn.Write([]byte(patient[:7]))
			p.conn.Close()
		},
		func(t *testing.T) { // half a handshake
			p := dialPeer(t, addr)
			p.conn.Write([]byte("\x16\x03\x01\x02\x00\x01"))
			p.conn.Close()
		},
		func(t *testing.T) { // goes when asked for the password
			p := dialPeer(t, addr)
			p.conn.Write([]byte(patient))
			p.authRequest()
			p.conn.Close()
		},
		func(t *testing.T) { // has a wrong password
			p := dialPeer(t, addr)
			p.conn.Write([]byte(patient + string(frame('p', "wrong\x00"))))
			p.authRequest()
			if got := p.told(t); !strings.HasPrefix(got, "28P01 ") {
				t.Errorf("got %q, want 28P01", got)
			}
			p.conn.Close()
		},
		func(t *testing.T) { // goes in a query
			p := rawPeer(t, addr, nil, "")
			p.conn.Write(frame('Q', "SELECT repeat('x', 1000) FROM generate_series(1, 100)\x00"))
			p.conn.Close()
		},
		func(t *testing.T) { // goes in a message of a COPY
			p := rawPeer(t, addr, nil, "")
			p.conn.Write(append(frame('Q', "COPY t FROM STDIN\x00"), "d\x00\x00\xff\xff1\t"...))
			p.conn.Close()
		},
		func(t *testing.T) { // nothing at all
			dialPeer(t, addr).conn.Close()
		},
	}
	const rounds, guests = 1000, 4
	var running sync.WaitGroup
	for g := range guests {
		running.Go(func() {
			for i := g; i < rounds; i += guests {
				for _, visit := range visits {
					visit(t)
				}
			}
		})
	}
	running.Wait()
	s.gone()
	goleak.VerifyNone(t, goroutines, aWatch())
	poll.Until(t, "the descriptors are closed", func() bool { return openFiles(t) <= descriptors })
}

func openFiles(t *testing.T) int {
	t.Helper()
	files, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", os.Getpid()))
	if err != nil {
		t.Fatal(err)
	}
	return len(files)
}
