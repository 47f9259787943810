package proxy

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"github.com/fenceproxy/fenceproxy/fencing"
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
	const noReplication = "fenceproxy does not relay replication connections: connect to PostgreSQL directly"
	switch v, asked := params["replication"]; {
	case asked && asksReplication(v):
		return false, s.reject("0A000", noReplication, nil)
	case asked && !isFalse(v):
		return false, s.refusedByPostgreSQL(packet, noReplication)
	}
	s.user, s.database = storedName(params["user"]), storedName(params["database"])
	if s.database == "" {
		s.database = s.user
	}
	s.setPolicy(s.srv.settings().Policies.For(s.database, s.user))
	if s.srv.isDraining() {
		return false, s.bid(errShuttingDown, nil)
	}
	if !s.srv.admit(s) {
		return false, s.bid(errTooMany, nil)
	}
	if s.wantsConsole() {
		err := s.openConsole(binary.BigEndian.Uint32(packet[4:]), params)
		return err == nil, err
	}
	if err := s.logInWith(packet); err != nil {
		return false, err
	}
	if err := s.landed(); err != nil {
		return false, err
	}
	if err := s.open(s.requires() || mentionsFence(params)); err != nil {
		return false, err
	}
	return true, nil
}

// logInWith has PostgreSQL authenticate the client by a startup packet, up to the
// first ReadyForQuery, which it leaves unread.
func (s *session) logInWith(packet []byte) error {
	if err := s.reach(packet); err != nil {
		return s.reject("08006", "fenceproxy cannot reach PostgreSQL", err)
	}
	s.srv.settings().Sockets.tune(s.backend)
	s.backend.SetDeadline(s.deadline)
	return s.authenticate()
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

// exchange sends what was gathered for either side, before PostgreSQL is read
// from. One that takes no more is found out there: it may have said why.
func (s *session) exchange() error {
	if err := s.toClient.Flush(); err != nil {
		return fmt.Errorf("write to client: %w", err)
	}
	_ = s.toBackend.Flush()
	return nil
}

// keep remembers the session under its cancel key, the last one if there are
// several.
func (s *session) keep(key string) {
	s.srv.mu.Lock()
	defer s.srv.mu.Unlock()
	s.srv.cancels.drop(s)
	s.cancelKey = key
	s.srv.cancels.add(s)
}

// parameter looks at a ParameterStatus that changes how texts are read or tells
// how the server stands. It doesn't consume.
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
	case "in_hot_standby":
		s.hotStandby = string(value)
	case "server_version":
		s.version = string(value)
	case "session_authorization":
		// Who logged in, in PostgreSQL's own word: up to PostgreSQL 16 the login
		// can give the role another name (db_user_namespace).
		s.role = string(value)
		if role := s.role; role != s.user && !s.opened {
			s.setPolicy(s.policy.stricter(s.srv.settings().Policies.For(s.database, role)))
		}
	case "application_name":
		s.application = string(value)
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

// open delivers the first ReadyForQuery, with look after claiming the tag of
// the startup packet if there is one. A claim that fails doesn't refuse the
// connection: pools take that for an outage, and libpq hides the code.
func (s *session) open(look bool) error {
	t, _, err := s.fromBackend.Next()
	if err != nil || t != wire.ReadyForQuery {
		return fmt.Errorf("read from PostgreSQL: %w", err)
	}
	if look {
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
// The session is looked at from now on, whether or not there is one.
func (s *session) openTagged() error {
	row, err := s.ask(openingSQL)
	if err != nil {
		return err
	}
	v := values{key: row[0], token: row[1], tokens: row[2]}
	s.installed = s.requires() && row[3] == "t"
	if err := s.becomeTagged(); err != nil {
		return err
	}
	s.mirror.load(v, false)
	s.mirror.reset = v
	if refusal := s.claimMirror(); refusal != nil {
		warning := report("WARNING", refusal)
		s.tellRefusedStart(warning)
		s.toClient.Write(wire.AppendNotice(nil, warning))
	}
	return nil
}

// ask runs a query of one row while no pump runs yet. What goes wrong is the end
// of the session, and the client hears it.
func (s *session) ask(query string) ([]string, error) {
	s.setAsking(true)
	defer s.setAsking(false)
	s.toBackend.Write(wire.AppendQuery(nil, query))
	if err := s.exchange(); err != nil {
		return nil, err
	}
	var row []string
	long := false
	for {
		t, n, err := s.fromBackend.Next()
		if err != nil {
			return nil, fmt.Errorf("read the tag back: %w", err)
		}
		if t == wire.ParameterStatus || t == wire.NoticeResponse || t == wire.NotificationResponse {
			if err := s.fromBackend.Forward(s.toClient); err != nil {
				return nil, fmt.Errorf("relay startup: %w", err)
			}
			continue
		}
		if t == wire.DataRow {
			if row, err = s.settingsRow(); errors.Is(err, wire.ErrTooLarge) {
				long = true
			} else if err != nil {
				return nil, fmt.Errorf("read the tag back: %w", err)
			}
			continue
		}
		body, err := s.fromBackend.Read(min(n, maxReport))
		if err != nil {
			return nil, fmt.Errorf("read the tag back: %w", err)
		}
		switch t {
		case wire.ErrorResponse:
			return nil, s.askFailed(body)
		case wire.ReadyForQuery:
			if long {
				return nil, s.reject(string(fencing.CodeMalformedTag), oversized().Message, nil)
			}
			if len(row) != 4 {
				return nil, s.reject("08P01", "PostgreSQL did not tell the session's tag", nil)
			}
			return row, nil
		}
	}
}

// askFailed ends a session whose tag could not be read at startup. A FATAL is
// PostgreSQL's own end of the session; any other error ends it as well, for
// whoever connects must not be let in unclaimed.
func (s *session) askFailed(body []byte) error {
	r, err := wire.ReadReport(body)
	if err != nil {
		return fmt.Errorf("read the tag back: %w", err)
	}
	if !isFatal(r.Severity) {
		return s.reject(r.Code, r.Message, nil)
	}
	s.parted = true
	s.toClient.Write(wire.Frame(nil, wire.ErrorResponse, body))
	if err := s.toClient.Flush(); err != nil {
		return fmt.Errorf("write to client: %w", err)
	}
	return fmt.Errorf("%w: %s", errBackend, r.Message)
}

func (s *session) setAsking(asking bool) {
	s.mu.Lock()
	s.asking = asking
	s.mu.Unlock()
}
