package proxy_test

import (
	"crypto/tls"
	"net"
	"net/netip"
	"os"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fenceproxy/fenceproxy/proxy"
	"github.com/fenceproxy/fenceproxy/testharness/certs"
	"github.com/fenceproxy/fenceproxy/testharness/postgres"
)

// options are those of a TCP connection, as the system has them.
type options struct{ keepAlive, idle, interval, count, userTimeout int }

// optionsOf finds the end of a connection that this process has at local, and
// returns its options.
func optionsOf(t *testing.T, local, peer netip.AddrPort) options {
	t.Helper()
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range open {
		fd, err := strconv.Atoi(file.Name())
		if err != nil || addrPort(unix.Getsockname(fd)) != local || addrPort(unix.Getpeername(fd)) != peer {
			continue
		}
		get := func(level, option int) int {
			v, err := unix.GetsockoptInt(fd, level, option)
			if err != nil {
				t.Fatal(err)
			}
			return v
		}
		return options{
			keepAlive: get(unix.SOL_SOCKET, unix.SO_KEEPALIVE), idle: get(unix.IPPROTO_TCP, unix.TCP_KEEPIDLE),
			interval: get(unix.IPPROTO_TCP, unix.TCP_KEEPINTVL), count: get(unix.IPPROTO_TCP, unix.TCP_KEEPCNT),
			userTimeout: get(unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT),
		}
	}
	t.Fatalf("no connection from %v to %v", local, peer)
	return options{}
}

// addrPort returns the address of a socket, the zero one if it has none.
func addrPort(address unix.Sockaddr, err error) netip.AddrPort {
	switch a := address.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(a.Addr), uint16(a.Port))
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(a.Addr).Unmap(), uint16(a.Port))
	}
	return netip.AddrPort{}
}

// The connections of both legs have the options that the server was given,
// encrypted or not; a Unix socket, which has none, works all the same.
func TestServer_Sockets(t *testing.T) {
	ca := certs.New(t)
	cert, key := ca.Files(ca.Leaf("db"))
	s := newStackOn(t, postgres.New(t, postgres.Options{Config: []string{
		"ssl = on", "ssl_cert_file = '" + cert + "'", "ssl_key_file = '" + key + "'",
	}}))
	asked := proxy.Sockets{
		KeepAlive:   net.KeepAliveConfig{Enable: true, Idle: 41 * time.Second, Interval: 7 * time.Second, Count: 3},
		UserTimeout: 12345 * time.Millisecond,
	}
	shown := &tls.Config{Certificates: []tls.Certificate{ca.Leaf("proxy")}}
	trusting := func(name string) *tls.Config { return &tls.Config{RootCAs: ca.Pool, ServerName: name} }
	for _, c := range []struct {
		name      string
		sockets   proxy.Sockets
		encrypted bool
		want      options
	}{
		{"plain", asked, false, options{1, 41, 7, 3, 12345}},
		{"TLS", asked, true, options{1, 41, 7, 3, 12345}},
		{"the defaults", proxy.DefaultSockets(), false, options{1, 60, 10, 6, 0}},
		{"no questions", proxy.Sockets{}, false, options{keepAlive: 0}},
	} {
		t.Run(c.name, func(t *testing.T) {
			way, params, config := proxy.Endpoint{Network: "tcp", Address: s.pg.Addr()}, "sslmode=disable", (*tls.Config)(nil)
			if c.encrypted {
				way.TLS, params, config = trusting("db"), "sslmode=require", trusting("127.0.0.1")
			}
			addr := s.addProxy("", func(server *proxy.Server) {
				server.Upstream = proxy.Upstream{{Ways: []proxy.Endpoint{way}}}
				server.Sockets = c.sockets
				server.TLS = proxy.ClientTLS{Mode: proxy.TLSAllow, Config: func() *tls.Config { return shown }}
			})
			conn, err := s.connectTLS(addr, params, config)
			if err != nil {
				t.Fatal(err)
			}
			var port uint16
			if err := conn.QueryRow(t.Context(), "SELECT inet_client_port()").Scan(&port); err != nil {
				t.Fatal(err)
			}
			server := netip.MustParseAddrPort(s.pg.Addr())
			client := netip.MustParseAddrPort(conn.PgConn().Conn().LocalAddr().String())
			for leg, got := range map[string]options{
				"client":     optionsOf(t, netip.MustParseAddrPort(addr), client),
				"PostgreSQL": optionsOf(t, netip.AddrPortFrom(server.Addr(), port), server),
			} {
				if !c.sockets.KeepAlive.Enable { // then the rest says nothing
					got = options{keepAlive: got.keepAlive, userTimeout: got.userTimeout}
				}
				if got != c.want {
					t.Errorf("%s: got %+v, want %+v", leg, got, c.want)
				}
			}
		})
	}
	t.Run("a Unix socket", func(t *testing.T) {
		ln, err := net.Listen("unix", t.TempDir()+"/proxy")
		if err != nil {
			t.Fatal(err)
		}
		s.serve(ln, s.pg.Addr(), func(server *proxy.Server) { server.Sockets = asked })
		raw, err := net.Dial("unix", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer raw.Close()
		p := newPeer(raw)
		p.startup(3<<16, "user\x00postgres\x00")
		p.ready(t)
		p.query(t, "SELECT 1")
	})
}
