package proxy_test

import (
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/proxy"
	"github.com/fenceproxy/fenceproxy/proxy/wire"
	"github.com/fenceproxy/fenceproxy/testharness/certs"
)

// peers starts proxies that know each other, themselves included, and of one
// that is away.
func (s *stack) peers(n int, set func(*proxy.Server)) []string {
	s.t.Helper()
	var lns []net.Listener
	away := listen(s.t)
	known := []string{away.Addr().String()}
	away.Close()
	for range n {
		ln := listen(s.t)
		lns = append(lns, ln)
		known = append(known, ln.Addr().String())
	}
	var addrs []string
	for _, ln := range lns {
		addrs = append(addrs, s.serve(ln, s.pg.Addr(), func(server *proxy.Server) {
			server.Peers = known
			set(server)
		}))
	}
	return addrs
}

// Peers that ask clients for a certificate ask each other, and take a cancel request
// also from one whose own isn't of these authorities.
func TestServer_CancelPeersCertificates(t *testing.T) {
	s := newStack(t, 0)
	ca, another := certs.New(t), certs.New(t)
	for name, own := range map[string]*certs.Authority{"of the same authorities": ca, "of others": another} {
		for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
			t.Run(name+", "+tls.VersionName(version), func(t *testing.T) {
				shown := &tls.Config{
					Certificates: []tls.Certificate{own.Leaf("proxy")}, ClientCAs: ca.Pool, ClientAuth: tls.RequireAndVerifyClientCert, MaxVersion: version,
				}
				addrs := s.peers(2, func(server *proxy.Server) {
					server.TLS = proxy.ClientTLS{Mode: proxy.TLSRequire, Config: func() *tls.Config { return shown }}
				})
				s.cancelFrom(addrs, "sslmode=disable", &tls.Config{
					RootCAs: own.Pool, ServerName: "127.0.0.1", Certificates: []tls.Certificate{ca.Leaf("client")},
				})
			})
		}
	}
}

// A cancel request finds its session at whichever proxy it is, plain or over
// TLS, with keys of both protocols, and hits no other.
func TestServer_CancelPeers(t *testing.T) {
	s := newStack(t, 0)
	ca := certs.New(t)
	own := &tls.Config{Certificates: []tls.Certificate{ca.Leaf("proxy")}}
	for _, n := range []int{2, 3} {
		for _, mode := range []proxy.TLSMode{proxy.TLSDisable, proxy.TLSRequire} {
			addrs := s.peers(n, func(server *proxy.Server) {
				server.TLS = proxy.ClientTLS{Mode: mode, Config: func() *tls.Config { return own }}
			})
			var config *tls.Config
			if mode == proxy.TLSRequire {
				config = &tls.Config{RootCAs: ca.Pool, ServerName: "127.0.0.1"}
			}
			for _, version := range []string{"3.0", "latest"} {
				t.Run(fmt.Sprintf("%d proxies, TLS %v, protocol %s", n, mode, version), func(t *testing.T) {
					s.cancelFrom(addrs, "sslmode=disable&max_protocol_version="+version, config)
				})
			}
		}
	}
}

// cancelFrom sends cancel requests for sessions of the first proxy to each.
func (s *stack) cancelFrom(addrs []string, params string, config *tls.Config) {
	s.t.Helper()
	conn, err := s.connectTLS(addrs[0], params, config)
	if err != nil {
		s.t.Fatal(err)
	}
	other, err := s.connectTLS(addrs[1], params, config)
	if err != nil {
		s.t.Fatal(err)
	}
	bystander := start(other, simple, "SELECT pg_sleep(600) /* bystander */")
	s.running("/* bystander */")
	s.t.Logf("a key of %d bytes", len(cancelKey(conn)))
	for _, addr := range addrs {
		for _, encryption := range []*tls.Config{nil, config} {
			done := start(conn, extended, "SELECT pg_sleep(600) /* meant */")
			s.running("/* meant */")
			sendCancel(s.t, addr, append(cancelKey(conn), 0), encryption) // nobody's
			sendCancel(s.t, addr, cancelKey(conn), encryption)
			if err := s.canceled(done); code(err) != "57014" {
				s.t.Fatalf("sent to %s: got %v, want 57014", addr, err)
			}
		}
	}
	select {
	case err := <-bystander:
		s.t.Errorf("another session was hit: %v", err)
	default:
	}
	sendCancel(s.t, addrs[0], cancelKey(other), nil)
	if err := s.canceled(bystander); code(err) != "57014" {
		s.t.Errorf("the other session: got %v, want 57014", err)
	}
}

// canceled returns how a statement ended that a cancel request was sent for.
func (s *stack) canceled(done <-chan error) error {
	s.t.Helper()
	select {
	case err := <-done:
		return err
	case <-time.After(20 * time.Second):
		return errors.New("no end")
	}
}

// What a peer asks is answered and not passed on, and a peer that never answers
// costs bounded time.
func TestServer_CancelPeersBounds(t *testing.T) {
	s := newStack(t, 0)
	ln := listen(t)
	asked := make(chan []byte, 10)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := ln.Accept()
			if err != nil {
				return // closed below
			}
			packet, _ := wire.NewReader(conn).ReadPacket(wire.MaxStartupLength)
			asked <- packet
			defer conn.Close() // with no answer until then
		}
	}()
	defer func() { ln.Close(); <-done }()
	addr := s.addProxy(s.pg.Addr(), func(server *proxy.Server) {
		server.Peers, server.CancelTimeout = []string{ln.Addr().String()}, 100*time.Millisecond
	})
	key := []byte("a key of 260 bytes")
	key = append(key, make([]byte, 260-len(key))...)

	p := dialPeer(t, addr)
	p.conn.Write(cancelPacket(wire.CodePeerCancel, key))
	if got := p.told(t); got != "end" {
		t.Errorf("a peer's request: got %q, want an end", got)
	}
	for name, short := range map[string][]byte{"short": key[:7], "long": append(key, 0)} {
		sendCancel(t, addr, short, nil)
		select {
		case got := <-asked:
			t.Errorf("%s: the peer was asked %q, want nothing", name, got)
		default:
		}
	}
	sendCancel(t, addr, key, nil)
	got := <-asked
	if binary.BigEndian.Uint32(got[4:]) != wire.CodePeerCancel || string(got[8:]) != string(key) {
		t.Errorf("the peer was asked %q", got)
	}
}
