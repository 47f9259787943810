package main

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fenceproxy/fenceproxy/testharness/poll"
	"github.com/fenceproxy/fenceproxy/testharness/stack"
)

// A notifySocket is where a service manager listens. It reads on, for who tells
// it something waits until it does.
type notifySocket struct {
	t    *testing.T
	mu   sync.Mutex
	read []string
}

// notified opens one for the processes that the test starts.
func notified(t *testing.T) *notifySocket {
	t.Helper()
	path := filepath.Join(t.TempDir(), "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("NOTIFY_SOCKET", path)
	s := &notifySocket{t: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.listen(conn)
	}()
	t.Cleanup(func() {
		conn.Close()
		<-done
	})
	return s
}

// listen ends when conn is closed.
func (s *notifySocket) listen(conn net.Conn) {
	buf := make([]byte, 4096)
	for {
		n, err := conn.Read(buf)
		if err != nil {
			return
		}
		s.mu.Lock()
		s.read = append(s.read, "\n"+string(buf[:n])+"\n")
		s.mu.Unlock()
	}
}

// await returns the next message that has a line.
func (s *notifySocket) await(line string) (message string) {
	s.t.Helper()
	poll.Until(s.t, line, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		for i, m := range s.read {
			if strings.Contains(m, "\n"+line+"\n") {
				message, s.read = m, s.read[i+1:]
				return true
			}
		}
		return false
	})
	return message
}

func TestSupervisor_Notifies(t *testing.T) {
	s := stack.New(t, "app")
	await := notified(t).await
	t.Setenv("WATCHDOG_USEC", "150000")
	p := serveOn(t, s, "--drain-timeout", "20s")
	await("READY=1")
	conn := open(t, s.ProxyDSN(p.Addr, stack.RoleApp, "app"))
	exec1(t, conn, "BEGIN")
	await("STATUS=serving, sessions: 1")
	if got := await("WATCHDOG=1"); !strings.Contains(got, "STATUS=serving, sessions: 1\n") {
		t.Errorf("got %q, want how many sessions there are with each sign of life", got)
	}
	if err := p.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	await("RELOADING=1")
	await("READY=1")
	if err := p.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if got := await("STOPPING=1"); !strings.Contains(got, "\nEXTEND_TIMEOUT_USEC=30000000\n") {
		t.Errorf("got %q, want --drain-timeout and a margin asked for", got)
	}
	await("STATUS=draining, sessions: 1")
	exec1(t, conn, "COMMIT")
	if status, err := p.Wait(); status != 0 || err != nil {
		t.Errorf("got exit %d, %v, want 0: %s", status, err, p.Log())
	}
}

func TestSupervisor_Environment(t *testing.T) {
	s := stack.New(t, "app")
	for name, c := range map[string]struct{ variable, value, want string }{
		"watchdog":         {"WATCHDOG_USEC", "soon", "WATCHDOG_USEC"},
		"no service there": {"NOTIFY_SOCKET", "/nowhere", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(asProgram, "1")
			t.Setenv(c.variable, c.value)
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			p, err := s.StartProcess(ctx, "app", []string{os.Args[0]})
			switch {
			case c.want == "" && err != nil:
				t.Errorf("got %v, want a proxy that serves all the same", err)
			case c.want == "" && !strings.Contains(p.Log(), "notify the service manager"):
				t.Errorf("got %s, want it said that nobody was told", p.Log())
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
				t.Errorf("got %v, want an error that names %s", err, c.want)
			}
		})
	}
}

// passedOn starts serve with sockets as systemd passes them. Only the process
// itself knows the LISTEN_PID that they are for, so a shell tells it.
func passedOn(t *testing.T, s *stack.Stack, names string, files ...*os.File) (*stack.Process, error) {
	t.Helper()
	t.Setenv(asProgram, "1")
	t.Setenv("LISTEN_FDS", string(rune('0'+len(files))))
	t.Setenv("LISTEN_FDNAMES", names)
	program := []string{"sh", "-c", `LISTEN_PID=$$ exec "$0" "$@"`, os.Args[0]}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return s.Launch(ctx, stack.Way{Upstream: s.DSN(stack.RoleFence, "app"), Etcd: []string{s.Etcd.Endpoint()}, Passed: files}, program)
}

// socket is a listening one, as its owner and as who passes it on see it.
func socket(t *testing.T, network, addr string) (net.Listener, *os.File) {
	t.Helper()
	ln, err := net.Listen(network, addr)
	if err != nil {
		t.Fatal(err)
	}
	file, err := ln.(interface{ File() (*os.File, error) }).File()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		file.Close()
		ln.Close()
	})
	return ln, file
}

func TestListeners_Inherited(t *testing.T) {
	s := stack.New(t, "app")
	first, a := socket(t, "tcp", "127.0.0.1:0")
	second, b := socket(t, "tcp", "127.0.0.1:0")
	admin, c := socket(t, "tcp", "127.0.0.1:0")
	p, err := passedOn(t, s, "fenceproxy.socket:admin:fenceproxy.socket", a, c, b)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := p.Addr, first.Addr().String()+","+second.Addr().String(); got != want {
		t.Errorf("clients: got %s, want %s", got, want)
	}
	if got, want := p.Admin, admin.Addr().String(); got != want {
		t.Errorf("admin: got %s, want %s", got, want)
	}
	if status, _ := get(t, p, "/healthz"); status != 200 {
		t.Errorf("/healthz: got %d, want 200", status)
	}
	for _, ln := range []net.Listener{first, second} {
		exec1(t, open(t, s.ProxyDSN(ln.Addr().String(), stack.RoleApp, "app")), "SELECT 1")
	}

	// The sockets outlive the proxy: who connects meanwhile waits for the next.
	if err := p.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if status, err := p.Wait(); status != 0 || err != nil {
		t.Errorf("got exit %d, %v, want 0: %s", status, err, p.Log())
	}
	waiting := make(chan error, 1)
	go func() {
		conn, err := pgx.Connect(context.Background(), s.ProxyDSN(first.Addr().String(), stack.RoleApp, "app"))
		if err == nil {
			err = conn.Close(context.Background())
		}
		waiting <- err
	}()
	if _, err := passedOn(t, s, "fenceproxy.socket:admin:fenceproxy.socket", a, c, b); err != nil {
		t.Fatal(err)
	}
	if err := <-waiting; err != nil {
		t.Errorf("a client that connected between two proxies: got %v", err)
	}
}

func TestListeners_Refused(t *testing.T) {
	s := stack.New(t, "app")
	_, tcp := socket(t, "tcp", "127.0.0.1:0")
	_, second := socket(t, "tcp", "127.0.0.1:0")
	_, unix := socket(t, "unix", filepath.Join(t.TempDir(), "socket"))
	plain, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	for name, c := range map[string]struct {
		names string
		files []*os.File
		want  string
	}{
		"two admin ports": {"admin:admin", []*os.File{tcp, second}, `two sockets are named "admin"`},
		"a Unix socket":   {"clients", []*os.File{unix}, "clients listens on unix"},
		"no socket":       {"clients", []*os.File{plain}, "clients is no listening socket"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := passedOn(t, s, c.names, c.files...); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %s", err, c.want)
			}
		})
	}
}

func TestHealth(t *testing.T) {
	s := stack.New(t, "app")
	p := serveOn(t, s)
	ask := func(args ...string) (status int, said string) {
		h := start(t, []string{"FENCEPROXY_ADMIN_LISTEN=" + p.Admin}, append([]string{"health"}, args...)...)
		<-h.done
		return h.cmd.ProcessState.ExitCode(), h.stderr.String()
	}
	_, port, _ := net.SplitHostPort(p.Admin)
	poll.Until(t, "that it is ready", func() bool { status, said := ask("--ready"); return status == 0 && said == "" })
	for _, args := range [][]string{nil, {"--admin-listen", ":" + port}, {"--admin-listen", "0.0.0.0:" + port}} {
		if status, said := ask(args...); status != 0 || said != "" {
			t.Errorf("%q: got exit %d, %q, want 0", args, status, said)
		}
	}
	s.Etcd.Close()
	poll.Until(t, "that it isn't ready", func() bool { status, _ := ask("--ready"); return status == 1 })
	if _, said := ask("--ready"); !strings.Contains(said, "etcd") {
		t.Errorf("got %q, want what is away", said)
	}
	if status, said := ask(); status != 0 {
		t.Errorf("etcd away: got exit %d, %q, want 0: it is alive", status, said)
	}
	p.Kill()
	if status, said := ask(); status != 1 || !strings.Contains(said, "refused") {
		t.Errorf("killed: got exit %d, %q, want 1 and why", status, said)
	}
}
