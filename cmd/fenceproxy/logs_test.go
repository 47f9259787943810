package main

import (
	"context"
	"encoding/json"
	"strings"
	"syscall"
	"testing"

	"github.com/fenceproxy/fenceproxy/fencing"
	"github.com/fenceproxy/fenceproxy/testharness/poll"
	"github.com/fenceproxy/fenceproxy/testharness/stack"
)

// A logLine is a line of a proxy's log.
type logLine map[string]any

// lines returns the lines with a message that have all of the attributes.
func lines(t testing.TB, p *stack.Process, message string, with logLine) (found []logLine) {
	t.Helper()
next:
	for text := range strings.Lines(p.Log()) {
		var line logLine
		if err := json.Unmarshal([]byte(text), &line); err != nil {
			t.Fatalf("the log has %q: %v", text, err)
		}
		for key, want := range with {
			if line[key] != want {
				continue next
			}
		}
		if line["msg"] == message {
			found = append(found, line)
		}
	}
	return found
}

// aLine waits for a line and returns the first.
func aLine(t testing.TB, p *stack.Process, message string, with logLine) logLine {
	t.Helper()
	var found []logLine
	poll.Until(t, message, func() bool {
		found = lines(t, p, message, with)
		return len(found) > 0
	})
	return found[0]
}

// What a night's questions need can be joined by session, key and token, and no
// line has a text of SQL, a parameter or a password.
func TestServe_Log(t *testing.T) {
	s := stack.New(t, "app")
	p := serveOn(t, s)
	old := hold(t, s.Client, "order:1")
	dsn := s.ProxyDSN(p.Addr, stack.RoleApp, "app")
	stale := open(t, dsn, append(tagged("order:1", old.Token()), "application_name", "worker one")...)
	exec1(t, stale, "CREATE TABLE t (i int, v text)")
	if err := old.Release(context.Background()); err != nil {
		t.Fatal(err)
	}
	lease := hold(t, s.Client, "order:1")
	fresh := open(t, dsn, append(tagged("order:1", lease.Token()), "application_name", "worker two")...)
	if _, err := fresh.Exec(context.Background(), "INSERT INTO t VALUES ($1, $2)", 1, "canary-parameter"); err != nil {
		t.Fatal(err)
	}
	if _, err := stale.Exec(context.Background(), "INSERT INTO t VALUES (1, 'canary-text')"); code(err) != string(fencing.CodeEvicted) {
		t.Errorf("got %v, want %s", err, fencing.CodeEvicted)
	}
	forged := open(t, dsn, append(tagged("order:1", lease.Token()+1), "application_name", "forger")...)
	if _, err := forged.Exec(context.Background(), "INSERT INTO t VALUES (2, 'canary-text')"); code(err) != string(fencing.CodeNotHolder) {
		t.Errorf("got %v, want %s", err, fencing.CodeNotHolder)
	}
	fresh.Close(context.Background())
	forged.Close(context.Background())
	stale.Close(context.Background())

	started := aLine(t, p, "session started", logLine{"application_name": "worker one"})
	session := started["session"]
	if started["pid"] == 0.0 || started["user"] != stack.RoleApp || started["database"] != "app" || started["remote"] == "" {
		t.Errorf("got %v, want who came, and the backend's pid", started)
	}
	token := float64(old.Token())
	aLine(t, p, "claim", logLine{"session": session, "key": "order:1", "token": token, "outcome": "raised"})
	aLine(t, p, "session evicted", logLine{"session": session, "key": "order:1", "token": token, "by": float64(lease.Token())})
	aLine(t, p, "statement refused", logLine{"session": session, "code": "LF005", "key": "order:1", "token": token})
	ended := aLine(t, p, "session ended", logLine{"session": session, "reason": "evicted", "code": "LF005"})
	if ended["statements"] != 2.0 || ended["refused"] != 1.0 || ended["bytes_in"].(float64) < 50 || ended["bytes_out"].(float64) < 50 {
		t.Errorf("got %v, want 2 statements of which 1 was refused, and bytes", ended)
	}

	session = aLine(t, p, "session started", logLine{"application_name": "forger"})["session"]
	aLine(t, p, "claim refused", logLine{"session": session, "code": "LF002"})
	aLine(t, p, "statement refused", logLine{"session": session, "code": "LF002"})
	ended = aLine(t, p, "session ended", logLine{"session": session, "application_name": "forger", "reason": "client left"})
	if ended["duration"] == "" || ended["refused"] != 1.0 {
		t.Errorf("got %v, want the duration as text, and a refusal", ended)
	}
	if log := p.Log(); strings.Contains(log, "canary") || strings.Contains(log, "INSERT") {
		t.Errorf("the log has a text of the client's: %s", log)
	}
}

// While etcd is away the log says so once, and what became of the claims.
func TestServe_LogWhileEtcdIsAway(t *testing.T) {
	s := stack.New(t, "app")
	p := serveOn(t, s, "--verify-timeout", "300ms")
	s.Etcd.Close()
	conn := open(t, s.ProxyDSN(p.Addr, stack.RoleApp, "app"), tagged("order:1", 7)...)
	if _, err := conn.Exec(context.Background(), "SELECT 1"); code(err) != string(fencing.CodeUnverified) {
		t.Errorf("got %v, want %s", err, fencing.CodeUnverified)
	}
	aLine(t, p, "claim refused", logLine{"code": "LF003", "key": "order:1"})
	aLine(t, p, "etcd can't be asked: new claims are refused, sessions that were claimed go on", logLine{"level": "WARN"})
}

// Refusals without end are told by some lines and a number.
func TestServe_LogOfManyRefusals(t *testing.T) {
	s := stack.New(t, "app")
	p := serveOn(t, s, "--untagged-writes", "reject")
	conn := open(t, s.ProxyDSN(p.Addr, stack.RoleApp, "app"))
	const many = 300
	for range many {
		if _, err := conn.Exec(context.Background(), "CREATE TABLE t (i int)"); code(err) != string(fencing.CodeTokenRequired) {
			t.Fatalf("got %v, want %s", err, fencing.CodeTokenRequired)
		}
	}
	conn.Close(context.Background())
	if err := p.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if status, err := p.Wait(); status != 0 || err != nil {
		t.Errorf("got %d, %v, want 0", status, err)
	}
	all := lines(t, p, "statement refused", logLine{"code": "LF004", "user": stack.RoleApp})
	told, most := 0.0, 0
	for _, line := range all {
		if n, ok := line["suppressed"].(float64); ok {
			told += n
		} else {
			told++
			most++
		}
	}
	if told != many || len(all) > many/3 {
		t.Errorf("got %d lines of %v refusals, want few of %d", len(all), told, many)
	}
	if ended := lines(t, p, "session ended", nil); len(ended) != 1 || ended[0]["refused"] != float64(many) {
		t.Errorf("got %v, want one end with %d refusals", ended, many)
	}
}
