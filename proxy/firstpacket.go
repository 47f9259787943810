package proxy

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/fenceproxy/fenceproxy/proxy/wire"
)

// firstPacket answers requests for encryption, each at most once, and returns
// the startup packet; nil after a cancel request. PostgreSQL: ProcessStartupPacket
// in backend_startup.c.
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
			s.srv.cancelAnywhere(s, packet[8:])
			return nil, nil
		case wire.CodePeerCancel:
			s.srv.cancelHere(s, packet[8:])
			return nil, nil
		case wire.CodeSSL, wire.CodeGSSEnc:
			if asked[code] {
				return nil, s.reject("0A000", unsupported(code)+": encryption was settled before", nil)
			}
			asked[code] = true
			plain := !s.encrypted()
			if err := s.answerEncryption(code); err != nil {
				return nil, err
			}
			if plain && s.encrypted() {
				asked[wire.CodeGSSEnc] = true // settled as well
			}
		default:
			if s.srv.settings().TLS.Mode == TLSRequire && !s.encrypted() {
				return nil, s.reject("28000", "fenceproxy takes only encrypted connections: use sslmode=require or stricter", nil)
			}
			if code>>16 != 3 {
				return nil, s.refusedByPostgreSQL(packet, unsupported(code)+": fenceproxy supports 3.x")
			}
			return packet, nil
		}
	}
}

// unsupported is what PostgreSQL's refusal of a version begins with. A request
// for encryption where none is due is a version that nobody supports.
func unsupported(code uint32) string {
	return fmt.Sprintf("unsupported frontend protocol %d.%d", code>>16, code&0xffff)
}

// The bounds of what PostgreSQL is asked to refuse.
const (
	maxRefusal  = 8 << 10 // what is relayed of a refusal, in bytes
	maxRefusing = 16      // at the same time: these clients are none that MaxConnections counts
)

// refusedByPostgreSQL passes on a startup packet that PostgreSQL refuses, so
// that the client hears that in PostgreSQL's words, and in the format of a
// protocol that only PostgreSQL may remember. Nothing else is ever relayed:
// where PostgreSQL doesn't refuse, or has others to refuse, the client is told
// otherwise.
func (s *session) refusedByPostgreSQL(packet []byte, otherwise string) error {
	select {
	case s.srv.refusing <- struct{}{}:
		defer func() { <-s.srv.refusing }()
	default:
		return s.reject("0A000", otherwise, nil)
	}
	conn, err := s.srv.dial()
	if err != nil {
		return s.reject("08006", "fenceproxy cannot reach PostgreSQL", err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(s.srv.DialTimeout))
	_, untaken := conn.Write(packet) // it may have said why
	answer := make([]byte, 1, maxRefusal)
	switch _, err := io.ReadFull(conn, answer); {
	case err != nil && untaken != nil:
		return s.reject("08006", "fenceproxy cannot reach PostgreSQL", untaken)
	case err != nil || answer[0] != wire.ErrorResponse:
		return s.reject("0A000", otherwise, nil)
	}
	n, err := io.ReadFull(conn, answer[1:maxRefusal])
	if err == nil || !errors.Is(err, io.ErrUnexpectedEOF) {
		return s.reject("0A000", otherwise, nil)
	}
	s.parted = true
	s.toClient.Write(answer[:1+n])
	if err := s.toClient.Flush(); err != nil {
		return fmt.Errorf("write to client: %w", err)
	}
	return errRefused
}

// asksReplication reads the parameter of that name as PostgreSQL does.
func asksReplication(v string) bool {
	switch strings.ToLower(v) {
	case "1", "t", "tr", "tru", "true", "y", "ye", "yes", "on":
		return true
	}
	return v == "database"
}

// storedName cuts a name of a role or database where PostgreSQL cuts it: the
// session is with the one that has the short name.
func storedName(name string) string { return name[:min(len(name), maxName)] }

// cleanName is what PostgreSQL makes of an application_name: a short one of printable
// ASCII (check_application_name in variable.c).
func cleanName(name string) string {
	clean := []byte(storedName(name))
	for i, c := range clean {
		if c < ' ' || c > '~' {
			clean[i] = '?'
		}
	}
	return string(clean)
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
