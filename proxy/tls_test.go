package proxy_test

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fenceproxy/fenceproxy/proxy"
	"github.com/fenceproxy/fenceproxy/testharness/certs"
	"github.com/fenceproxy/fenceproxy/testharness/postgres"
)

func (s *stack) connectTLS(addr, params string, config *tls.Config) (*pgx.Conn, error) {
	s.t.Helper()
	c, err := pgx.ParseConfig("postgres://postgres@" + addr + "/postgres?" + params)
	if err != nil {
		s.t.Fatal(err)
	}
	if config != nil {
		c.TLSConfig, c.Fallbacks = config, nil
	}
	conn, err := pgx.ConnectConfig(s.t.Context(), c)
	if err == nil {
		s.t.Cleanup(func() { conn.Close(context.Background()) })
	}
	return conn, err
}

// Clients encrypt as the mode has it: on request, at once, or not at all.
func TestServer_ClientTLS(t *testing.T) {
	s := newStack(t, 0)
	ca := certs.New(t)
	var current atomic.Pointer[tls.Config]
	current.Store(&tls.Config{Certificates: []tls.Certificate{ca.Leaf("first")}})
	addrs := map[proxy.TLSMode]string{}
	for _, mode := range []proxy.TLSMode{proxy.TLSDisable, proxy.TLSAllow, proxy.TLSRequire} {
		addrs[mode] = s.addProxy(s.pg.Addr(), func(server *proxy.Server) {
			server.TLS = proxy.ClientTLS{Mode: mode, Config: current.Load}
		})
	}
	trusting := func() *tls.Config { return &tls.Config{RootCAs: ca.Pool, ServerName: "127.0.0.1"} }
	direct := func() *tls.Config { c := trusting(); c.NextProtos = []string{"postgresql"}; return c }
	for _, c := range []struct {
		name, params string
		config       *tls.Config
		ok           map[proxy.TLSMode]bool
	}{
		{"plain", "sslmode=disable", nil, map[proxy.TLSMode]bool{proxy.TLSDisable: true, proxy.TLSAllow: true}},
		{"on request", "sslmode=require", trusting(), map[proxy.TLSMode]bool{proxy.TLSAllow: true, proxy.TLSRequire: true}},
		{"direct", "sslmode=require&sslnegotiation=direct", direct(), map[proxy.TLSMode]bool{proxy.TLSAllow: true, proxy.TLSRequire: true}},
		{"direct without a protocol name", "sslmode=require&sslnegotiation=direct", trusting(), nil},
	} {
		for mode, addr := range addrs {
			t.Run(c.name+"/"+mode.String(), func(t *testing.T) {
				conn, err := s.connectTLS(addr, c.params, c.config)
				if got, want := err == nil, c.ok[mode]; got != want {
					t.Fatalf("connected: got %v, want %v (%v)", got, want, err)
				}
				if err != nil {
					return
				}
				if _, err := conn.Exec(t.Context(), "SELECT repeat('x', 100000)"); err != nil {
					t.Error(err)
				}
				done := make(chan error, 1)
				go func() {
					_, err := conn.Exec(context.Background(), "SELECT pg_sleep(600)")
					done <- err
				}()
				s.running("pg_sleep")
				if err := conn.PgConn().CancelRequest(t.Context()); err != nil {
					t.Error(err)
				}
				if err := <-done; code(err) != "57014" {
					t.Errorf("cancel: got %v", err)
				}
			})
		}
	}
	t.Run("certificate changes", func(t *testing.T) {
		before, err := s.connectTLS(addrs[proxy.TLSAllow], "sslmode=require", trusting())
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if _, err := before.Exec(t.Context(), "SELECT repeat('x', 100000)"); err != nil {
				t.Errorf("a session from before the change: %v", err)
			}
		}()
		current.Store(&tls.Config{Certificates: []tls.Certificate{ca.Leaf("second")}})
		conn, err := s.connectTLS(addrs[proxy.TLSAllow], "sslmode=require", trusting())
		if err != nil {
			t.Fatal(err)
		}
		if got := conn.PgConn().Conn().(*tls.Conn).ConnectionState().PeerCertificates[0].Subject.CommonName; got != "second" {
			t.Errorf("got the certificate of %q", got)
		}
	})
	t.Run("client certificate", func(t *testing.T) {
		current.Store(&tls.Config{Certificates: []tls.Certificate{ca.Leaf("third")}, ClientCAs: ca.Pool, ClientAuth: tls.RequireAndVerifyClientCert})
		if _, err := s.connectTLS(addrs[proxy.TLSAllow], "sslmode=require", trusting()); err == nil {
			t.Error("connected without a certificate")
		}
		config := trusting()
		for name, wrong := range map[string]tls.Certificate{"expired": ca.Expired("postgres"), "a stranger's": certs.New(t).Leaf("postgres")} {
			config.Certificates = []tls.Certificate{wrong}
			if _, err := s.connectTLS(addrs[proxy.TLSAllow], "sslmode=require", config); err == nil {
				t.Errorf("connected with a certificate that is %s", name)
			}
		}
		config.Certificates = []tls.Certificate{ca.Leaf("postgres")}
		if _, err := s.connectTLS(addrs[proxy.TLSAllow], "sslmode=require", config); err != nil {
			t.Error(err)
		}
	})
	t.Run("old versions", func(t *testing.T) {
		current.Store(&tls.Config{Certificates: []tls.Certificate{ca.Leaf("fourth")}})
		config := trusting()
		for _, version := range []uint16{tls.VersionTLS10, tls.VersionTLS11} {
			config.MinVersion, config.MaxVersion = version, version
			if _, err := s.connectTLS(addrs[proxy.TLSAllow], "sslmode=require", config); err == nil {
				t.Errorf("connected with %s", tls.VersionName(version))
			}
		}
	})
}

// A client that connects again resumes its TLS session, as long as the proxy's
// certificate is the same.
func TestServer_TLSResumes(t *testing.T) {
	s := newStack(t, 0)
	ca := certs.New(t)
	var current atomic.Pointer[tls.Config]
	current.Store(&tls.Config{Certificates: []tls.Certificate{ca.Leaf("first")}})
	addr := s.addProxy(s.pg.Addr(), func(server *proxy.Server) {
		server.TLS = proxy.ClientTLS{Mode: proxy.TLSRequire, Config: current.Load}
	})
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		t.Run(tls.VersionName(version), func(t *testing.T) {
			config := &tls.Config{
				RootCAs: ca.Pool, ServerName: "127.0.0.1", NextProtos: []string{proxy.ALPN}, MaxVersion: version,
				ClientSessionCache: tls.NewLRUClientSessionCache(1),
			}
			for i, c := range []struct{ renewed, resumes bool }{{}, {resumes: true}, {renewed: true}, {resumes: true}} {
				if c.renewed {
					current.Store(&tls.Config{Certificates: []tls.Certificate{ca.Leaf("renewed")}})
				}
				conn, err := s.connectTLS(addr, "sslmode=require", config)
				if err != nil {
					t.Fatal(err)
				}
				state := conn.PgConn().Conn().(*tls.Conn).ConnectionState()
				if state.DidResume != c.resumes || state.NegotiatedProtocol != proxy.ALPN {
					t.Errorf("connection %d: got resumed %v with %q, want %v with %q",
						i+1, state.DidResume, state.NegotiatedProtocol, c.resumes, proxy.ALPN)
				}
				if _, err := conn.Exec(t.Context(), "SELECT 1"); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// Bytes between the request for TLS and the handshake end the session.
func TestServer_PlaintextAfterSSLRequest(t *testing.T) {
	s := newStack(t, 0)
	ca := certs.New(t)
	config := &tls.Config{Certificates: []tls.Certificate{ca.Leaf("proxy")}}
	addr := s.addProxy(s.pg.Addr(), func(server *proxy.Server) {
		server.TLS = proxy.ClientTLS{Mode: proxy.TLSAllow, Config: func() *tls.Config { return config }}
	})
	for _, c := range []struct{ to, request, want string }{
		{s.pg.Addr(), "\x2f", "SSL request"}, // without TLS, as PostgreSQL says it
		{s.addProxy(s.pg.Addr()), "\x2f", "SSL request"},
		{addr, "\x2f", "SSL request"},
		{addr, "\x30", "GSSAPI encryption request"},
	} {
		conn, err := net.Dial("tcp", c.to)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		conn.Write([]byte("\x00\x00\x00\x08\x04\xd2\x16" + c.request + "Q\x00\x00\x00\x0dSELECT 1\x00"))
		got, _ := io.ReadAll(conn)
		if want := "received unencrypted data after " + c.want; !strings.Contains(string(got), want) {
			t.Errorf("%s: got %q, want %q", c.to, got, want)
		}
	}
}

// The leg towards PostgreSQL is encrypted as the endpoint has it.
func TestServer_UpstreamTLS(t *testing.T) {
	ca := certs.New(t)
	cert, key := ca.Files(ca.Leaf("db.example"))
	s := newStackOn(t, postgres.New(t, postgres.Options{Config: []string{
		"ssl = on", "ssl_cert_file = '" + cert + "'", "ssl_key_file = '" + key + "'",
	}}))
	plain := newStack(t, 0)
	named := func(name string) *tls.Config { return &tls.Config{RootCAs: ca.Pool, ServerName: name} }
	for _, c := range []struct {
		name      string
		upstream  proxy.Upstream
		connected bool
		encrypted bool
	}{
		{"verify-full", proxy.Upstream{{Ways: []proxy.Endpoint{{Network: "tcp", Address: s.pg.Addr(), TLS: named("db.example")}}}}, true, true},
		{"another name", proxy.Upstream{{Ways: []proxy.Endpoint{{Network: "tcp", Address: s.pg.Addr(), TLS: named("other.example")}}}}, false, false},
		{"required, not there", proxy.Upstream{{Ways: []proxy.Endpoint{{Network: "tcp", Address: plain.pg.Addr(), TLS: named("db.example")}}}}, false, false},
		{"preferred, not there", proxy.Upstream{{Ways: []proxy.Endpoint{{Network: "tcp", Address: plain.pg.Addr(), TLS: named("db.example")}, {Network: "tcp", Address: plain.pg.Addr()}}}}, true, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			addr := s.addProxy("", func(server *proxy.Server) { server.Upstream = c.upstream })
			conn, err := s.connectTLS(addr, "sslmode=disable", nil)
			if got := err == nil; got != c.connected {
				t.Fatalf("connected: got %v, want %v (%v)", got, c.connected, err)
			}
			if err != nil {
				if code(err) != "08006" {
					t.Errorf("got %v, want 08006", err)
				}
				return
			}
			var encrypted bool
			if err := conn.QueryRow(t.Context(), "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()").Scan(&encrypted); err != nil || encrypted != c.encrypted {
				t.Errorf("encrypted: got %v, %v, want %v", encrypted, err, c.encrypted)
			}
		})
	}
}
