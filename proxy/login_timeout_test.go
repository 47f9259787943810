package proxy_test

import (
	"crypto/tls"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/proxy"
	"github.com/fenceproxy/fenceproxy/proxy/scram"
	"github.com/fenceproxy/fenceproxy/testharness/certs"
)

// A client that stops in the middle of its login is hung up on, wherever it
// stops; one that was asked for a password hears why.
func TestServer_SilentClient(t *testing.T) {
	ca := certs.New(t)
	shown := &tls.Config{Certificates: []tls.Certificate{ca.Leaf("proxy")}}
	secret, _, err := scram.Derive("secret", "sixteen bytes ok", 4096)
	if err != nil {
		t.Fatal(err)
	}
	const ssl = "\x00\x00\x00\x08\x04\xd2\x16\x2f"
	const timeout = "57014 canceling authentication due to timeout"
	for _, c := range []struct {
		name, says string
		method     uint32
		secure     bool
		want       string
	}{
		{"nothing", "", 0, false, ""},
		{"one byte", "\x00", 0, false, ""},
		{"half a packet", "\x00\x00\x00\x20\x00\x03\x00\x00user", 0, false, ""},
		{"no handshake", ssl, 0, false, "S"},
		{"half a handshake", "\x16\x03\x01\x02\x00\x01", 0, false, ""},
		{"no startup packet over TLS", "", 0, true, ""},
		{"no password", "", 3, false, timeout},
		{"no password over TLS", "", 3, true, timeout},
		{"half a password", "p\x00\x00\x00\x20secret", 3, false, timeout},
		{"no proof", "p\x00\x00\x00\x21SCRAM-SHA-256\x00\x00\x00\x00\x0bn,,n=,r=abc", 10, true, timeout},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			hold := make(chan struct{})
			upstream := fakeBackend(t, func(p *peer) {
				p.conn.Write([]byte(auth(c.method, scram.MechanismPlain+"\x00\x00")))
				<-hold
			})
			t.Cleanup(func() { close(hold) })
			addr := before(t, upstream, func(s *proxy.Server) {
				s.LoginTimeout = 300 * time.Millisecond
				s.TLS = proxy.ClientTLS{Mode: proxy.TLSAllow, Config: func() *tls.Config { return shown }}
				s.Secrets = fixedSecrets{"app": {Secret: &secret}}
			})
			p := dialPeer(t, addr)
			if c.secure {
				conn := tls.Client(p.conn, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{proxy.ALPN}})
				if err := conn.Handshake(); err != nil {
					t.Fatal(err)
				}
				p = newPeer(conn)
			}
			if c.method != 0 {
				p.startup(3<<16, "user\x00app\x00")
				if _, _, err := p.authRequest(); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := io.WriteString(p.conn, c.says); err != nil {
				t.Fatal(err)
			}
			if c.method == 0 {
				got, err := io.ReadAll(p.conn)
				if string(got) != c.want || err != nil && !strings.Contains(err.Error(), "reset") {
					t.Errorf("got %q, %v, want %q and the end", got, err, c.want)
				}
				return
			}
			if c.name == "no proof" {
				if _, _, err := p.authRequest(); err != nil {
					t.Fatal(err)
				}
			}
			if got := p.told(t); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}
