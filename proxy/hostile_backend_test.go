package proxy_test

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/proxy"
	"github.com/fenceproxy/fenceproxy/proxy/scram"
	"github.com/fenceproxy/fenceproxy/proxy/wire"
	"github.com/fenceproxy/fenceproxy/testharness/certs"
	"github.com/fenceproxy/fenceproxy/testharness/poll"
)

// A peer is one end of a connection, frame by frame.
type peer struct {
	conn net.Conn
	in   *wire.Reader
}

func newPeer(conn net.Conn) *peer {
	conn.SetDeadline(time.Now().Add(20 * time.Second))
	return &peer{conn, wire.NewReader(conn)}
}

// auth is an authentication request.
func auth(code uint32, rest string) string {
	return string(wire.Frame(nil, wire.Authentication, binary.BigEndian.AppendUint32(nil, code), []byte(rest)))
}

// startup writes a startup packet of a version and parameters.
func (p *peer) startup(version uint32, params string) {
	packet := binary.BigEndian.AppendUint32(nil, uint32(9+len(params)))
	p.conn.Write(append(append(binary.BigEndian.AppendUint32(packet, version), params...), 0))
}

// read returns the next message; the error of an ErrorResponse is its report.
func (p *peer) read() (t byte, body []byte, err error) {
	t, n, err := p.in.Next()
	if err != nil {
		return 0, nil, err
	}
	if body, err = p.in.Read(n); err != nil {
		return 0, nil, err
	}
	if t == wire.ErrorResponse {
		r, err := wire.ReadReport(body)
		return t, nil, errors.Join(err, &reported{r})
	}
	return t, append([]byte(nil), body...), nil
}

// authRequest reads an authentication request.
func (p *peer) authRequest() (code uint32, rest []byte, err error) {
	t, body, err := p.read()
	if err != nil || t != wire.Authentication || len(body) < 4 {
		return 0, nil, errors.Join(err, errors.New("no authentication request"))
	}
	return binary.BigEndian.Uint32(body), body[4:], nil
}

type reported struct{ wire.Report }

func (r *reported) Error() string { return r.Code + " " + r.Message }

// told returns what the peer is told up to the end: the SQLSTATE and message
// of the one FATAL, or "end".
func (p *peer) told(t *testing.T) string {
	t.Helper()
	said := "end"
	for {
		_, _, err := p.read()
		var r *reported
		switch {
		case errors.As(err, &r) && said == "end":
			said = r.Error()
		case errors.As(err, &r):
			t.Errorf("told twice: %s, then %v", said, r)
			return said
		case errors.Is(err, io.EOF), errors.Is(err, net.ErrClosed), err != nil && strings.Contains(err.Error(), "reset"):
			return said
		case err != nil:
			t.Errorf("the session didn't end: %v", err)
			return said
		}
	}
}

// fakeBackend is a server that does what talk does with each connection after
// its startup packet.
func fakeBackend(t *testing.T, talk func(p *peer)) string {
	t.Helper()
	ln := listen(t)
	acceptAll(t, ln, func(conn net.Conn) {
		defer conn.Close()
		p := newPeer(conn)
		if _, err := p.in.ReadPacket(wire.MaxStartupLength); err == nil {
			talk(p)
		}
	})
	return ln.Addr().String()
}

// before starts a proxy before a server without schema fence.
func before(t *testing.T, upstream string, set func(*proxy.Server)) string {
	t.Helper()
	server := proxy.NewServer(proxy.TCP(upstream), nil)
	if set != nil {
		set(server)
	}
	ln := listen(t)
	serveUntilCleanup(t, server, ln)
	return ln.Addr().String()
}

func dialPeer(t *testing.T, addr string) *peer {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return newPeer(conn)
}

// A server that doesn't keep to the protocol costs its client the session,
// with one word about it, and nobody waits for ever.
func TestServer_HostileBackend(t *testing.T) {
	const version30, app = 3 << 16, "user\x00app\x00"
	for _, c := range []struct {
		name    string
		version uint32
		params  string
		says    string
		want    string
	}{
		{"nothing", version30, app, "", "end"},
		{"half a message", version30, app, "R\x00\x00", "end"},
		{"another protocol", version30, app, "HTTP/1.1 400 Bad Request\r\n", "08P01 PostgreSQL sent a message of an impossible length"},
		{"a length of 3", version30, app, "R\x00\x00\x00\x03", "08P01 PostgreSQL sent a message of an impossible length"},
		{"a length of 2 GB", version30, app, "R\x7f\xff\xff\xff", "08P01 PostgreSQL sent a message of an impossible length"},
		{"a negative length", version30, app, "R\xff\xff\xff\xff", "08P01 PostgreSQL sent a message of an impossible length"},
		{"a request of 3 bytes", version30, app, "R\x00\x00\x00\x07\x00\x00\x00", "08P01 PostgreSQL sent an invalid authentication request"},
		{"a request of 70 kB", version30, app, "R\x00\x01\x11\x70", "08P01 PostgreSQL sent an invalid authentication request"},
		{"a row", version30, app, auth(0, "") + "D\x00\x00\x00\x06\x00\x00", `08P01 PostgreSQL sent an unexpected message of type 'D' during startup`},
		{"a short key", version30, app, auth(0, "") + "K\x00\x00\x00\x08\x00\x00\x00\x00", "08P01 PostgreSQL sent an invalid cancel key"},
		{"a long key", version30, app, auth(0, "") + string(wire.Frame(nil, 'K', make([]byte, 261))), "08P01 PostgreSQL sent an invalid cancel key"},
		{"Kerberos", version30, app, auth(2, ""), "0A000 fenceproxy does not relay the authentication method that PostgreSQL asks for (Kerberos V5)"},
		{"SCM credentials", version30, app, auth(6, ""), "0A000 fenceproxy does not relay the authentication method that PostgreSQL asks for (number 6)"},
		{"GSSAPI", version30, app, auth(7, ""), "0A000 fenceproxy does not relay the authentication method that PostgreSQL asks for (GSSAPI)"},
		{"GSSAPI in the middle", version30, app, auth(8, "token"), "0A000 fenceproxy does not relay the authentication method that PostgreSQL asks for (GSSAPI)"},
		{"SSPI", version30, app, auth(9, ""), "0A000 fenceproxy does not relay the authentication method that PostgreSQL asks for (SSPI)"},
		{"a method of the future", version30, app, auth(1000, ""), "0A000 fenceproxy does not relay the authentication method that PostgreSQL asks for (number 1000)"},
		{"a version of the future that is taken", 4 << 16, app, auth(0, "") + "Z\x00\x00\x00\x05I", "0A000 unsupported frontend protocol 4.0: fenceproxy supports 3.x"},
		{"a version of the past that is taken", 2 << 16, app, "R\x00\x00\x00\x00", "0A000 unsupported frontend protocol 2.0: fenceproxy supports 3.x"},
		{"a kind of replication that is taken", version30, app + "replication\x00logical\x00", auth(0, "") + "Z\x00\x00\x00\x05I", "0A000 fenceproxy does not relay replication connections"},
		{"a refusal that never ends", 4 << 16, app, "E" + strings.Repeat("x", 100000), "0A000 unsupported frontend protocol 4.0: fenceproxy supports 3.x"},
	} {
		t.Run(c.name, func(t *testing.T) {
			addr := before(t, fakeBackend(t, func(p *peer) { p.conn.Write([]byte(c.says)) }), nil)
			p := dialPeer(t, addr)
			p.startup(c.version, c.params)
			if got := p.told(t); !strings.HasPrefix(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// A server that says nothing is given up, whoever waits for it.
func TestServer_SilentBackend(t *testing.T) {
	hold := make(chan struct{})
	addr := before(t, fakeBackend(t, func(*peer) { <-hold }), func(s *proxy.Server) { s.LoginTimeout, s.DialTimeout = 100*time.Millisecond, 100*time.Millisecond })
	defer close(hold)
	p := dialPeer(t, addr)
	p.startup(3<<16, "user\x00app\x00")
	if got, want := p.told(t), "08006 PostgreSQL did not answer in time"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	p = dialPeer(t, addr)
	p.startup(4<<16, "user\x00app\x00")
	if got, want := p.told(t), "0A000 unsupported frontend protocol 4.0: fenceproxy supports 3.x"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// Strangers have PostgreSQL refuse so many at a time and no more: whoever speaks
// another protocol is counted by nothing else.
func TestServer_RefusalsAtOnce(t *testing.T) {
	const most = 16
	hold := make(chan struct{})
	var asked atomic.Int32
	addr := before(t, fakeBackend(t, func(*peer) { asked.Add(1); <-hold }), func(s *proxy.Server) { s.DialTimeout = time.Hour })
	const want = "0A000 unsupported frontend protocol 4.0: fenceproxy supports 3.x"
	stranger := func() *peer {
		p := dialPeer(t, addr)
		p.startup(4<<16, "user\x00app\x00")
		return p
	}
	var waiting []*peer
	for range most {
		waiting = append(waiting, stranger())
	}
	poll.Until(t, "all of them are with PostgreSQL", func() bool { return asked.Load() == most })
	for range 3 {
		if got := stranger().told(t); got != want {
			t.Errorf("one more: got %q, want %q", got, want)
		}
	}
	close(hold)
	for _, p := range waiting {
		if got := p.told(t); got != want {
			t.Errorf("one who waited: got %q, want %q", got, want)
		}
	}
	poll.Until(t, "another one is with PostgreSQL", func() bool { stranger().told(t); return asked.Load() > most })
}

// Where the proxy logs in for a client, a server that doesn't prove that it
// knows the role's secret is not let near it.
func TestServer_HostileBackendSASL(t *testing.T) {
	ca := certs.New(t)
	shown := &tls.Config{Certificates: []tls.Certificate{ca.Leaf("proxy")}}
	const salt = "sixteen bytes ok"
	secret, _, err := scram.Derive("secret", salt, 4096)
	if err != nil {
		t.Fatal(err)
	}
	credentials := map[string]proxy.Credential{"keyed": {Secret: &secret}, "known": {Secret: &secret, Password: "secret"}}
	const offer = "SCRAM-SHA-256\x00\x00"
	ok := auth(0, "") + "K\x00\x00\x00\x0c\x00\x00\x00\x01\x00\x00\x00\x01" + "Z\x00\x00\x00\x05I"
	// %NONCE stands for what the proxy sent.
	good := "r=%NONCEx,s=c2l4dGVlbiBieXRlcyBvaw==,i=4096"
	for _, c := range []struct {
		name, user, offer string
		first, final      string
		want              string
	}{
		{"an offer without an end", "keyed", "SCRAM-SHA-256", "", "", "08006 "},
		{"an offer with a tail", "keyed", offer + "x", "", "", "08006 "},
		{"no final message", "keyed", offer, auth(11, good), ok, "08P01 PostgreSQL sent an unexpected authentication request"},
		{"no exchange at all", "keyed", offer, ok, "", "08P01 PostgreSQL sent an unexpected authentication request"},
		{"another request", "keyed", offer, auth(3, ""), "", "08P01 PostgreSQL sent an unexpected authentication request"},
		{"a wrong signature", "keyed", offer, auth(11, good), auth(12, "v="+strings.Repeat("A", 43)+"=") + ok, "08006 "},
		{"half a signature", "keyed", offer, auth(11, good), auth(12, "v=AAAA") + ok, "08006 "},
		{"no signature", "keyed", offer, auth(11, good), auth(12, "") + ok, "08006 "},
		{"an error", "keyed", offer, auth(11, good), auth(12, "e=other-error") + ok, "08006 "},
		{"rows", "keyed", offer, "D\x00\x00\x00\x06\x00\x00", "", "08P01 "},
		{"a length of 2 GB", "keyed", offer, "R\x7f\xff\xff\xff", "", "08P01 "},
		{"nothing", "keyed", offer, auth(11, ""), "", "08006 "},
		{"60 kB", "keyed", offer, auth(11, good+strings.Repeat("x", 60000)), "", "08006 "},
		{"another nonce", "keyed", offer, auth(11, "r=x,s=c2l4dGVlbiBieXRlcyBvaw==,i=4096"), "", "08006 "},
		{"the proxy's nonce and no more", "keyed", offer, auth(11, "r=%NONCE,s=c2l4dGVlbiBieXRlcyBvaw==,i=4096"), "", "08006 "},
		{"no iterations", "keyed", offer, auth(11, "r=%NONCEx,s=c2l4dGVlbiBieXRlcyBvaw=="), "", "08006 "},
		{"0 iterations", "keyed", offer, auth(11, "r=%NONCEx,s=c2l4dGVlbiBieXRlcyBvaw==,i=0"), "", "08006 "},
		{"other iterations", "keyed", offer, auth(11, "r=%NONCEx,s=c2l4dGVlbiBieXRlcyBvaw==,i=1"), "", "28P01 "},
		{"0 iterations and a password", "known", offer, auth(11, "r=%NONCEx,s=c2l4dGVlbiBieXRlcyBvaw==,i=0"), "", "08006 "},
		{"2³¹−1 iterations and a password", "known", offer, auth(11, "r=%NONCEx,s=c2l4dGVlbiBieXRlcyBvaw==,i=2147483647"), "", "08006 "},
		{"2³² iterations and a password", "known", offer, auth(11, "r=%NONCEx,s=c2l4dGVlbiBieXRlcyBvaw==,i=4294967296"), "", "08006 "},
		{"no salt and a password", "known", offer, auth(11, "r=%NONCEx,s=,i=4096"), "", "08006 "},
	} {
		t.Run(c.name, func(t *testing.T) {
			upstream := fakeBackend(t, func(p *peer) {
				p.conn.Write([]byte(auth(10, c.offer)))
				_, body, err := p.read()
				if err != nil {
					return
				}
				_, nonce, _ := strings.Cut(string(body), ",r=")
				said := strings.ReplaceAll(c.first, "%NONCE", nonce)
				if strings.Contains(c.first, "%NONCE") { // the length was another one
					said = auth(11, strings.ReplaceAll(c.first[9:], "%NONCE", nonce))
				}
				p.conn.Write([]byte(said))
				if c.final != "" {
					p.read()
					p.conn.Write([]byte(c.final))
				}
				p.read()
			})
			addr := before(t, upstream, func(s *proxy.Server) {
				s.TLS = proxy.ClientTLS{Mode: proxy.TLSRequire, Config: func() *tls.Config { return shown }}
				s.Secrets = fixedSecrets(credentials)
			})
			conn, err := tls.Dial("tcp", addr, &tls.Config{RootCAs: ca.Pool, ServerName: "127.0.0.1", NextProtos: []string{proxy.ALPN}})
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			p := newPeer(conn)
			p.startup(3<<16, "user\x00"+c.user+"\x00")
			if err := p.prove("secret"); err != nil {
				t.Fatal(err)
			}
			if got := p.told(t); !strings.HasPrefix(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// prove answers up to the proof.
func (p *peer) prove(password string) error {
	client := scram.NewPasswordClient(password, nil)
	_, offered, err := p.authRequest()
	if err != nil {
		return err
	}
	message, err := client.Initial([]byte(scram.MechanismPlain + "\x00\x00"))
	if err != nil {
		return err
	}
	if !strings.Contains(string(offered), scram.MechanismPlus) {
		return errors.New("no binding was offered")
	}
	p.conn.Write(wire.Frame(nil, wire.Password, message))
	_, challenge, err := p.authRequest()
	if err != nil {
		return err
	}
	if message, err = client.Continue(challenge); err != nil {
		return err
	}
	_, err = p.conn.Write(wire.Frame(nil, wire.Password, message))
	return err
}

type fixedSecrets map[string]proxy.Credential

func (f fixedSecrets) Credential(_ context.Context, user string) (proxy.Credential, error) {
	return f[user], nil
}
