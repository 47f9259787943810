package scram_test

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/proxy/scram"
	"github.com/fenceproxy/fenceproxy/proxy/wire"
)

// Codes of authentication requests.
const (
	authOK           = 0
	authSASL         = 10
	authSASLContinue = 11
	authSASLFinal    = 12
)

const patience = 20 * time.Second

// A peer is one end of a raw connection that speaks frames.
type peer struct {
	conn net.Conn
	in   *wire.Reader
	out  *wire.Writer
}

func newPeer(conn net.Conn) *peer {
	conn.SetDeadline(time.Now().Add(patience))
	return &peer{conn, wire.NewReader(conn), wire.NewWriter(conn)}
}

// dial connects to a server, with TLS if secure, and sends a startup packet.
// cert is what the server showed.
func dial(t testing.TB, addr, user string, secure bool) (p *peer, cert *x509.Certificate) {
	t.Helper()
	var conn net.Conn
	var err error
	if secure {
		var secured *tls.Conn
		if secured, err = tlsDial(addr); err == nil {
			conn, cert = secured, secured.ConnectionState().PeerCertificates[0]
		}
	} else {
		conn, err = net.Dial("tcp", addr)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	p = newPeer(conn)
	packet := fmt.Sprintf("\x00\x03\x00\x00user\x00%s\x00database\x00postgres\x00\x00", user)
	p.out.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(packet)+4)), packet...))
	if err := p.out.Flush(); err != nil {
		t.Fatal(err)
	}
	return p, cert
}

// send writes one message.
func (p *peer) send(typ byte, parts ...[]byte) error {
	p.out.Write(wire.Frame(nil, typ, parts...))
	return p.out.Flush()
}

// sendAuth writes an Authentication message.
func (p *peer) sendAuth(code uint32, rest []byte) error {
	return p.send(wire.Authentication, binary.BigEndian.AppendUint32(nil, code), rest)
}

// receive reads one message; an ErrorResponse is an error of type *refusal.
func (p *peer) receive() (typ byte, body []byte, err error) {
	typ, n, err := p.in.Next()
	if err != nil {
		return 0, nil, err
	}
	body, err = p.in.Read(n)
	if err == nil && typ == wire.ErrorResponse {
		r, err := wire.ReadReport(body)
		return typ, nil, errors.Join(err, &refusal{r})
	}
	return typ, append([]byte(nil), body...), err
}

// receiveAuth reads an Authentication message with one of the codes.
func (p *peer) receiveAuth(codes ...uint32) (code uint32, rest []byte, err error) {
	typ, body, err := p.receive()
	if err != nil {
		return 0, nil, err
	}
	if typ == wire.Authentication && len(body) >= 4 {
		for _, code := range codes {
			if binary.BigEndian.Uint32(body) == code {
				return code, body[4:], nil
			}
		}
	}
	return 0, nil, fmt.Errorf("message %q %q, want authentication code %v", typ, body, codes)
}

// A refusal is an ErrorResponse.
type refusal struct{ wire.Report }

func (r *refusal) Error() string { return r.Message }

// login logs in and leaves what follows AuthenticationOk unread.
func (p *peer) login(client *scram.Client) error {
	_, offered, err := p.receiveAuth(authSASL)
	if err != nil {
		return err
	}
	message, err := client.Initial(offered)
	if err != nil {
		return err
	}
	if err := p.send(wire.Password, message); err != nil {
		return err
	}
	_, challenge, err := p.receiveAuth(authSASLContinue)
	if err != nil {
		return err
	}
	if message, err = client.Continue(challenge); err != nil {
		return err
	}
	if err := p.send(wire.Password, message); err != nil {
		return err
	}
	_, final, err := p.receiveAuth(authSASLFinal)
	if err != nil {
		return err
	}
	if err := client.Final(final); err != nil {
		return err
	}
	_, _, err = p.receiveAuth(authOK)
	return err
}

// verify is the proxy's side towards a client: the exchange up to, but not
// with, the server's final message, which it returns.
func (p *peer) verify(server *scram.Server) (final []byte, err error) {
	if err := p.sendAuth(authSASL, server.Mechanisms()); err != nil {
		return nil, err
	}
	for {
		typ, n, err := p.in.Next()
		if err != nil {
			return nil, err
		}
		if typ != wire.Password {
			return nil, p.refuse(scram.UnexpectedMessage(typ))
		}
		body, err := p.in.Read(min(n, scram.MaxClientMessage))
		if err != nil {
			return nil, err
		}
		reply, err := server.Step(body)
		if err != nil {
			return nil, p.refuse(err)
		}
		if server.Done() {
			return reply, nil
		}
		if err := p.sendAuth(authSASLContinue, reply); err != nil {
			return nil, err
		}
	}
}

// refuse tells the client of an *Error and returns it.
func (p *peer) refuse(err error) error {
	var e *scram.Error
	if !errors.As(err, &e) {
		return err
	}
	p.out.Write(wire.AppendError(nil, wire.Report{Severity: "FATAL", Code: e.Code, Message: e.Message, Detail: e.Detail}))
	return errors.Join(e, p.out.Flush())
}

// query runs a query of one value.
func (p *peer) query(text string) (value string, err error) {
	p.out.Write(wire.AppendQuery(nil, text))
	if err := p.out.Flush(); err != nil {
		return "", err
	}
	for ready := 0; ready < 2; { // the first belongs to the login
		typ, body, err := p.receive()
		if err != nil {
			return "", err
		}
		switch typ {
		case wire.ReadyForQuery:
			ready++
		case wire.DataRow:
			row, err := wire.ReadRow(body)
			if err != nil {
				return "", err
			}
			value = row[0]
		}
	}
	return value, nil
}

// tlsDial connects to a PostgreSQL with TLS, as far as the handshake.
func tlsDial(addr string) (*tls.Conn, error) {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	conn.SetDeadline(time.Now().Add(patience))
	conn.Write(binary.BigEndian.AppendUint32([]byte{0, 0, 0, 8}, wire.CodeSSL))
	answer := make([]byte, 1)
	if _, err := io.ReadFull(conn, answer); err != nil || answer[0] != 'S' {
		conn.Close()
		return nil, errors.Join(err, errors.New("no TLS"))
	}
	// The tests look at the certificate themselves.
	secured := tls.Client(conn, &tls.Config{InsecureSkipVerify: true})
	if err := secured.Handshake(); err != nil {
		conn.Close()
		return nil, err
	}
	return secured, nil
}
