package proxy

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/fenceproxy/fenceproxy/proxy/wire"
)

// startup takes the client from its first packet to the first ReadyForQuery.
// ok is false when no session follows: a cancel request, a refusal by
// PostgreSQL (relayed), or err.
func (s *session) startup() (ok bool, err error) {
	packet, err := s.firstPacket()
	if err != nil || packet == nil {
		return false, err
	}
	params, err := wire.ReadStartup(packet)
	if err != nil {
		return false, s.reject("08P01", "invalid startup packet layout: expected terminator as last byte", nil)
	}
	if v := params["replication"]; v != "" && !isFalse(v) {
		return false, s.reject("0A000", "fenceproxy does not relay replication connections: connect to PostgreSQL directly", nil)
	}
	s.user, s.database = params["user"], params["database"]
	if s.database == "" {
		s.database = s.user
	}
	conn, endpoint, err := s.srv.dial()
	if err != nil {
		return false, s.reject("08006", "fenceproxy cannot reach PostgreSQL", err)
	}
	s.mu.Lock()
	s.backend, s.endpoint = conn, endpoint
	s.mu.Unlock()
	s.fromBackend, s.toBackend = wire.NewReader(conn), wire.NewWriter(conn)
	if err := s.toBackend.Write(packet); err != nil {
		return false, fmt.Errorf("write to PostgreSQL: %w", err)
	}
	if ok, err := s.authenticate(); !ok {
		return false, err
	}
	if err := s.open(mentionsFence(params)); err != nil {
		return false, err
	}
	return true, nil
}

// firstPacket answers requests for encryption with no, each at most once, and
// returns the startup packet; nil after a cancel request.
func (s *session) firstPacket() ([]byte, error) {
	asked := map[uint32]bool{}
	if err := s.maybeDirectTLS(); err != nil {
		return nil, err
	}
	for {
		packet, err := s.fromClient.ReadPacket(wire.MaxStartupLength)
		if errors.Is(err, io.EOF) {
			return nil, nil // a health check that connects and leaves
		}
		if err != nil {
			return nil, fmt.Errorf("read startup packet: %w", err)
		}
		code := binary.BigEndian.Uint32(packet[4:])
		switch code {
		case wire.CodeCancel:
			s.srv.forwardCancel(packet)
			return nil, nil
		case wire.CodeSSL, wire.CodeGSSEnc:
			if asked[code] || s.encrypted() {
				return nil, s.reject("0A000", "encryption was asked for twice", nil)
			}
			asked[code] = true
			if err := s.answerEncryption(code); err != nil {
				return nil, err
			}
		default:
			if code>>16 != 3 {
				return nil, s.reject("0A000", fmt.Sprintf("unsupported frontend protocol %d.%d: fenceproxy supports 3.x", code>>16, code&0xffff), nil)
			}
			if s.srv.TLS.Mode == TLSRequire && !s.encrypted() {
				return nil, s.reject("28000", "fenceproxy takes only encrypted connections: use sslmode=require or stricter", nil)
			}
			return packet, nil
		}
	}
}

// reject sends a FATAL before there is a session and returns what to log.
func (s *session) reject(code, message string, cause error) error {
	if cause != nil {
		s.farewell(wire.Report{Severity: "FATAL", Code: code, Message: message, Detail: cause.Error()})
		return fmt.Errorf("%s: %w", message, cause)
	}
	s.farewell(wire.Report{Severity: "FATAL", Code: code, Message: message})
	return errors.New(message)
}

// isFalse reads a boolean parameter as PostgreSQL's parse_bool does.
func isFalse(v string) bool {
	switch strings.ToLower(v) {
	case "0", "f", "fa", "fal", "fals", "false", "n", "no", "of", "off":
		return true
	}
	return false
}

// mentionsFence reports whether a startup packet may carry a tag, as a
// parameter or in options, whose backslashes only protect spaces.
func mentionsFence(params map[string]string) bool {
	for name, value := range params {
		if strings.HasPrefix(strings.ToLower(name), "fence") {
			return true
		}
		if name == "options" && strings.Contains(strings.ToLower(strings.ReplaceAll(value, `\`, "")), "fence") {
			return true
		}
	}
	return false
}

// authenticate relays the exchange, in step, until the first ReadyForQuery,
// which it leaves unread. ok is false when PostgreSQL refused.
func (s *session) authenticate() (ok bool, err error) {
	for {
		if !s.fromBackend.Complete() {
			if err := s.exchange(); err != nil {
				return false, err
			}
		}
		t, n, err := s.fromBackend.Next()
		if err != nil {
			_ = s.exchange()
			return false, fmt.Errorf("read from PostgreSQL: %w", err)
		}
		switch t {
		case wire.ReadyForQuery:
			return true, nil
		case wire.ErrorResponse:
			if err := s.fromBackend.Forward(s.toClient); err != nil {
				return false, fmt.Errorf("relay startup: %w", err)
			}
			return false, s.toClient.Flush()
		case wire.Authentication:
			if err := s.relayAuth(n); err != nil {
				return false, err
			}
			continue
		case wire.BackendKeyData:
			key, err := s.fromBackend.Prefix()
			if err != nil {
				return false, fmt.Errorf("read from PostgreSQL: %w", err)
			}
			s.keep(string(key))
		case wire.ParameterStatus:
			if err := s.parameter(); err != nil {
				return false, err
			}
		case wire.NoticeResponse, wire.NegotiateVersion:
		default:
			return false, s.reject("08P01", fmt.Sprintf("PostgreSQL sent an unexpected message of type %q during startup", t), nil)
		}
		if err := s.fromBackend.Forward(s.toClient); err != nil {
			return false, fmt.Errorf("relay startup: %w", err)
		}
	}
}

// exchange sends what was gathered for either side.
func (s *session) exchange() error {
	if err := s.toClient.Flush(); err != nil {
		return fmt.Errorf("write to client: %w", err)
	}
	if err := s.toBackend.Flush(); err != nil {
		return fmt.Errorf("write to PostgreSQL: %w", err)
	}
	return nil
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
	switch binary.BigEndian.Uint32(body) {
	case authOK, authSASLFinal:
		s.toClient.Write(wire.Frame(nil, wire.Authentication, body))
		return nil
	case authSASL:
		if s.encrypted() || serverEncrypted(s.backend) {
			return s.sasl(append([]byte(nil), body[4:]...))
		}
	}
	return s.challenge(body)
}

// keep remembers the session under its cancel key.
func (s *session) keep(key string) {
	s.srv.mu.Lock()
	defer s.srv.mu.Unlock()
	s.cancelKey = key
	s.srv.cancels[key] = s
}

// parameter looks at a ParameterStatus that changes how texts are read. It
// doesn't consume.
func (s *session) parameter() error {
	body, err := s.fromBackend.Prefix()
	if err != nil {
		return fmt.Errorf("read from PostgreSQL: %w", err)
	}
	name, rest, _ := wire.CString(body)
	value, _, _ := wire.CString(rest)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch string(name) {
	case "standard_conforming_strings":
		s.params.BackslashQuotes = string(value) != "on"
	case "client_encoding":
		s.params.UnsafeEncoding = hidesASCII(string(value))
	}
	return nil
}

// hidesASCII reports whether a character of the encoding can contain a byte
// that is an ASCII quote or backslash. PostgreSQL: the client-only encodings
// of pg_wchar.h.
func hidesASCII(encoding string) bool {
	switch strings.ToUpper(encoding) {
	case "SJIS", "BIG5", "GBK", "GB18030", "UHC", "JOHAB", "SHIFT_JIS_2004":
		return true
	}
	return false
}

// open delivers the first ReadyForQuery, after claiming the tag of the
// startup packet if there is one. A claim that fails doesn't refuse the
// connection: pools take that for an outage, and libpq hides the code.
func (s *session) open(mayBeTagged bool) error {
	t, _, err := s.fromBackend.Next()
	if err != nil || t != wire.ReadyForQuery {
		return fmt.Errorf("read from PostgreSQL: %w", err)
	}
	if mayBeTagged {
		if err := s.fromBackend.Skip(); err != nil {
			return fmt.Errorf("read from PostgreSQL: %w", err)
		}
		if err := s.openTagged(); err != nil {
			return err
		}
		s.toClient.Write(wire.AppendReady(nil, wire.StatusIdle))
	} else if err := s.fromBackend.Forward(s.toClient); err != nil {
		return fmt.Errorf("relay startup: %w", err)
	}
	if err := s.toClient.Flush(); err != nil {
		return fmt.Errorf("write to client: %w", err)
	}
	return nil
}

// openTagged asks the backend which tag the startup packet set, and claims it.
func (s *session) openTagged() error {
	row, err := s.ask(readbackSQL)
	if err != nil {
		return fmt.Errorf("read the tag back: %w", err)
	}
	v := values{key: row[0], token: row[1], tokens: row[2]}
	if err := s.becomeTagged(); err != nil {
		return err
	}
	s.mirror.load(v, false)
	s.mirror.reset = v
	if refusal := s.claimMirror(); refusal != nil {
		s.toClient.Write(wire.AppendNotice(nil, wire.Report{
			Severity: "WARNING", Code: string(refusal.Code),
			Message: refusal.Message, Detail: refusal.Detail, Hint: refusal.Hint,
		}))
	}
	return nil
}

// ask runs a query of one row while no pump runs yet.
func (s *session) ask(query string) ([]string, error) {
	s.toBackend.Write(wire.AppendQuery(nil, query))
	if err := s.exchange(); err != nil {
		return nil, err
	}
	var row []string
	var failure error
	for {
		t, n, err := s.fromBackend.Next()
		if err != nil {
			return nil, err
		}
		if t == wire.ParameterStatus || t == wire.NoticeResponse || t == wire.NotificationResponse {
			if err := s.fromBackend.Forward(s.toClient); err != nil {
				return nil, err
			}
			continue
		}
		body, err := s.fromBackend.Read(n)
		if err != nil {
			return nil, err
		}
		switch t {
		case wire.DataRow:
			if row, err = wire.ReadRow(body); err != nil {
				return nil, err
			}
		case wire.ErrorResponse:
			r, _ := wire.ReadReport(body)
			failure = fmt.Errorf("%s (%s)", r.Message, r.Code)
		case wire.ReadyForQuery:
			if failure == nil && len(row) != 3 {
				failure = errors.New("no answer")
			}
			return row, failure
		}
	}
}
