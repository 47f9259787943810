package proxy

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"github.com/fenceproxy/fenceproxy/proxy/lobby"
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

// A Host is one PostgreSQL server.
type Host struct {
	// Name stands in errors and logs: host:port or the path of a socket.
	Name string
	// Ways are tried in order: sslmode prefer is an encrypted endpoint
	// followed by a plain one.
	Ways []Endpoint
	// Timeout bounds each way, and a question; 0 is the Server's DialTimeout.
	Timeout time.Duration
	// Claims carries out the claims of sessions on this server; nil is the
	// Server's. A claim must be made where its session lives.
	Claims Claims
	// Ask finds out how the server stands, over a connection of the proxy's
	// own. It is nil on all hosts or on none: nil means that any server will do,
	// and the first that takes a session gets it.
	Ask func(context.Context) (Standing, error)
}

// An Upstream is the PostgreSQL behind the proxy: the servers that it may be.
type Upstream []Host

// TCP is an Upstream of one server at a plain endpoint.
func TCP(address string) Upstream {
	return Upstream{{Name: address, Ways: []Endpoint{{Network: "tcp", Address: address}}}}
}

var errNoTLS = errors.New("the server does not support TLS")

// failure says which host an error came from.
func (h *Host) failure(err error) error { return fmt.Errorf("%s: %w", h.Name, unaddressed(err)) }

// unaddressed is what the system said of a connection without its addresses,
// where the host is named anyhow.
func unaddressed(err error) error {
	var op *net.OpError
	if !errors.As(err, &op) || op.Error() != err.Error() {
		return err // or what it was that failed would be lost
	}
	var call *os.SyscallError
	if errors.As(op.Err, &call) {
		return call.Err
	}
	return op.Err
}

// connect dials the first way to the host that takes the connection.
func (h *Host) connect(ctx context.Context, timeout time.Duration) (net.Conn, Endpoint, error) {
	var failures []error
	for _, e := range h.Ways {
		conn, err := e.connect(ctx, timeout)
		if err == nil {
			return conn, e, nil
		}
		if len(failures) == 0 || failures[len(failures)-1].Error() != err.Error() {
			failures = append(failures, err)
		}
	}
	return nil, Endpoint{}, errors.Join(failures...)
}

// connect dials the endpoint and encrypts if it is to be encrypted.
func (e Endpoint) connect(ctx context.Context, timeout time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var d net.Dialer
	conn, err := d.DialContext(ctx, e.Network, e.Address)
	if err != nil {
		return nil, unaddressed(err)
	}
	conn = lobby.Wrap(conn)
	if e.TLS == nil {
		return conn, nil
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
