package proxy_test

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"
)

// A frontend is a client that says what it likes, message by message.
type frontend struct {
	t    *testing.T
	conn net.Conn
	fe   *pgproto3.Frontend
	pid  uint32
}

// frontend opens an untagged session with addr.
func (s *stack) frontend(addr string) *frontend {
	s.t.Helper()
	return s.frontendWith(addr, nil)
}

// frontendWith is frontend with more parameters in the startup packet.
func (s *stack) frontendWith(addr string, more map[string]string) *frontend {
	s.t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(20 * time.Second))
	f := &frontend{t: s.t, conn: conn, fe: pgproto3.NewFrontend(conn, conn)}
	params := map[string]string{"user": "postgres", "database": "postgres"}
	maps.Copy(params, more)
	f.send(&pgproto3.StartupMessage{ProtocolVersion: pgproto3.ProtocolVersion30, Parameters: params})
	f.until('Z')
	return f
}

// tagged opens a session through a proxy and tags it.
func (s *stack) taggedFrontend(proxy int, key string, token int) *frontend {
	s.t.Helper()
	f := s.frontend(s.addrs[proxy])
	f.send(query(fmt.Sprintf("SET fence.key = '%s'; SET fence.token = %d", key, token)))
	f.until('Z')
	return f
}

func (f *frontend) send(messages ...pgproto3.FrontendMessage) {
	f.t.Helper()
	for _, m := range messages {
		f.fe.Send(m)
	}
	if err := f.fe.Flush(); err != nil {
		f.t.Errorf("send: %v", err)
	}
}

// until reads up to the next message of a type and says in short what came.
func (f *frontend) until(stop byte) string {
	f.t.Helper()
	var got []string
	for {
		m, err := f.fe.Receive()
		if err != nil {
			f.t.Fatalf("after %v: %v", got, err)
		}
		t, s := f.tell(m)
		if s != "" {
			got = append(got, s)
		}
		if t == stop {
			return strings.Join(got, " ")
		}
	}
}

// ready reads n replies up to their ReadyForQuery.
func (f *frontend) ready(n int) string {
	f.t.Helper()
	var got []string
	for range n {
		got = append(got, f.until('Z'))
	}
	return strings.Join(got, " ")
}

// endMark is how many Closes tell that all has been answered: more than any test
// sends in a row.
const endMark = 8

// rest reads all that is due still, in whatever state the session is: out of a
// COPY, and behind an error without a Sync.
func (f *frontend) rest() string {
	f.t.Helper()
	got, err := f.play(nil)
	if err != nil {
		f.t.Fatalf("after %s: %v", got, err)
	}
	return got
}

// play sends messages and reads all that is due.
func (f *frontend) play(messages []pgproto3.FrontendMessage) (string, error) {
	for _, m := range messages {
		f.fe.Send(m)
	}
	f.fe.Send(&pgproto3.CopyFail{})
	f.fe.Send(&pgproto3.Sync{})
	for range endMark {
		f.fe.Send(&pgproto3.Close{ObjectType: 'P', Name: "none"})
	}
	f.fe.Send(&pgproto3.Sync{})
	sent := f.fe.Flush() // a server that closes may have said why
	var got []string
	for marks := 0; ; {
		m, err := f.fe.Receive()
		if err != nil {
			return strings.Join(got, " "), errors.Join(err, sent)
		}
		t, s := f.tell(m)
		switch {
		case t == '3':
			marks++
		case t == 'Z' && marks >= endMark:
			return strings.Join(got, " "), nil
		default:
			marks = 0
		}
		if s != "" {
			got = append(got, s)
		}
		if t == 'Z' && slices.Contains(got, "LF005") {
			f.fe.Send(&pgproto3.Sync{}) // an evicted session ends at the next request, if it wasn't the mark
			sent = errors.Join(sent, f.fe.Flush())
		}
	}
}

func (f *frontend) tell(m pgproto3.BackendMessage) (t byte, s string) {
	switch m := m.(type) {
	case *pgproto3.ReadyForQuery:
		return 'Z', "Z" + string(m.TxStatus)
	case *pgproto3.ErrorResponse:
		return 'E', m.Code
	case *pgproto3.CommandComplete:
		return 'C', string(m.CommandTag)
	case *pgproto3.CloseComplete:
		return '3', ""
	case *pgproto3.CopyInResponse:
		return 'G', ""
	case *pgproto3.BackendKeyData:
		f.pid = m.ProcessID
	}
	return 0, ""
}

func query(sql string) pgproto3.FrontendMessage { return &pgproto3.Query{String: sql} }

// execute is Parse, Bind and Execute of a statement.
func execute(sql string) []pgproto3.FrontendMessage {
	return []pgproto3.FrontendMessage{&pgproto3.Parse{Query: sql}, &pgproto3.Bind{}, &pgproto3.Execute{}}
}

// segments is each statement with a Sync of its own.
func segments(sqls ...string) (all []pgproto3.FrontendMessage) {
	for _, sql := range sqls {
		all = append(append(all, execute(sql)...), &pgproto3.Sync{})
	}
	return all
}
