package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fenceproxy/fenceproxy/fencing"
	"github.com/fenceproxy/fenceproxy/testharness/certs"
	"github.com/fenceproxy/fenceproxy/testharness/poll"
	"github.com/fenceproxy/fenceproxy/testharness/stack"
)

// A reloading is a proxy with a file of settings.
type reloading struct {
	*stack.Process
	t    *testing.T
	path string
}

func serveReloading(t *testing.T, s *stack.Stack, text string, flags ...string) *reloading {
	t.Helper()
	r := &reloading{t: t, path: filepath.Join(t.TempDir(), "fence.yaml")}
	r.write(text)
	r.Process = serveOn(t, s, append(flags, "--config", r.path)...)
	return r
}

func (r *reloading) write(text string) {
	r.t.Helper()
	if err := os.WriteFile(r.path, []byte(text), 0o600); err != nil {
		r.t.Fatal(err)
	}
}

// reload gives the proxy another file, and waits until it has said what became of
// it in a line with the message.
func (r *reloading) reload(text, message string) {
	r.t.Helper()
	r.write(text)
	before := len(lines(r.t, r.Process, message, nil))
	if err := r.Signal(syscall.SIGHUP); err != nil {
		r.t.Fatal(err)
	}
	poll.Until(r.t, message, func() bool { return len(lines(r.t, r.Process, message, nil)) > before })
}

// says waits for a text in the log, which has a line for each fault.
func (r *reloading) says(text string) {
	r.t.Helper()
	poll.Until(r.t, text, func() bool { return strings.Contains(r.Log(), text) })
}

const reloaded, notReloaded = "settings reloaded", "settings not reloaded: they stay as they are"

// Settings that can change do at SIGHUP, the others say that they don't, and a
// session goes on over all of it, in the middle of its transaction.
func TestServe_Reload(t *testing.T) {
	s := stack.New(t, "app")
	p := serveReloading(t, s, "max_connections: 0\n")
	dsn := s.ProxyDSN(p.Addr, stack.RoleApp, "app")
	lease := hold(t, s.Client, "order:1")
	conn := open(t, dsn, tagged("order:1", lease.Token())...)
	exec1(t, conn, "CREATE TABLE t (i int)")
	plain := open(t, dsn)
	exec1(t, conn, "BEGIN")
	exec1(t, conn, "INSERT INTO t VALUES (1)")

	p.reload("untagged_writes: reject\nlog_level: debug\n", reloaded)
	late := open(t, dsn)
	if _, err := late.Exec(t.Context(), "INSERT INTO t VALUES (2)"); code(err) != string(fencing.CodeTokenRequired) {
		t.Errorf("policy: got %v, want %s", err, fencing.CodeTokenRequired)
	}
	exec1(t, plain, "INSERT INTO t VALUES (3)") // as it was when it began
	if got := lines(t, p.Process, "setting changed", logLine{"setting": "untagged_writes", "from": "allow", "to": "reject"}); len(got) != 1 {
		t.Errorf("got %v, want a line on untagged_writes", got)
	}
	exec1(t, open(t, dsn, tagged("order:1", lease.Token())...), "SELECT 1")
	aLine(t, p.Process, "claim", logLine{"outcome": "known", "level": "DEBUG"})

	p.reload("max_connections: 1\netcd_listen: 127.0.0.1:1\n", reloaded)
	if refused, err := pgx.Connect(t.Context(), dsn); code(err) != "53300" {
		t.Errorf("max_connections: got %v, %v, want 53300", refused, err)
	}
	aLine(t, p.Process, "setting not changed: it needs a restart", logLine{"setting": "etcd_listen"})

	p.reload("max_connections: 100\nclaim_timeout: soon\nevict_aftr: 1s\n", notReloaded)
	for _, want := range []string{"fence.yaml:2: claim_timeout: bad value", "fence.yaml:3: evict_aftr: no such setting; did you mean evict_after?"} {
		p.says(want)
	}
	if refused, err := pgx.Connect(t.Context(), dsn); code(err) != "53300" {
		t.Errorf("a bad file: got %v, %v, want 53300 still", refused, err)
	}
	p.reload("", reloaded)
	exec1(t, open(t, dsn), "INSERT INTO t VALUES (4)")
	exec1(t, conn, "COMMIT")

	p.reload("client_idle_timeout: 200ms\nfencing: live\n", reloaded)
	poll.Until(t, "the idle session's end", func() bool {
		return len(lines(t, p.Process, "session ended", logLine{"code": "57P05"})) > 0
	})
	if _, body := get(t, p.Process, "/metrics"); !strings.Contains(body, "fenceproxy_lock_watch_silent_seconds") {
		t.Error("fencing: live has begun no watch")
	}
	p.reload("verify_timeout: 200ms\ndrain_timeout: 100ms\n", reloaded)
	held := open(t, dsn)
	exec1(t, held, "BEGIN")
	if err := p.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if status, err := p.Wait(); status != 0 || err != nil || !strings.Contains(p.Log(), `"timeout":"100ms"`) {
		t.Errorf("got %d, %v, want 0 after the new drain_timeout: %s", status, err, p.Log())
	}
}

// Certificates and passwords come from other files after a reload.
func TestServe_ReloadFiles(t *testing.T) {
	s := stack.New(t, "app")
	ca := certs.New(t)
	users := func(password string) string {
		t.Helper()
		path := filepath.Join(t.TempDir(), "userlist.txt")
		if err := os.WriteFile(path, fmt.Appendf(nil, "%q %q\n", stack.RoleApp, password), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	config, err := pgx.ParseConfig(s.DSN(stack.RoleApp, "app"))
	if err != nil {
		t.Fatal(err)
	}
	text := func(name, password string) string {
		cert, key := ca.Files(ca.Leaf(name))
		return fmt.Sprintf("client_tls: require\nclient_tls_cert: %s\nclient_tls_key: %s\nauth_file: %s\n", cert, key, users(password))
	}
	first := text("first", config.Password)
	p := serveReloading(t, s, first)
	connect := func() (*pgx.Conn, error) {
		config, err := pgx.ParseConfig(s.ProxyDSN(p.Addr, stack.RoleApp, "app"))
		if err != nil {
			t.Fatal(err)
		}
		config.TLSConfig, config.Fallbacks = &tls.Config{RootCAs: ca.Pool, ServerName: "127.0.0.1"}, nil
		return pgx.ConnectConfig(t.Context(), config)
	}
	conn, err := connect()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())

	p.reload(text("second", "another"), reloaded)
	if refused, err := connect(); code(err) != "28P01" {
		t.Errorf("got %v, %v, want 28P01 by the new file", refused, err)
	}
	p.reload(text("third", config.Password), reloaded)
	again, err := connect()
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close(context.Background())
	if got := again.PgConn().Conn().(*tls.Conn).ConnectionState().PeerCertificates[0].Subject.CommonName; got != "third" {
		t.Errorf("got the certificate of %q, want third", got)
	}
	p.reload(strings.Replace(first, "auth_file: ", "auth_file: /nowhere", 1), notReloaded)
	p.reload("client_tls: disable\n", reloaded)
	aLine(t, p.Process, "setting not changed: it needs a restart", logLine{"setting": "client_tls"})
	if still, err := connect(); err != nil {
		t.Errorf("client_tls can't be reloaded, and yet: %v", err)
	} else {
		still.Close(context.Background())
	}
	exec1(t, conn, "SELECT 1")
}

// A flag or a variable that wins over the file stays what it is.
func TestServe_ReloadPrecedence(t *testing.T) {
	s := stack.New(t, "app")
	p := serveReloading(t, s, "untagged_writes: observe\n", "--untagged-writes", "allow")
	p.reload("untagged_writes: reject\n", reloaded)
	exec1(t, open(t, s.ProxyDSN(p.Addr, stack.RoleApp, "app")), "CREATE TABLE t (i int)")
	if got := lines(t, p.Process, "setting changed", nil); len(got) != 0 {
		t.Errorf("got %v, want no change", got)
	}
	for began := time.Now(); time.Since(began) < time.Second; {
		if err := p.Signal(syscall.SIGHUP); err != nil { // many, and no session is lost
			t.Fatal(err)
		}
		exec1(t, open(t, s.ProxyDSN(p.Addr, stack.RoleApp, "app")), "SELECT 1")
	}
}
