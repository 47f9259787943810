package proxy

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/fenceproxy/fenceproxy/proxy/console"
	"github.com/fenceproxy/fenceproxy/proxy/wire"
)

// A client that connects to the console's database is authenticated by PostgreSQL
// itself, as any other, with a backend session in the database of the proxy's own
// claims; nothing of its startup packet but its user gets there. That session ends
// as soon as it has said who the client is, and the console answers instead.

// wantsConsole reports whether the client's database is the console's.
func (s *session) wantsConsole() bool {
	name := s.srv.settings().Console.Database
	return s.srv.Console != nil && name != "" && s.database == storedName(name)
}

// openConsole takes a client that wants the console to its first ReadyForQuery.
func (s *session) openConsole(version uint32, params map[string]string) error {
	s.console = true
	s.negotiate(version, params)
	packet := wire.AppendStartup(nil, "user", params["user"], "database", s.srv.Console.Login,
		"application_name", "fenceproxy console", "client_encoding", "UTF8")
	if err := s.logInWith(packet); err != nil {
		return err
	}
	s.toBackend.Write(wire.AppendTerminate(nil))
	s.toBackend.Flush()
	s.backend.Close()
	access, err := s.consoleAccess(s.srv.ctx)
	switch {
	case err != nil:
		return fmt.Errorf("%w: %w", s.reject("58000", "fenceproxy could not tell what the role may do on its console: see its log", nil), err)
	case access == console.Nothing:
		s.farewell(notAdmitted(s.database, s.role))
		return errNotAdmitted
	}
	application := cleanName(params["application_name"])
	s.mu.Lock()
	s.user, s.application = s.role, application
	s.mu.Unlock()
	key := binary.BigEndian.AppendUint32(nil, uint32(s.id)) // no process of PostgreSQL's
	key = append(key, make([]byte, 4)...)
	_, _ = rand.Read(key[4:]) // it never fails
	s.keep(string(key))
	s.talk = s.srv.Console.NewClient(s.toClient, console.Peer{Role: s.role, Access: access, Again: s.consoleAccess})
	s.talk.Greet(s.version, application, key)
	if err := s.toClient.Flush(); err != nil {
		return fmt.Errorf("write to client: %w", err)
	}
	return nil
}

// negotiate answers a client that would speak more than version 3.0.
func (s *session) negotiate(version uint32, params map[string]string) {
	var unknown []string
	for name := range params {
		if strings.HasPrefix(name, "_pq_.") {
			unknown = append(unknown, name)
		}
	}
	if version != wire.Protocol3 || len(unknown) > 0 {
		slices.Sort(unknown)
		s.toClient.Write(wire.AppendNegotiate(nil, unknown))
	}
}

// consoleAccess says what the role that has logged in may do at this moment.
func (s *session) consoleAccess(ctx context.Context) (console.Access, error) {
	now := s.srv.settings()
	ctx, cancel := context.WithTimeout(ctx, now.LoginTimeout)
	defer cancel()
	if s.role == "" {
		return console.Nothing, errors.New("PostgreSQL did not tell who logged in")
	}
	return s.srv.Console.Access(ctx, now.Console, s.role)
}

// errNotAdmitted: the client knows.
var errNotAdmitted = errors.New("the role may not use the console")

func notAdmitted(database, role string) wire.Report {
	return wire.Report{
		Severity: "FATAL", Code: "42501", Message: fmt.Sprintf("permission denied for fenceproxy's console (database %q)", database),
		Detail: fmt.Sprintf("Role %q is in neither admin_roles nor stats_roles, and has the privileges of none of those.", role),
		Hint: "Name it, or a role that it is a member of, in fenceproxy's setting admin_roles (or stats_roles, to look only), and send SIGHUP. " +
			"If a database of PostgreSQL has this name, give the console another one: console_database.",
	}
}

// saysNothing reports whether the words of a refusal by PostgreSQL tell a stranger
// no more than that it is one: those of others name the database of the proxy's
// claims.
func saysNothing(code string) bool {
	switch code {
	case "28P01", "53300", cannotConnectNow:
		return true
	}
	return false
}

// consoleRefused is what is told instead.
func consoleRefused(code string) wire.Report {
	return wire.Report{Severity: "FATAL", Code: code, Message: "PostgreSQL refused the login to fenceproxy's console",
		Hint: "fenceproxy's log has the reason."}
}

// serveConsole answers a client of the console until its end.
func (s *session) serveConsole() error {
	err := s.converse()
	var last *lastWord
	switch {
	case errors.Is(err, console.ErrGoodbye):
		return nil
	case errors.As(err, &last):
		s.farewell(last.report())
	case errors.Is(err, console.ErrProtocol), errors.Is(err, wire.ErrLength):
		s.farewell(wire.Report{Severity: "FATAL", Code: "08P01", Message: "invalid message for fenceproxy's console"})
	case s.cutFor() != nil:
		s.farewell(s.cutFor().report())
		return s.cutFor()
	}
	return err
}

// converse takes one message after the other.
func (s *session) converse() error {
	for {
		t, n, err := s.nextForConsole()
		if timedOut(err) {
			continue // the next wait tells why
		}
		if err != nil {
			return err
		}
		if t == wire.Query || t == wire.Execute {
			s.asked++
		}
		if n > console.MaxMessage {
			if err = s.fromClient.Skip(); err == nil {
				err = s.talk.TooLong(t)
			}
		} else {
			err = s.answer(t, n)
		}
		if err != nil {
			return err
		}
	}
}

// nextForConsole is next for a session without a backend.
func (s *session) nextForConsole() (t byte, n int, err error) {
	if s.fromClient.Complete() {
		return s.fromClient.Next()
	}
	if err := s.toClient.Flush(); err != nil {
		return 0, 0, fmt.Errorf("write to client: %w", err)
	}
	if err := s.wait(); err != nil {
		return 0, 0, err
	}
	t, n, err = s.fromClient.Next()
	s.waited(err == nil)
	return t, n, err
}

// answer has the console answer a message; a cancel request breaks it off.
func (s *session) answer(t byte, n int) error {
	body, err := s.fromClient.Read(n)
	if err != nil {
		return err
	}
	ctx, done := s.beginClaim()
	defer done()
	return s.talk.Take(ctx, t, body)
}
