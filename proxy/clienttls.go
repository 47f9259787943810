package proxy

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"

	"github.com/fenceproxy/fenceproxy/proxy/wire"
)

// A TLSMode says whether clients may or must encrypt.
type TLSMode uint8

const (
	// TLSDisable: a request for TLS is answered with no.
	TLSDisable TLSMode = iota
	// TLSAllow: clients may encrypt.
	TLSAllow
	// TLSRequire: clients must encrypt; only a cancel request needn't.
	TLSRequire
)

func (m TLSMode) String() string {
	switch m {
	case TLSDisable:
		return "disable"
	case TLSAllow:
		return "allow"
	case TLSRequire:
		return "require"
	}
	return fmt.Sprintf("mode %d", uint8(m))
}

// ALPN is the protocol name that clients which begin with TLS at once must
// ask for. PostgreSQL: PG_ALPN_PROTOCOL in pqcomm.h.
const ALPN = "postgresql"

// A ClientTLS says how sessions with clients are encrypted.
type ClientTLS struct {
	Mode TLSMode
	// Config is asked for each handshake, so that certificates can change
	// while the proxy runs; what it returned before isn't changed any more. A
	// client resumes its session as long as the same one is returned. It must
	// not be nil unless Mode is TLSDisable.
	Config func() *tls.Config
}

// A handshaking is what handshakes use of the newest ClientTLS.Config: one
// tls.Config for all, since that holds the keys of the tickets by which a client
// resumes a TLS session.
type handshaking struct {
	mu      sync.Mutex
	given   *tls.Config // nil: none yet
	config  *tls.Config
	binding []byte // channel-binding data of its certificate
}

// use returns what a handshake uses of a config.
func (h *handshaking) use(given *tls.Config) (config *tls.Config, binding []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.given != given {
		config := given.Clone()
		config.NextProtos = []string{ALPN}
		config.MinVersion = max(config.MinVersion, tls.VersionTLS12)
		h.given, h.config, h.binding = given, config, ownBinding(config)
	}
	return h.config, h.binding
}

// firstByteTLS is what a TLS handshake begins with; no startup packet does,
// since that would be one of over 300 MB.
const firstByteTLS = 0x16

var errPlaintext = errors.New("unencrypted bytes came after the request for TLS")

// maybeDirectTLS encrypts at once if the client began with a handshake.
func (s *session) maybeDirectTLS() error {
	if s.srv.settings().TLS.Mode == TLSDisable || !s.fromClient.Begins(firstByteTLS) {
		return nil
	}
	if err := s.encrypt(s.fromClient.Rest()); err != nil {
		return err
	}
	if got := s.client.(*tls.Conn).ConnectionState().NegotiatedProtocol; got != ALPN {
		return fmt.Errorf("direct TLS without the protocol name %q", ALPN)
	}
	return nil
}

// answerEncryption answers a request for TLS or GSSAPI encryption, and
// encrypts if it says yes. Bytes that came along with the request were put
// there by somebody who hoped that they would be taken for what comes after
// the handshake (CVE-2021-3935); PostgreSQL refuses them after a no as well.
func (s *session) answerEncryption(code uint32) error {
	early := len(s.fromClient.Rest()) > 0
	encrypt := code == wire.CodeSSL && s.srv.settings().TLS.Mode != TLSDisable && !s.encrypted()
	if !encrypt {
		if err := s.answerByte('N'); err != nil {
			return err
		}
	}
	if early {
		what := "SSL request"
		if code == wire.CodeGSSEnc {
			what = "GSSAPI encryption request"
		}
		s.farewell(wire.Report{
			Severity: "FATAL", Code: "08P01", Message: "received unencrypted data after " + what,
			Detail: "This could be either a client-software bug or evidence of an attempted man-in-the-middle attack.",
		})
		return errPlaintext
	}
	if !encrypt {
		return nil
	}
	if err := s.answerByte('S'); err != nil {
		return err
	}
	return s.encrypt(nil)
}

// answerByte answers a request for encryption.
func (s *session) answerByte(b byte) error {
	s.toClient.Write([]byte{b})
	if err := s.toClient.Flush(); err != nil {
		return fmt.Errorf("answer encryption request: %w", err)
	}
	return nil
}

// encrypt takes the handshake; read are bytes of it that were read already.
func (s *session) encrypt(read []byte) error {
	config, binding := s.srv.handshaking.use(s.srv.settings().TLS.Config())
	conn := tls.Server(&peeked{Conn: s.client, bytes: append([]byte(nil), read...)}, config)
	ctx, cancel := context.WithTimeout(s.srv.ctx, s.srv.settings().LoginTimeout)
	defer cancel()
	if err := conn.HandshakeContext(ctx); err != nil {
		return fmt.Errorf("TLS handshake: %w", err)
	}
	s.mu.Lock()
	s.client = conn
	s.mu.Unlock()
	s.binding = binding
	s.fromClient, s.toClient = wire.NewReader(conn), wire.NewWriter(conn)
	return nil
}

// encrypted reports whether the client's leg is encrypted.
func (s *session) encrypted() bool {
	_, ok := s.client.(*tls.Conn)
	return ok
}

// A peeked is a connection some of whose bytes were read already.
type peeked struct {
	net.Conn
	bytes []byte
}

func (u *peeked) Read(p []byte) (int, error) {
	if len(u.bytes) == 0 {
		return u.Conn.Read(p)
	}
	n := copy(p, u.bytes)
	u.bytes = u.bytes[n:]
	return n, nil
}

// NetConn returns the connection below.
func (u *peeked) NetConn() net.Conn { return u.Conn }
