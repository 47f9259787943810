package main

import (
	"context"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fenceproxy/fenceproxy/fencing"
	processes "github.com/fenceproxy/fenceproxy/testharness/child"
	"github.com/fenceproxy/fenceproxy/testharness/fault"
	"github.com/fenceproxy/fenceproxy/testharness/poll"
	"github.com/fenceproxy/fenceproxy/testharness/stack"
)

// sqlLock takes the lock order:1 in SQL. args follow the key.
func sqlLock(t *testing.T, conn *pgx.Conn, args string) (token fencing.Token) {
	t.Helper()
	err := conn.QueryRow(context.Background(), "SELECT token FROM fence.acquire('order:1'"+args+")").Scan(&token)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// A proxy that is killed gives nothing back: its sessions' locks are free when
// their leases have run out, and not before.
func TestServe_SQLLocksOfKilledProxy(t *testing.T) {
	s := stack.New(t, "app")
	killed, other := serveOn(t, s, "--sql-locks", "allow"), serveOn(t, s, "--sql-locks", "allow")
	first := open(t, s.ProxyDSN(killed.Addr, stack.RoleApp, "app"))
	old := sqlLock(t, first, ", '3s'")
	exec1(t, first, "CREATE TABLE t (i int)")
	exec1(t, first, "BEGIN")
	exec1(t, first, "INSERT INTO t VALUES (-1)")
	killed.Kill()

	next := open(t, s.ProxyDSN(other.Addr, stack.RoleApp, "app"))
	if _, err := next.Exec(t.Context(), "SELECT fence.acquire('order:1')"); code(err) != string(fencing.CodeLockTaken) {
		t.Fatalf("at once: got %v, want %s", err, fencing.CodeLockTaken)
	}
	token := sqlLock(t, next, ", '30s', wait => '30s'")
	if token <= old {
		t.Errorf("got token %d after %d, want a higher one", token, old)
	}
	exec1(t, next, "INSERT INTO t VALUES (1)")
	if got := rows(t, s.Postgres); got != "1" {
		t.Errorf("got rows %s, want 1", got)
	}
}

// A client that is stopped loses its lock to the next one, and what it writes
// when it wakes is refused: psql, with nothing else.
func TestServe_SQLLocksOfPausedClient(t *testing.T) {
	s := stack.New(t, "app")
	p := serveOn(t, s, "--sql-locks", "allow")
	next := open(t, s.ProxyDSN(p.Addr, stack.RoleApp, "app"))
	exec1(t, next, "CREATE TABLE t (i int)")

	var said output
	psql := exec.Command(s.Postgres.Program("psql"), "-XAt", "-v", "VERBOSITY=verbose", s.ProxyDSN(p.Addr, stack.RoleApp, "app"))
	psql.Stdout, psql.Stderr = &said, &said
	psql.SysProcAttr = processes.Attributes()
	in, err := psql.StdinPipe()
	if err == nil {
		err = psql.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = psql.Process.Kill(); _ = psql.Wait() })
	enter := func(sql string) {
		t.Helper()
		if _, err := in.Write([]byte(sql + "\n")); err != nil {
			t.Fatal(err)
		}
	}
	saying := func(text string) {
		t.Helper()
		poll.Until(t, "psql says "+text, func() bool { return strings.Contains(said.String(), text) })
	}
	enter("SELECT resource_key FROM fence.acquire('order:1', '2s');")
	saying("order:1")
	enter("BEGIN; INSERT INTO t VALUES (-1);")
	saying("INSERT 0 1")
	if err := psql.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	poll.Until(t, "psql stands still", func() bool { stopped, err := processes.Stopped(psql.Process.Pid); return stopped && err == nil })

	sqlLock(t, next, ", '1min', '30s'")
	exec1(t, next, "INSERT INTO t VALUES (1)")
	enter("COMMIT;")
	enter("INSERT INTO t VALUES (-2);")
	if err := psql.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	saying("ERROR:  LF005")
	if got := rows(t, s.Postgres); got != "1" {
		t.Errorf("got rows %s, want 1", got)
	}
}

// While etcd is away a lock can't be given back, renewed or taken; the session
// hears so and goes on, and the lock is free when its lease has run out.
func TestServe_SQLLocksEtcdAway(t *testing.T) {
	s := stack.New(t, "app")
	way, p := serveOverLink(t, s, "--sql-locks", "allow", "--verify-timeout", "500ms")
	conn := open(t, s.ProxyDSN(p.Addr, stack.RoleApp, "app"))
	exec1(t, conn, "CREATE TABLE t (i int)")
	old := sqlLock(t, conn, ", '10s'")
	way.Set(fault.Cut)
	for _, sql := range []string{"SELECT fence.renew('order:1')", "SELECT fence.acquire('order:2')"} {
		if _, err := conn.Exec(t.Context(), sql); code(err) != string(fencing.CodeUnverified) {
			t.Errorf("%s: got %v, want %s", sql, err, fencing.CodeUnverified)
		}
	}
	exec1(t, conn, "INSERT INTO t VALUES (1)")
	exec1(t, conn, "SELECT fence.release('order:1')")
	aLine(t, p, "lock left to its lease", logLine{"key": "order:1"})
	if got := holderKeys(t, s.Client, "order:1"); len(got) != 1 {
		t.Errorf("got %v in etcd, want the one lock", got)
	}
	way.Set(fault.Open)
	var token fencing.Token
	poll.Until(t, "the lock is free again", func() bool {
		return conn.QueryRow(t.Context(), "SELECT token FROM fence.acquire('order:1', '10s', '1s')").Scan(&token) == nil
	})
	if token <= old {
		t.Errorf("got token %d after %d, want a higher one", token, old)
	}
	if got := rows(t, s.Postgres); got != "1" {
		t.Errorf("got rows %s, want 1", got)
	}
}

// A call that is refused is about the lock that it asks for, and not told of the one that
// the session has.
func TestServe_SQLLocksRefusedCall(t *testing.T) {
	s := stack.New(t, "app")
	p := serveOn(t, s, "--sql-locks", "allow", "--stats-roles", stack.RoleApp)
	conn := open(t, s.ProxyDSN(p.Addr, stack.RoleApp, "app"))
	sqlLock(t, conn, "")
	if _, err := conn.Exec(t.Context(), "SELECT fence.acquire('order:2', 'soon')"); code(err) != string(fencing.CodeBadArgument) {
		t.Fatalf("got %v, want %s", err, fencing.CodeBadArgument)
	}
	if _, err := conn.Exec(t.Context(), "VACUUM"); code(err) != string(fencing.CodeNotFenceable) {
		t.Fatalf("got %v, want %s", err, fencing.CodeNotFenceable)
	}
	watching := open(t, s.ProxyDSN(p.Addr, stack.RoleApp, "fenceproxy"))
	refused, err := watching.Query(t.Context(), "SHOW REJECTIONS")
	if err != nil {
		t.Fatal(err)
	}
	keys := map[string]any{}
	for refused.Next() {
		row, err := pgx.RowToMap(refused)
		if err != nil {
			t.Fatal(err)
		}
		keys[row["code"].(string)] = row["key"]
	}
	if refused.Err() != nil || len(keys) != 2 || keys["22023"] != nil || keys["LF007"] != "order:1" {
		t.Errorf("got %v, %v, want no key of the call that was refused, and order:1 of the other", keys, refused.Err())
	}
	for line := range strings.Lines(p.Log()) {
		if strings.Contains(line, `"code":"22023"`) && strings.Contains(line, "order:1") {
			t.Errorf("got %s, want no word of order:1", line)
		}
	}
}
