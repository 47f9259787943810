package proxy

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/fenceproxy/fenceproxy/proxy/wire"
)

// An Endpoint is one way to reach a PostgreSQL server.
type Endpoint struct {
	Network string // tcp or unix, as net.Dial takes it
	Address string
	// TLS encrypts; nil goes plain.
	TLS *tls.Config
	// Direct begins with the TLS handshake instead of asking first
	// (libpq's sslnegotiation=direct, PostgreSQL 17 and later).
	Direct bool
}

// An Upstream is the PostgreSQL behind the proxy: the ways to reach it, tried
// in order. sslmode prefer is an encrypted endpoint followed by a plain one.
type Upstream []Endpoint

// TCP is an Upstream of one plain endpoint.
func TCP(address string) Upstream { return Upstream{{Network: "tcp", Address: address}} }

var errNoTLS = errors.New("the server does not support TLS")

// dial connects to the first endpoint that takes the connection.
func (s *Server) dial() (net.Conn, Endpoint, error) {
	var failures []error
	for _, e := range s.Upstream {
		conn, err := e.connect(s.ctx, s.DialTimeout)
		if err == nil {
			return conn, e, nil
		}
		failures = append(failures, fmt.Errorf("%s: %w", e.Address, err))
	}
	return nil, Endpoint{}, errors.Join(failures...)
}

// connect dials the endpoint and encrypts if it is to be encrypted.
func (e Endpoint) connect(ctx context.Context, timeout time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var d net.Dialer
	conn, err := d.DialContext(ctx, e.Network, e.Address)
	if err != nil || e.TLS == nil {
		return conn, err
	}
	encrypted, err := e.encrypt(ctx, conn)
	if err != nil {
		conn.Close()
		return nil, err
	}
	return encrypted, nil
}

func (e Endpoint) encrypt(ctx context.Context, conn net.Conn) (net.Conn, error) {
	config := e.TLS
	if e.Direct {
		config = config.Clone()
		config.NextProtos = []string{ALPN}
	} else if err := askTLS(ctx, conn); err != nil {
		return nil, err
	}
	encrypted := tls.Client(conn, config)
	if err := encrypted.HandshakeContext(ctx); err != nil {
		return nil, fmt.Errorf("TLS handshake: %w", err)
	}
	return encrypted, nil
}

// askTLS asks the server for encryption. It reads one byte and no more: what
// comes after the answer belongs to the handshake.
func askTLS(ctx context.Context, conn net.Conn) error {
	if deadline, ok := ctx.Deadline(); ok {
		conn.SetDeadline(deadline)
		defer conn.SetDeadline(noDeadline)
	}
	packet := binary.BigEndian.AppendUint32(nil, 8)
	packet = binary.BigEndian.AppendUint32(packet, wire.CodeSSL)
	if _, err := conn.Write(packet); err != nil {
		return fmt.Errorf("ask for TLS: %w", err)
	}
	var answer [1]byte
	if _, err := io.ReadFull(conn, answer[:]); err != nil {
		return fmt.Errorf("ask for TLS: %w", err)
	}
	if answer[0] != 'S' {
		return errNoTLS
	}
	return nil
}

// forwardCancel passes a cancel request on to where the session that it names
// runs. Anything else is dropped silently, as PostgreSQL does.
func (s *Server) forwardCancel(packet []byte) {
	s.mu.Lock()
	ses, known := s.cancels[string(packet[8:])]
	s.mu.Unlock()
	if !known {
		return
	}
	conn, err := ses.endpoint.connect(s.ctx, s.DialTimeout)
	if err != nil {
		s.Logger.Warn("forward cancel request", "error", err)
		return
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(s.DialTimeout))
	if _, err := conn.Write(packet); err != nil {
		s.Logger.Warn("forward cancel request", "error", err)
		return
	}
	// The server closes when the signal is sent; the client waits for that.
	_, _ = conn.Read(make([]byte, 1))
}
