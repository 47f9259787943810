package proxy_test

import (
	"crypto/tls"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/proxy"
	"github.com/fenceproxy/fenceproxy/proxy/wire"
	"github.com/fenceproxy/fenceproxy/testharness/certs"
	"github.com/fenceproxy/fenceproxy/testharness/poll"
)

// dialNarrow connects a client that takes little before it reads.
func dialNarrow(t *testing.T, addr string) net.Conn {
	t.Helper()
	d := net.Dialer{Control: func(_, _ string, raw syscall.RawConn) error {
		var err error
		if cerr := raw.Control(func(fd uintptr) {
			err = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 4096)
		}); cerr != nil {
			return cerr
		}
		return err
	}}
	conn, err := d.DialContext(t.Context(), "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// A client that is still sending, and hasn't read yet, gets all that was said
// before the end: neither the server's reset nor the proxy's own close takes it.
func TestSession_LastWordToASender(t *testing.T) {
	const fatal = "57P01 terminating connection due to administrator command"
	word := string(wire.AppendError(nil, wire.Report{Severity: "FATAL", Code: fatal[:5], Message: fatal[6:]}))
	notice := string(wire.AppendNotice(nil, wire.Report{Severity: "NOTICE", Code: "00000", Message: strings.Repeat("x", 1000)}))
	refusal := string(wire.AppendError(nil, wire.Report{Severity: "FATAL", Code: fatal[:5], Message: fatal[6:], Detail: strings.Repeat("x", 7000)}))
	ca := certs.New(t)
	shown := &tls.Config{Certificates: []tls.Certificate{ca.Leaf("proxy")}}
	for _, c := range []struct {
		name      string
		reset     bool // the server drops the connection
		encrypted bool
		login     bool   // still under way
		opens     bool   // the server has let the client in, and is asked for the tag
		refuses   bool   // the server refuses the startup packet
		params    string // of the startup packet, beside the user
	}{
		{name: "closed with something unread"},
		{name: "reset", reset: true},
		{name: "TLS", encrypted: true},
		{name: "during the login", login: true},
		{name: "while the tag is read", login: true, opens: true, params: "fence.key\x00k\x00"},
		{name: "a refused startup packet", login: true, refuses: true, params: "replication\x00bogus\x00"},
	} {
		t.Run(c.name, func(t *testing.T) {
			sent := make(chan struct{})
			var log logged
			addr := before(t, fakeBackend(t, func(p *peer) {
				if !c.login || c.opens {
					p.conn.Write([]byte(opened(1)))
				}
				<-sent
				if !c.login || c.opens {
					p.in.Next() // and leaves the rest unread
				}
				says := strings.Repeat(notice, 30) + word
				if c.refuses {
					says = refusal
				}
				p.conn.Write([]byte(says))
				if c.reset {
					p.conn.(*net.TCPConn).SetLinger(0)
				}
			}), func(s *proxy.Server) {
				log.by(s)
				s.TLS = proxy.ClientTLS{Mode: proxy.TLSAllow, Config: func() *tls.Config { return shown }}
			})
			conn := dialNarrow(t, addr)
			if c.encrypted {
				conn = tls.Client(conn, &tls.Config{RootCAs: ca.Pool, ServerName: "127.0.0.1", NextProtos: []string{proxy.ALPN}})
			}
			p := newPeer(conn)
			p.startup(3<<16, "user\x00app\x00"+c.params)
			if !c.login {
				p.ready(t)
			}
			p.conn.Write([]byte(strings.Repeat(string(frame(wire.Query, strings.Repeat("x", 50)+"\x00")), 1200)))
			close(sent)
			poll.Until(t, "the session is over", func() bool {
				return log.line("session ended") != "" || log.line("session not started") != ""
			})
			if got := p.told(t); got != fatal {
				t.Errorf("got %q, want %q", got, fatal)
			}
		})
	}
}

// A client that closes neither after its end nor later is not waited for long.
func TestServer_ShutdownBesideASender(t *testing.T) {
	var server *proxy.Server
	addr := before(t, fakeBackend(t, func(p *peer) { p.conn.Write([]byte(opened(1))); p.in.Next() }), func(s *proxy.Server) { server = s })
	p := dialPeer(t, addr)
	p.startup(3<<16, "user\x00app\x00")
	p.ready(t)
	done := make(chan error, 1)
	go func() { done <- server.Shutdown(t.Context()) }()
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(20 * time.Second):
		t.Error("the server waits for a client that is over")
	}
}
