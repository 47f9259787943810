package proxy

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/fenceproxy/fenceproxy/proxy/scram"
	"github.com/fenceproxy/fenceproxy/proxy/wire"
)

// Secrets knows how roles prove who they are, for clients whose exchange can't
// be relayed because it is bound to a channel that ends here.
type Secrets interface {
	// Credential returns what is known of user; one without a Secret if that is
	// nothing. ErrNoSecrets has PostgreSQL verify the client; another error
	// means that it can't be told.
	Credential(ctx context.Context, user string) (Credential, error)
}

// ErrNoSecrets says that nothing may be known of any role.
var ErrNoSecrets = errors.New("the secrets of roles can't be read")

// A Credential is what the proxy verifies a client by. With a Secret that is
// PostgreSQL's own it logs in with the key that the client's proof reveals;
// where a Password is known, with that.
type Credential struct {
	Secret   *scram.Secret // nil: there is none
	Password string        // "": not known
	Source   string        // where it is from, for the log
}

// sasl takes PostgreSQL's offer of SASL mechanisms. Over a leg that is not
// encrypted the exchange is relayed from end to end. Where TLS ends here the
// client may bind it to a channel that PostgreSQL doesn't see; then the proxy
// verifies the client itself and logs in with the key that the proof reveals.
func (s *session) sasl(offer []byte) error {
	mechanisms := strings.Split(strings.TrimRight(string(offer), "\x00"), "\x00")
	if s.encrypted() && s.srv.Secrets != nil && slices.Contains(mechanisms, scram.MechanismPlain) {
		if err := s.passThrough(offer); !errors.Is(err, ErrNoSecrets) {
			return err
		}
	}
	// An offer of binding towards PostgreSQL's own certificate is of no use to
	// a client that is shown another or none.
	body := binary.BigEndian.AppendUint32(nil, authSASL)
	for _, m := range mechanisms {
		if m != scram.MechanismPlus {
			body = append(append(body, m...), 0)
		}
	}
	return s.challenge(append(body, 0))
}

// passThrough verifies the client by the role's secret and logs in to
// PostgreSQL with the recovered key. No password is known to the proxy.
func (s *session) passThrough(offer []byte) error {
	ctx, cancel := context.WithTimeout(s.srv.ctx, s.srv.settings().LoginTimeout)
	defer cancel()
	credential, err := s.srv.Secrets.Credential(ctx, s.user)
	if errors.Is(err, ErrNoSecrets) {
		return err
	}
	if err != nil {
		s.logger().Error("read the secret of a role", "user", s.user, "error", err)
		return s.reject("58000", "fenceproxy could not read what it needs to verify passwords: see its log", nil)
	}
	server := scram.NewServer(s.user, credential.Secret, s.srv.Mock, s.binding)
	final, err := s.verifyClient(server)
	var refused *scram.Error
	if errors.As(err, &refused) {
		return fmt.Errorf("%w (verified by %s)", err, credential.Source)
	}
	if err != nil {
		return err
	}
	key, ok := server.ClientKey()
	if !ok {
		return s.reject("28P01", scram.PasswordFailed(s.user).Message, nil)
	}
	client := scram.NewKeyClient(*credential.Secret, key, serverBinding(s.backend))
	if credential.Password != "" {
		client = scram.NewPasswordClient(credential.Password, serverBinding(s.backend))
	}
	if err := s.logIn(client, offer); err != nil {
		return fmt.Errorf("%w (the client was verified by %s)", err, credential.Source)
	}
	s.toClient.Write(wire.Frame(nil, wire.Authentication, binary.BigEndian.AppendUint32(nil, authSASLFinal), final))
	return nil
}

// verifyClient runs the exchange with the client and returns the last part of
// it, which the client gets only when PostgreSQL has taken the login.
func (s *session) verifyClient(server *scram.Server) (final []byte, err error) {
	body := append(binary.BigEndian.AppendUint32(nil, authSASL), server.Mechanisms()...)
	for {
		n, err := s.askClient(body)
		if err != nil {
			return nil, err
		}
		answer, err := s.fromClient.Read(n)
		if err != nil {
			return nil, fmt.Errorf("read authentication answer: %w", err)
		}
		reply, err := server.Step(answer)
		var refused *scram.Error
		if errors.As(err, &refused) {
			return nil, s.refuseLogin(refused)
		}
		if err != nil {
			return nil, fmt.Errorf("verify client: %w", err)
		}
		if server.Done() {
			return reply, nil
		}
		body = append(binary.BigEndian.AppendUint32(nil, authSASLContinue), reply...)
	}
}

// logIn runs the exchange with PostgreSQL. A refusal there is relayed, and is
// the end.
func (s *session) logIn(client *scram.Client, offer []byte) error {
	message, err := client.Initial(offer)
	for err == nil {
		s.toBackend.Write(wire.Frame(nil, wire.Password, message))
		_ = s.toBackend.Flush() // a server that takes no more may have said why
		kind, body, rerr := s.readAuth()
		if rerr != nil {
			return rerr
		}
		switch kind {
		case authSASLContinue:
			message, err = client.Continue(body)
		case authSASLFinal:
			if err = client.Final(body); err == nil {
				return nil
			}
		default:
			return s.reject("08P01", "PostgreSQL sent an unexpected authentication request", nil)
		}
	}
	if errors.Is(err, scram.ErrSecretChanged) {
		s.farewell(wire.Report{Severity: "FATAL", Code: "28P01", Message: scram.PasswordFailed(s.user).Message})
		return err
	}
	s.logger().Warn("log in with a client's key", "user", s.user, "error", err)
	return s.reject("08006", "fenceproxy could not log in to PostgreSQL: see its log", nil)
}

// readAuth reads an authentication request of PostgreSQL's, passing on what
// else it says; an error of its is relayed, and is the end.
func (s *session) readAuth() (kind uint32, body []byte, err error) {
	for {
		t, n, err := s.fromBackend.Next()
		if err != nil {
			return 0, nil, s.backendFailed(err)
		}
		switch {
		case t == wire.Authentication && n >= 4 && n <= wire.MaxAuthLength:
			body, err := s.fromBackend.Read(n)
			if err != nil {
				return 0, nil, fmt.Errorf("read from PostgreSQL: %w", err)
			}
			return binary.BigEndian.Uint32(body), body[4:], nil
		case t == wire.ErrorResponse:
			return 0, nil, s.relayRefusal()
		case t == wire.NoticeResponse:
			if err := s.fromBackend.Forward(s.toClient); err != nil {
				return 0, nil, fmt.Errorf("relay startup: %w", err)
			}
		default:
			return 0, nil, s.reject("08P01", fmt.Sprintf("PostgreSQL sent an unexpected message of type %q during authentication", t), nil)
		}
	}
}

// serverEncrypted reports whether the leg towards PostgreSQL is encrypted.
func serverEncrypted(conn net.Conn) bool {
	_, ok := conn.(*tls.Conn)
	return ok
}

// serverBinding returns the channel-binding data of PostgreSQL's certificate,
// nil over a plain leg.
func serverBinding(conn net.Conn) []byte {
	encrypted, ok := conn.(*tls.Conn)
	if !ok {
		return nil
	}
	certs := encrypted.ConnectionState().PeerCertificates
	if len(certs) == 0 {
		return nil
	}
	return scram.CertificateBinding(certs[0])
}

// ownBinding returns the channel-binding data of the certificate that clients
// are shown; nil where it depends on the client which one that is.
func ownBinding(config *tls.Config) []byte {
	if len(config.Certificates) != 1 || config.GetCertificate != nil {
		return nil
	}
	cert, err := x509.ParseCertificate(config.Certificates[0].Certificate[0])
	if err != nil {
		return nil
	}
	return scram.CertificateBinding(cert)
}
