package proxy

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"

	"github.com/fenceproxy/fenceproxy/proxy/scram"
	"github.com/fenceproxy/fenceproxy/proxy/wire"
)

// Authentication requests that the proxy looks at, by the code in their body.
const (
	authOK           = 0
	authCleartext    = 3
	authMD5          = 5
	authSASL         = 10
	authSASLContinue = 11
	authSASLFinal    = 12
)

// A process id and the least and the longest cancel key, in bytes
// (MAX_CANCEL_KEY_LENGTH in pqcomm.h).
const (
	minKeyData = 4 + 4
	maxKeyData = 4 + 256
)

// authenticate relays the exchange, in step, until the first ReadyForQuery,
// which it leaves unread. A client of the console hears nothing of PostgreSQL but
// what proves who it is.
func (s *session) authenticate() error {
	for {
		if !s.fromBackend.Complete() {
			if err := s.exchange(); err != nil {
				return err
			}
		}
		t, n, err := s.fromBackend.Next()
		if err != nil {
			return s.backendFailed(err)
		}
		switch t {
		case wire.ReadyForQuery:
			return nil
		case wire.ErrorResponse:
			return s.relayRefusal()
		case wire.Authentication:
			if err := s.relayAuth(n); err != nil {
				return err
			}
			continue
		case wire.BackendKeyData:
			if n < minKeyData || n > maxKeyData {
				return s.reject("08P01", "PostgreSQL sent an invalid cancel key", nil)
			}
			key, err := s.fromBackend.Prefix()
			if err != nil {
				return fmt.Errorf("read from PostgreSQL: %w", err)
			}
			if !s.console {
				s.keep(string(key))
			}
		case wire.ParameterStatus:
			if err := s.parameter(); err != nil {
				return err
			}
		case wire.NoticeResponse, wire.NegotiateVersion:
		default:
			return s.reject("08P01", fmt.Sprintf("PostgreSQL sent an unexpected message of type %q during startup", t), nil)
		}
		if s.console {
			err = s.fromBackend.Skip()
		} else {
			err = s.fromBackend.Forward(s.toClient)
		}
		if err != nil {
			return fmt.Errorf("relay startup: %w", err)
		}
	}
}

// relayRefusal passes on why PostgreSQL refuses the login, and returns it.
func (s *session) relayRefusal() error {
	refused := errRefused
	if head, err := s.fromBackend.Prefix(); err == nil {
		if r, err := wire.ReadReport(head); err == nil {
			refused = fmt.Errorf("%w: %s %s", errRefused, r.Code, r.Message)
			if s.console && !saysNothing(r.Code) {
				s.farewell(consoleRefused(r.Code))
				return refused
			}
		}
	}
	s.parted = true
	if err := s.fromBackend.Forward(s.toClient); err != nil {
		return fmt.Errorf("relay startup: %w", err)
	}
	_ = s.toClient.Flush() // a client that is gone changes nothing about it
	return refused
}

// errRefused: PostgreSQL said no, and the client knows.
var errRefused = errors.New("PostgreSQL refused the login")

// backendFailed ends the startup after PostgreSQL could not be read from. A
// server that closes without a word leaves the client without one too.
func (s *session) backendFailed(err error) error {
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return s.reject("08006", "PostgreSQL did not answer in time", nil)
	case errors.Is(err, wire.ErrLength):
		return s.reject("08P01", "PostgreSQL sent a message of an impossible length", nil)
	}
	_ = s.exchange()
	return fmt.Errorf("read from PostgreSQL: %w", err)
}

// relayAuth passes on one authentication request and, where one is due, the
// client's answer.
func (s *session) relayAuth(n int) error {
	if n < 4 || n > wire.MaxAuthLength {
		return s.reject("08P01", "PostgreSQL sent an invalid authentication request", nil)
	}
	body, err := s.fromBackend.Read(n)
	if err != nil {
		return fmt.Errorf("read from PostgreSQL: %w", err)
	}
	switch code := binary.BigEndian.Uint32(body); code {
	case authOK, authSASLFinal:
		s.toClient.Write(wire.Frame(nil, wire.Authentication, body))
		return nil
	case authSASL:
		if s.encrypted() || serverEncrypted(s.backend) {
			return s.sasl(append([]byte(nil), body[4:]...))
		}
		return s.challenge(body)
	case authCleartext, authMD5, authSASLContinue:
		return s.challenge(body)
	default:
		// Kerberos tickets are made out to the host that the client knows, and
		// nothing tells whether an answer is due.
		return s.reject("0A000", fmt.Sprintf("fenceproxy does not relay the authentication method that PostgreSQL asks for (%s): "+
			"let pg_hba.conf ask the proxy's clients for scram-sha-256, md5 or password", authName(code)), nil)
	}
}

// challenge sends an authentication request that the client must answer, and
// relays the answer.
func (s *session) challenge(body []byte) error {
	if _, err := s.askClient(body); err != nil {
		return err
	}
	if err := s.fromClient.Forward(s.toBackend); err != nil && (timedOut(err) || s.toBackend.Flush() == nil) {
		return fmt.Errorf("relay authentication: %w", err)
	}
	return nil // what PostgreSQL says to it, or that it is gone, is read next
}

// askClient sends an authentication request and waits for the header of the
// answer. It returns the length of its body. What can't be an answer is refused
// as PostgreSQL refuses it (recv_password_packet in auth.c, auth-sasl.c).
func (s *session) askClient(body []byte) (int, error) {
	s.toClient.Write(wire.Frame(nil, wire.Authentication, body))
	if err := s.toClient.Flush(); err != nil {
		return 0, fmt.Errorf("write to client: %w", err)
	}
	t, n, err := s.fromClient.Next()
	if err != nil && !errors.Is(err, wire.ErrLength) {
		return 0, fmt.Errorf("read authentication answer: %w", err)
	}
	code := binary.BigEndian.Uint32(body)
	sasl := code == authSASL || code == authSASLContinue
	switch tooLong := n+4 > wire.MaxAuthLength; {
	case t != wire.Password && sasl:
		return 0, s.refuseLogin(scram.UnexpectedMessage(t))
	case t != wire.Password:
		return 0, s.reject("08P01", fmt.Sprintf("expected password response, got message type %d", t), nil)
	case err != nil:
		return 0, fmt.Errorf("read authentication answer: %w", err)
	case tooLong && sasl:
		return 0, s.refuseLogin(scram.PasswordFailed(s.user))
	case tooLong: // a password gets no word about it
		return 0, fmt.Errorf("read authentication answer: %w", wire.ErrTooLarge)
	}
	return n, nil
}

// refuseLogin tells the client of a refusal and returns it.
func (s *session) refuseLogin(refused *scram.Error) error {
	s.farewell(wire.Report{Severity: "FATAL", Code: refused.Code, Message: refused.Message, Detail: refused.Detail})
	return refused
}

// authName names a method that isn't relayed. PostgreSQL: protocol.h.
func authName(code uint32) string {
	switch code {
	case 2:
		return "Kerberos V5"
	case 7, 8:
		return "GSSAPI"
	case 9:
		return "SSPI"
	}
	return fmt.Sprintf("number %d", code)
}
