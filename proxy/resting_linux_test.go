package proxy_test

import (
	"context"
	"crypto/tls"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fenceproxy/fenceproxy/proxy"
	"github.com/fenceproxy/fenceproxy/testharness/certs"
	"github.com/fenceproxy/fenceproxy/testharness/poll"
)

// atRest waits until no session has a pump that waits for its peer.
func atRest(t *testing.T) {
	t.Helper()
	stacks := make([]byte, 4<<20)
	poll.Until(t, "all sessions rest", func() bool {
		all := string(stacks[:runtime.Stack(stacks, true)])
		return !strings.Contains(all, "proxy.(*session).requests(") && !strings.Contains(all, "proxy.(*session).pumpReplies(")
	})
}

func restSoon(s *proxy.Server) { s.RestAfter = 20 * time.Millisecond }

// A session that has rested goes on as if it hadn't: in a transaction, with
// prepared statements, over TLS, and with what PostgreSQL sends on its own.
func TestSession_Rests(t *testing.T) {
	s := newStack(t, 0)
	ca := certs.New(t)
	plain := s.addProxy(s.pg.Addr(), restSoon)
	encrypted := s.addProxy(s.pg.Addr(), restSoon, func(server *proxy.Server) {
		own := &tls.Config{Certificates: []tls.Certificate{ca.Leaf("fenceproxy")}}
		server.TLS = proxy.ClientTLS{Mode: proxy.TLSRequire, Config: func() *tls.Config { return own }}
	})
	trusting := &tls.Config{RootCAs: ca.Pool, ServerName: "127.0.0.1"}
	s.holders.hold("k", 1)
	for _, c := range []struct {
		name, key string
		open      func() (*pgx.Conn, error)
	}{
		{"plain", "", func() (*pgx.Conn, error) { return s.connectTLS(plain, "sslmode=disable", nil) }},
		{"tagged", "k", func() (*pgx.Conn, error) { return s.connectTLS(plain, "sslmode=disable", nil) }},
		{"TLS", "k", func() (*pgx.Conn, error) { return s.connectTLS(encrypted, "sslmode=require", trusting) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			s.exec("TRUNCATE t")
			conn, err := c.open()
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close(context.Background())
			if c.key != "" {
				s.tag(conn, c.key, 1)
			}
			for _, sql := range []string{"LISTEN news", "PREPARE p AS INSERT INTO t VALUES (1, 'a')", "BEGIN", "EXECUTE p", "COMMIT", "SELECT repeat('x', 100000)"} {
				atRest(t)
				if _, err := conn.Exec(t.Context(), sql); err != nil {
					t.Fatalf("%s: %v", sql, err)
				}
			}
			for _, p := range protocols {
				atRest(t)
				if err := p.run(t.Context(), conn, "UPDATE t SET v = v || 'b'"); err != nil {
					t.Fatalf("%s: %v", p, err)
				}
			}
			if got := s.count("v = 'abbb'"); got != 1 {
				t.Errorf("got %d rows as they should be, want 1", got)
			}
			for range 2 {
				atRest(t)
				s.exec("NOTIFY news, 'x'")
				if n, err := conn.WaitForNotification(t.Context()); err != nil || n.Payload != "x" {
					t.Errorf("notification: got %v, %v", n, err)
				}
			}
		})
	}
}

// A session that waits, for whatever it is, keeps no other one waiting that the same
// thread serves.
func TestSession_WaitsAlone(t *testing.T) {
	query := func(sql string) string { return string(frame('Q', sql+"\x00")) }
	for _, c := range []struct{ name, key, locked, sent string }{
		{"for the rest of a message", "", "", "Q\x00\x00\x00\x20SEL"},
		{"for a client that doesn't read", "", "", query("SELECT repeat('x', 50000000)")},
		{"for replies", "k", "SELECT pg_advisory_lock(1)", query("SELECT pg_advisory_lock(1)") + query("SELECT 1")},
		{"for a claim", "k", "BEGIN; LOCK TABLE fence.mark", query("SET fence.tokens = '{\"another\": 1}'")},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newStack(t, 1)
			s.holders.hold("k", 1)
			s.holders.hold("another", 1)
			conn, other := s.connectRaw(c.key), s.session(0, "", 0)
			s.exec(c.locked)
			atRest(t)
			if _, err := conn.Write([]byte(c.sent)); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			for range 3 {
				if _, err := other.Exec(ctx, "SELECT 1"); err != nil {
					t.Fatalf("another session waits, too: %v", err)
				}
			}
		})
	}
}

// Whatever ends a session ends one at rest, and its client hears why.
func TestSession_EndsAtRest(t *testing.T) {
	s := newStack(t, 0)
	for i, c := range []struct {
		name string
		open bool // in a transaction
		set  func(*proxy.Server)
		end  func(server int, conn *pgx.Conn)
		want string // "" for no word at all
	}{
		{"a claim", true, nil, func(server int, _ *pgx.Conn) { s.raise(server, "k", 2) }, "LF005"},
		{"a drain", false, nil, func(server int, _ *pgx.Conn) { go s.servers[server].Shutdown(context.Background()) }, "57P01"},
		{"an idle timeout", false, func(server *proxy.Server) { server.ClientIdleTimeout = time.Second }, nil, "57P05"},
		{"an idle timeout in a transaction", true, func(server *proxy.Server) { server.IdleTransactionTimeout = time.Second }, nil, "25P03"},
		{"PostgreSQL", false, nil, func(_ int, conn *pgx.Conn) {
			if _, err := s.admin.Exec(t.Context(), "SELECT pg_terminate_backend($1)", conn.PgConn().PID()); err != nil {
				t.Error(err)
			}
		}, "57P01"},
		{"a close", false, nil, func(server int, _ *pgx.Conn) { s.servers[server].Close() }, ""},
		{"the client's goodbye", false, nil, func(_ int, conn *pgx.Conn) { conn.Close(context.Background()) }, ""},
		{"the client's end", true, nil, func(_ int, conn *pgx.Conn) { conn.PgConn().Conn().Close() }, ""},
		{"the client's reset", true, nil, func(_ int, conn *pgx.Conn) {
			_ = conn.PgConn().Conn().(*net.TCPConn).SetLinger(0)
			conn.PgConn().Conn().Close()
		}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			s.exec("DELETE FROM fence.mark")
			s.holders.hold("k", 1)
			s.addProxy(s.pg.Addr(), func(server *proxy.Server) {
				if restSoon(server); c.set != nil {
					c.set(server)
				}
			})
			conn := s.session(i, "k", 1)
			if c.open {
				if _, err := conn.Exec(t.Context(), "BEGIN; INSERT INTO t VALUES (1, 'stale')"); err != nil {
					t.Fatal(err)
				}
			}
			if c.end != nil {
				atRest(t)
				c.end(i, conn)
			}
			if c.want == "LF005" || c.want == "" {
				poll.Until(t, "the backend is gone", func() bool {
					var there bool
					err := s.admin.QueryRow(t.Context(), "SELECT count(*) > 0 FROM pg_stat_activity WHERE pid = $1", conn.PgConn().PID()).Scan(&there)
					return err == nil && !there
				})
			} else {
				poll.Until(t, "the session is over", func() bool { return s.servers[i].Sessions() == 0 })
			}
			if _, err := conn.Exec(t.Context(), "COMMIT"); c.want != "" && code(err) != c.want || err == nil {
				t.Errorf("got %v, want %s", err, c.want)
			}
			if got := s.count("true"); got != 0 {
				t.Errorf("got %d rows, want none", got)
			}
			conn.Close(context.Background())
			poll.Until(t, "no session is left", func() bool { return s.servers[i].Sessions() == 0 || c.want == "LF005" })
		})
	}
}
