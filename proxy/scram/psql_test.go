package scram_test

import (
	"crypto/tls"
	"crypto/x509"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	_ "github.com/jackc/pgx/v5/stdlib" // the drivers of TestServer_Drivers
	_ "github.com/lib/pq"

	"github.com/fenceproxy/fenceproxy/proxy/scram"
	"github.com/fenceproxy/fenceproxy/proxy/wire"
	"github.com/fenceproxy/fenceproxy/testharness/postgres"
)

// A gate is a proxy as small as can be: it verifies a client, logs in with the
// client's key, and passes everything on from there.
type gate struct {
	t        *testing.T
	listener net.Listener
	front    *tls.Config // nil refuses TLS
	binding  []byte      // of front's certificate
	back     bool        // TLS towards PostgreSQL
	backend  string      // host:port
	secrets  map[string]scram.Secret
	mock     *scram.Mock

	mu    sync.Mutex
	conns []net.Conn
	bound []bool // of the logins to PostgreSQL
}

func (g *gate) open() {
	g.t.Helper()
	var err error
	if g.listener, err = net.Listen("tcp4", "127.0.0.1:0"); err != nil {
		g.t.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			conn, err := g.listener.Accept()
			if err != nil {
				return // closed below
			}
			g.mu.Lock()
			g.conns = append(g.conns, conn)
			g.mu.Unlock()
			running.Go(func() {
				defer conn.Close()
				if err := g.serve(conn); err != nil {
					g.t.Logf("gate: %v", err)
				}
			})
		}
	})
	g.t.Cleanup(func() {
		g.listener.Close()
		g.mu.Lock()
		for _, conn := range g.conns {
			conn.Close()
		}
		g.mu.Unlock()
		running.Wait()
	})
}

// serve takes one client through to PostgreSQL. It returns when either side
// has closed.
func (g *gate) serve(conn net.Conn) error {
	client := newPeer(conn)
	packet, err := client.in.ReadPacket(wire.MaxStartupLength)
	if err == nil && binary.BigEndian.Uint32(packet[4:]) == wire.CodeSSL {
		if g.front == nil {
			conn.Write([]byte{'N'})
		} else {
			conn.Write([]byte{'S'})
			client = newPeer(tls.Server(conn, g.front))
		}
		packet, err = client.in.ReadPacket(wire.MaxStartupLength)
	}
	if err != nil {
		return err
	}
	params, err := wire.ReadStartup(packet)
	if err != nil {
		return err
	}
	user := params["user"]
	var secret *scram.Secret
	if s, ok := g.secrets[user]; ok {
		secret = &s
	}
	server := scram.NewServer(user, secret, g.mock, g.binding)
	final, err := client.verify(server)
	if err != nil {
		return err
	}
	key, ok := server.ClientKey()
	if !ok {
		return errors.New("no key")
	}
	backend, cert := dial(g.t, g.backend, user, g.back)
	var binding []byte
	if g.back {
		binding = scram.CertificateBinding(cert)
	}
	login := scram.NewKeyClient(*secret, key, binding)
	if err := backend.login(login); err != nil {
		return err
	}
	g.mu.Lock()
	g.conns, g.bound = append(g.conns, backend.conn), append(g.bound, login.Bound())
	g.mu.Unlock()
	client.sendAuth(authSASLFinal, final)
	client.sendAuth(authOK, nil)
	return relay(client, backend)
}

// relay passes messages both ways until one side has closed.
func relay(a, b *peer) error {
	var running sync.WaitGroup
	pump := func(from, to *peer) {
		defer a.conn.Close()
		defer b.conn.Close()
		for {
			if _, _, err := from.in.Next(); err != nil {
				return
			}
			if from.in.Forward(to.out) != nil || to.out.Flush() != nil {
				return
			}
		}
	}
	running.Go(func() { pump(a, b) })
	pump(b, a)
	running.Wait()
	return nil
}

// psql runs a query through the gate and returns what psql prints.
func (g *gate) psql(user, password, options string) (stdout, stderr string) {
	g.t.Helper()
	program, err := exec.LookPath("psql")
	if err != nil {
		g.t.Fatal(err)
	}
	port := g.listener.Addr().(*net.TCPAddr).Port
	cmd := exec.CommandContext(g.t.Context(), program, "-XAtc", "SELECT current_user", fmt.Sprintf("host=127.0.0.1 port=%d user=%s dbname=postgres %s", port, user, options))
	cmd.Env = append(os.Environ(), "PGPASSWORD="+password, "LC_ALL=C")
	var out, errs strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errs
	_ = cmd.Run() // what it printed tells
	return strings.TrimSpace(out.String()), strings.TrimSpace(errs.String())
}

func TestServer_Psql(t *testing.T) {
	d := newDatabase(t)
	d.setPassword("alice", password)
	secrets := map[string]scram.Secret{"alice": d.secret("alice")}
	cert := certificate(t, x509.SHA384WithRSA)
	d.useTLS(cert)
	shown := certificate(t, x509.ECDSAWithSHA512)
	front := &tls.Config{Certificates: []tls.Certificate{shown}}
	unbindable := &tls.Config{Certificates: []tls.Certificate{certificate(t, x509.PureEd25519)}}
	tests := []struct {
		name    string
		front   *tls.Config
		back    bool
		options string
	}{
		{"no TLS", nil, false, "sslmode=disable"},
		{"no TLS in front", nil, true, "sslmode=prefer"},
		{"no TLS behind", front, false, "sslmode=require channel_binding=require"},
		{"TLS, bound", front, true, "sslmode=require channel_binding=require"},
		{"TLS, not bound", front, true, "sslmode=require channel_binding=disable"},
		{"TLS, nothing to bind to", unbindable, true, "sslmode=require"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			g := &gate{t: t, front: test.front, back: test.back, backend: d.server.Addr(), secrets: secrets, mock: scram.NewMock(nil, 0)}
			if test.front == front {
				g.binding = scram.CertificateBinding(shown.Leaf)
			}
			g.open()
			if got, errs := g.psql("alice", password, test.options); got != "alice" {
				t.Fatalf("got %q, %q, want alice", got, errs)
			}
			if len(g.bound) != 1 || g.bound[0] != test.back {
				t.Errorf("got logins with binding %v, want one, %v", g.bound, test.back)
			}
			for _, user := range []string{"alice", "nobody"} {
				if test.front == unbindable {
					continue
				}
				_, errs := g.psql(user, "wrong", test.options)
				want := fmt.Sprintf(`FATAL:  password authentication failed for user "%s"`, user)
				if !strings.Contains(errs, want) {
					t.Errorf("got %q, want it to say %q", errs, want)
				}
			}
		})
	}
}

// TestServer_Drivers has clients that aren't libpq, with and without TLS.
func TestServer_Drivers(t *testing.T) {
	d := newDatabase(t)
	d.setPassword("alice", "päss wörd")
	cert := certificate(t, x509.SHA256WithRSA)
	for _, mode := range []string{"disable", "require"} {
		g := &gate{t: t, backend: d.server.Addr(), secrets: map[string]scram.Secret{"alice": d.secret("alice")}, mock: scram.NewMock(nil, 0)}
		if mode == "require" {
			g.front, g.binding = &tls.Config{Certificates: []tls.Certificate{cert}}, scram.CertificateBinding(cert.Leaf)
		}
		g.open()
		for _, driver := range []string{"pgx", "postgres"} {
			t.Run(driver+" "+mode, func(t *testing.T) {
				db, err := sql.Open(driver, fmt.Sprintf("host=127.0.0.1 port=%d user=alice password='päss wörd' dbname=postgres sslmode=%s", g.listener.Addr().(*net.TCPAddr).Port, mode))
				if err != nil {
					t.Fatal(err)
				}
				defer db.Close()
				var got string
				if err := db.QueryRowContext(t.Context(), "SELECT current_user").Scan(&got); err != nil || got != "alice" {
					t.Errorf("got %q, %v, want alice", got, err)
				}
			})
		}
	}
}

// TestServer_Psql_AsPostgreSQL has psql fail at PostgreSQL and at the gate.
func TestServer_Psql_AsPostgreSQL(t *testing.T) {
	d := newDatabase(t)
	d.setPassword("alice", password)
	g := &gate{t: t, backend: d.server.Addr(), secrets: map[string]scram.Secret{"alice": d.secret("alice")}, mock: scram.NewMock(nil, 0)}
	g.open()
	for _, user := range []string{"alice", "nobody", postgres.Superuser} {
		_, got := g.psql(user, "wrong", "sslmode=disable")
		direct := &gate{t: t, listener: fixed{d.server.Port()}}
		_, want := direct.psql(user, "wrong", "sslmode=disable")
		want = strings.ReplaceAll(want, fmt.Sprint(d.server.Port()), fmt.Sprint(g.listener.Addr().(*net.TCPAddr).Port))
		if got != want || got == "" {
			t.Errorf("%s: got %q, want %q", user, got, want)
		}
	}
}

// fixed is the address of a server that somebody else runs.
type fixed struct{ port int }

func (fixed) Accept() (net.Conn, error) { return nil, net.ErrClosed }
func (fixed) Close() error              { return nil }
func (f fixed) Addr() net.Addr          { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: f.port} }
