package proxy_test

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fenceproxy/fenceproxy/proxy"
	"github.com/fenceproxy/fenceproxy/proxy/wire"
	"github.com/fenceproxy/fenceproxy/testharness/certs"
	"github.com/fenceproxy/fenceproxy/testharness/poll"
)

const (
	saidIdle      = "57P05 terminating connection due to idle-session timeout"
	saidIdleInTxn = "25P03 terminating connection due to idle-in-transaction timeout"
	saidShutDown  = "57P01 terminating connection: fenceproxy is shutting down"
	saidTooMany   = "53300 sorry, too many clients already"
)

// rawPeer is a session of a user, past its first ReadyForQuery, over TLS unless
// config is nil.
func rawPeer(t *testing.T, addr string, config *tls.Config, params string) *peer {
	t.Helper()
	p := dialPeer(t, addr)
	if config != nil {
		p.encrypt(t, config)
	}
	p.startup(3<<16, "user\x00postgres\x00database\x00postgres\x00application_name\x00raw\x00"+params)
	p.ready(t)
	return p
}

// encrypt asks for TLS and takes the handshake.
func (p *peer) encrypt(t *testing.T, config *tls.Config) {
	t.Helper()
	p.conn.Write([]byte("\x00\x00\x00\x08\x04\xd2\x16\x2f"))
	if _, err := io.ReadFull(p.conn, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	conn := tls.Client(p.conn, config)
	if err := conn.Handshake(); err != nil {
		t.Fatal(err)
	}
	*p = *newPeer(conn)
}

// ready reads up to the next ReadyForQuery and returns its status.
func (p *peer) ready(t *testing.T) byte {
	t.Helper()
	for {
		typ, body, err := p.read()
		var said *reported
		switch {
		case err != nil && typ != wire.ErrorResponse:
			t.Fatalf("waiting for ReadyForQuery: %v", err)
		case err != nil && errors.As(err, &said) && said.Severity == "FATAL":
			t.Fatalf("waiting for ReadyForQuery: %v", said)
		case typ == wire.ReadyForQuery:
			return body[0]
		}
	}
}

func (p *peer) query(t *testing.T, sql string) byte {
	t.Helper()
	p.conn.Write(frame('Q', sql+"\x00"))
	return p.ready(t)
}

// A client that asks nothing for too long is told so in PostgreSQL's words,
// once, and its backend goes.
func TestServer_IdleTimeouts(t *testing.T) {
	s := newStack(t, 0)
	s.holders.hold("k", 1)
	ca := certs.New(t)
	addr := s.addProxy(s.pg.Addr(), func(server *proxy.Server) {
		server.ClientIdleTimeout, server.IdleTransactionTimeout = 150*time.Millisecond, 100*time.Millisecond
		server.TLS = proxy.ClientTLS{Mode: proxy.TLSAllow, Config: func() *tls.Config {
			return &tls.Config{Certificates: []tls.Certificate{ca.Leaf("proxy")}}
		}}
	})
	encrypted := &tls.Config{RootCAs: ca.Pool, ServerName: "127.0.0.1"}
	for _, leg := range []struct {
		name, params string
		config       *tls.Config
	}{
		{"plain", "", nil},
		{"TLS", "", encrypted},
		{"tagged", "fence.key\x00k\x00fence.token\x001\x00", nil},
	} {
		for _, c := range []struct{ name, sql, want string }{
			{"after the login", "", saidIdle},
			{"after a query", "SELECT 1", saidIdle},
			{"after a query that takes longer", "SELECT pg_sleep(0.4)", saidIdle},
			{"in a transaction", "BEGIN; INSERT INTO t VALUES (1, 'x')", saidIdleInTxn},
			{"in a failed transaction", "BEGIN; SELECT 1/0", saidIdleInTxn},
		} {
			t.Run(leg.name+"/"+c.name, func(t *testing.T) {
				p := rawPeer(t, addr, leg.config, leg.params)
				if c.sql != "" {
					p.query(t, c.sql)
				}
				if got := p.told(t); got != c.want {
					t.Errorf("got %q, want %q", got, c.want)
				}
				s.gone()
				if got := s.count("true"); got != 0 {
					t.Errorf("got %d rows, want the transaction rolled back", got)
				}
			})
		}
	}
}

// gone waits until no backend of a raw session is left.
func (s *stack) gone() {
	s.t.Helper()
	poll.Until(s.t, "no backend is left", func() bool {
		var n int
		err := s.admin.QueryRow(s.t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'raw'").Scan(&n)
		return err == nil && n == 0
	})
}

// What is not idle, or has no limit, outlives a session that is idle.
func TestServer_NotIdle(t *testing.T) {
	s := newStack(t, 0)
	addr := s.addProxy(s.pg.Addr(), func(server *proxy.Server) { server.ClientIdleTimeout = 100 * time.Millisecond })
	for name, begin := range map[string]string{
		"in a transaction":           string(frame('Q', "BEGIN\x00")),
		"in the middle of a segment": string(frame('P', "\x00SELECT 1\x00\x00\x00")) + string(frame('H', "")),
		"in a COPY":                  string(frame('Q', "COPY t FROM STDIN\x00")),
		"in a query":                 string(frame('Q', "SELECT pg_sleep(1)\x00")),
	} {
		t.Run(name, func(t *testing.T) {
			p := rawPeer(t, addr, nil, "")
			p.conn.Write([]byte(begin))
			for range 2 {
				if got := rawPeer(t, addr, nil, "").told(t); got != saidIdle {
					t.Fatalf("the idle session: got %q, want %q", got, saidIdle)
				}
			}
			p.conn.Write(append(frame('f', "enough\x00"), frame('S', "")...))
			p.ready(t)
		})
	}
}

// authenticate has a role log in by another method than the rest.
func (s *stack) authenticate(role, method string) {
	s.t.Helper()
	s.exec("CREATE TABLE IF NOT EXISTS hba (line text)")
	s.exec("TRUNCATE hba; COPY hba FROM PROGRAM 'cat pg_hba.conf'")
	s.exec("COPY (SELECT 'host all " + role + " 127.0.0.1/32 " + method + "' UNION ALL SELECT line FROM hba) TO PROGRAM 'cat > pg_hba.conf'")
	s.exec("SELECT pg_reload_conf()")
	poll.Until(s.t, "pg_hba.conf is read", func() bool {
		p := dialPeer(s.t, s.pg.Addr())
		defer p.conn.Close()
		p.startup(3<<16, "user\x00"+role+"\x00database\x00postgres\x00")
		code, _, err := p.authRequest()
		return err == nil && code != 0
	})
}

// Over the limit clients hear what they hear from PostgreSQL, and requests to
// cancel still get through.
func TestServer_MaxConnections(t *testing.T) {
	s := newStack(t, 0)
	s.addProxy(s.pg.Addr(), func(server *proxy.Server) { server.MaxConnections = 2 })
	c, second := s.session(0, "", 0), s.session(0, "", 0)
	refused := func() string {
		p := dialPeer(t, s.addrs[0])
		p.startup(3<<16, "user\x00postgres\x00")
		return p.told(t)
	}
	if got := refused(); got != saidTooMany {
		t.Errorf("a third session: got %q, want %q", got, saidTooMany)
	}
	done := make(chan error, 1)
	go func() {
		_, err := c.Exec(context.Background(), "SELECT pg_sleep(600)")
		done <- err
	}()
	s.running("pg_sleep")
	if err := c.PgConn().CancelRequest(t.Context()); err != nil {
		t.Error(err)
	}
	if err := <-done; code(err) != "57014" {
		t.Errorf("cancel: got %v, want 57014", err)
	}
	second.Close(t.Context())
	poll.Until(t, "there is room again", func() bool {
		p := dialPeer(t, s.addrs[0])
		p.startup(3<<16, "user\x00postgres\x00database\x00postgres\x00")
		_, _, err := p.authRequest()
		return err == nil
	})
}

// A session that is cut off hears why, once, unless that would stand in the
// middle of another message.
func TestServer_CutOff(t *testing.T) {
	s := newStack(t, 2)
	now, cancel := context.WithCancel(t.Context())
	cancel()
	t.Run("in a transaction", func(t *testing.T) {
		p, running := rawPeer(t, s.addrs[0], nil, ""), rawPeer(t, s.addrs[0], nil, "")
		p.query(t, "BEGIN")
		running.conn.Write(frame('Q', "SELECT pg_sleep(600)\x00"))
		s.running("pg_sleep")
		if err := s.servers[0].Shutdown(now); err == nil {
			t.Error("got no error, want that sessions were cut off")
		}
		for name, p := range map[string]*peer{"idle": p, "running": running} {
			if got := p.told(t); got != saidShutDown {
				t.Errorf("%s: got %q, want %q", name, got, saidShutDown)
			}
		}
		s.exec("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE '%pg_sleep(600)%' AND pid <> pg_backend_pid()")
	})
	t.Run("in a row", func(t *testing.T) {
		p := rawPeer(t, s.addrs[1], nil, "")
		p.conn.Write(frame('Q', "SELECT repeat('x', 100000000)\x00"))
		typ, n, err := p.in.Next()
		for err == nil && typ != wire.DataRow {
			if err = p.in.Skip(); err == nil {
				typ, n, err = p.in.Next()
			}
		}
		if err != nil {
			t.Fatal(err)
		}
		s.servers[1].Shutdown(now)
		rest, _ := io.ReadAll(io.MultiReader(p.conn))
		if len(rest) >= n {
			t.Fatal("the row came as a whole: this proves nothing")
		}
		for _, b := range rest {
			if b != 'x' {
				t.Fatal("something stands in the middle of a row")
			}
		}
	})
}

// Whoever hasn't logged in yet doesn't hold up the end of the server.
func TestServer_ShutdownDuringLogin(t *testing.T) {
	s := newStack(t, 0)
	s.exec("CREATE ROLE patient LOGIN PASSWORD 'secret'")
	s.authenticate("patient", "password")
	addr := s.addProxy(s.pg.Addr(), func(server *proxy.Server) { server.LoginTimeout = time.Hour })
	silent, asked := dialPeer(t, addr), dialPeer(t, addr)
	asked.startup(3<<16, "user\x00patient\x00database\x00postgres\x00")
	if _, _, err := asked.authRequest(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := s.servers[0].Shutdown(ctx); err != nil {
		t.Errorf("Shutdown: %v", err)
	}
	if got := silent.told(t); got != "end" {
		t.Errorf("before the startup packet: got %q, want the end", got)
	}
	if got := asked.told(t); got != saidShutDown {
		t.Errorf("before the password: got %q, want %q", got, saidShutDown)
	}
}

// cancelRequest is the packet that cancels the session with a key.
func cancelRequest(key []byte) []byte {
	packet := binary.BigEndian.AppendUint32(nil, uint32(8+len(key)))
	return append(binary.BigEndian.AppendUint32(packet, 80877102), key...)
}

// A server that can't be reached in time is told of once, though the login has
// run out of time as well.
func TestServer_ToldOnce(t *testing.T) {
	hold := make(chan struct{})
	addr := before(t, fakeBackend(t, func(*peer) { <-hold }), func(s *proxy.Server) {
		s.Upstream[0].Ways[0].TLS = &tls.Config{InsecureSkipVerify: true}
		s.LoginTimeout, s.DialTimeout = 100*time.Millisecond, 200*time.Millisecond
	})
	defer close(hold)
	p := dialPeer(t, addr)
	p.startup(3<<16, "user\x00app\x00")
	if got, want := p.told(t), "08006 fenceproxy cannot reach PostgreSQL"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// The DETAIL names a server once, be it the only one or one of several.
func TestServer_NamesUnreachedOnce(t *testing.T) {
	for name, asks := range map[string]bool{"one": false, "asked": true} {
		t.Run(name, func(t *testing.T) {
			ln := listen(t)
			down := ln.Addr().String()
			ln.Close()
			addr := before(t, down, func(s *proxy.Server) {
				if asks {
					s.Upstream[0].Ask = func(context.Context) (proxy.Standing, error) {
						_, err := net.Dial("tcp", down)
						return proxy.Standing{}, err
					}
				}
			})
			_, err := pgx.Connect(t.Context(), "postgres://app@"+addr+"/app?sslmode=disable")
			var said *pgconn.PgError
			if want := down + ": connection refused"; !errors.As(err, &said) || said.Detail != want {
				t.Errorf("got %v (%+v), want the detail %q", err, said, want)
			}
		})
	}
}
