package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fenceproxy/fenceproxy/fencing"
	"github.com/fenceproxy/fenceproxy/leases"
	"github.com/fenceproxy/fenceproxy/testharness/certs"
	"github.com/fenceproxy/fenceproxy/testharness/fault"
	"github.com/fenceproxy/fenceproxy/testharness/poll"
	"github.com/fenceproxy/fenceproxy/testharness/postgres"
	"github.com/fenceproxy/fenceproxy/testharness/stack"
)

// serveOn starts `fenceproxy serve` on a stack.
func serveOn(t testing.TB, s *stack.Stack, flags ...string) *stack.Process {
	t.Helper()
	t.Setenv(asProgram, "1")
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	p, err := s.StartProcess(ctx, "app", []string{os.Args[0]}, flags...)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// serveOverLink is serveOn with a link to etcd.
func serveOverLink(t testing.TB, s *stack.Stack, flags ...string) (*fault.Link, *stack.Process) {
	t.Helper()
	link, err := fault.NewLink(strings.TrimPrefix(s.Etcd.Endpoint(), "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(link.Close)
	t.Setenv(asProgram, "1")
	p, err := s.Launch(t.Context(), stack.Way{Upstream: s.DSN(stack.RoleFence, "app"), Etcd: []string{"http://" + link.Addr()}}, []string{os.Args[0]}, flags...)
	if err != nil {
		t.Fatal(err)
	}
	return link, p
}

// get asks the admin port.
func get(t testing.TB, p *stack.Process, path string) (status int, body string) {
	t.Helper()
	resp, err := http.Get("http://" + p.Admin + path)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

func open(t testing.TB, dsn string, params ...string) *pgx.Conn {
	t.Helper()
	return stack.Connect(t, dsn, params...)
}

func tagged(key string, token fencing.Token) []string {
	return []string{fencing.SettingKey, key, fencing.SettingToken, token.String()}
}

func exec1(t testing.TB, conn *pgx.Conn, sql string) {
	t.Helper()
	if _, err := conn.Exec(context.Background(), sql); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// code is the SQLSTATE of an error, or "".
func code(err error) string {
	var said *pgconn.PgError
	if errors.As(err, &said) {
		return said.Code
	}
	return ""
}

func TestServe_AdminPort(t *testing.T) {
	s := stack.New(t, "app")
	p := serveOn(t, s)
	for path, want := range map[string]string{
		"/healthz": "ok",
		"/readyz":  "ok",
		"/metrics": "fenceproxy_sessions",
	} {
		if status, body := get(t, p, path); status != 200 || !strings.Contains(body, want) {
			t.Errorf("%s: got %d %q, want 200 with %q", path, status, body, want)
		}
	}
	_, body := get(t, p, "/metrics")
	if !strings.Contains(body, "go_goroutines") {
		t.Error("/metrics lacks the Go runtime's")
	}

	lease := hold(t, s.Client, "order:1")
	conn := open(t, s.ProxyDSN(p.Addr, stack.RoleApp, "app"), tagged("order:1", lease.Token())...)
	exec1(t, conn, "CREATE TABLE t (i int)")
	poll.Until(t, "one claim is counted", func() bool {
		_, body := get(t, p, "/metrics")
		return strings.Contains(body, `fenceproxy_claims_total{code="",outcome="raised"} 1`)
	})

	s.Etcd.Close()
	if status, body := get(t, p, "/readyz"); status != 503 || !strings.HasPrefix(body, "etcd: ") || strings.Count(body, "etcd") != 1 {
		t.Errorf("etcd away: got %d %q, want 503 that names etcd once", status, body)
	}
	for query, want := range map[string]int{"exclude=etcd": 200, "exclude=upstream": 503, "exclude=etc": 400} {
		if status, body := get(t, p, "/readyz?"+query); status != want {
			t.Errorf("etcd away: /readyz?%s: got %d %q, want %d", query, status, body, want)
		}
	}
	if status, _ := get(t, p, "/healthz"); status != 200 {
		t.Errorf("etcd away: /healthz got %d, want 200", status)
	}
	if err := s.Postgres.Stop(); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/readyz", "/readyz?exclude=etcd"} {
		if status, body := get(t, p, path); status != 503 || !strings.Contains(body, "upstream") {
			t.Errorf("PostgreSQL away: %s: got %d %q, want 503 that names the upstream", path, status, body)
		}
	}
}

func TestServe_DrainsAtSIGTERM(t *testing.T) {
	s := stack.New(t, "app")
	p := serveOn(t, s)
	conn := open(t, s.ProxyDSN(p.Addr, stack.RoleApp, "app"))
	exec1(t, conn, "CREATE TABLE t (i int)")
	exec1(t, conn, "BEGIN")
	exec1(t, conn, "INSERT INTO t VALUES (1)")
	if err := p.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	poll.Until(t, "draining", func() bool {
		status, body := get(t, p, "/readyz")
		return status == 503 && strings.Contains(body, "draining")
	})
	if status, body := get(t, p, "/readyz?exclude=etcd"); status != 503 {
		t.Errorf("draining: /readyz?exclude=etcd: got %d %q, want 503", status, body)
	}
	exec1(t, conn, "COMMIT")
	status, err := p.Wait()
	if status != 0 || err != nil {
		t.Errorf("got exit %d, %v, want 0: %s", status, err, p.Log())
	}
	var n int
	if err := open(t, s.DSN(stack.RoleApp, "app")).QueryRow(context.Background(), "SELECT count(*) FROM t").Scan(&n); err != nil || n != 1 {
		t.Errorf("got %d rows, %v, want the transaction committed", n, err)
	}
}

func TestServe_DrainTimeout(t *testing.T) {
	s := stack.New(t, "app")
	for name, c := range map[string]struct {
		flags   []string
		signals int
		timeout string
		cause   string
	}{
		"time is up":      {[]string{"--drain-timeout", "100ms"}, 1, "100ms", "--drain-timeout was over"},
		"a second signal": {[]string{"--drain-timeout", "1h"}, 2, "1h0m0s", "a second signal came"},
	} {
		t.Run(name, func(t *testing.T) {
			p := serveOn(t, s, c.flags...)
			conn := open(t, s.ProxyDSN(p.Addr, stack.RoleApp, "app"))
			exec1(t, conn, "BEGIN")
			for range c.signals {
				if err := p.Signal(syscall.SIGTERM); err != nil {
					t.Fatal(err)
				}
				poll.Until(t, "draining", func() bool { return strings.Contains(p.Log(), "draining") })
			}
			if status, err := p.Wait(); status != 0 || err != nil {
				t.Errorf("got exit %d, %v, want 0: %s", status, err, p.Log())
			}
			for _, want := range []string{
				`"draining","timeout":"` + c.timeout + `"`,
				`"sessions were cut off","sessions":1,"cause":"` + c.cause + `"`,
				`"reason":"fenceproxy cut the session off: ` + c.cause + `"`,
			} {
				if !strings.Contains(p.Log(), want) {
					t.Errorf("got log %s, want %s", p.Log(), want)
				}
			}
		})
	}
}

// Kill -9 of a proxy loses no mark, and a second proxy goes on at once.
func TestServe_KilledProxyLosesNothing(t *testing.T) {
	s := stack.New(t, "app")
	first, second := serveOn(t, s), serveOn(t, s)
	old := hold(t, s.Client, "order:1")
	stale := open(t, s.ProxyDSN(second.Addr, stack.RoleApp, "app"), tagged("order:1", old.Token())...)
	exec1(t, stale, "CREATE TABLE t (i int)")
	if err := old.Release(context.Background()); err != nil {
		t.Fatal(err)
	}
	lease := hold(t, s.Client, "order:1")
	exec1(t, open(t, s.ProxyDSN(first.Addr, stack.RoleApp, "app"), tagged("order:1", lease.Token())...), "INSERT INTO t VALUES (1)")
	first.Kill()

	if _, err := stale.Exec(context.Background(), "INSERT INTO t VALUES (0)"); code(err) != string(fencing.CodeStale) {
		t.Errorf("stale write: got %v, want %s", err, fencing.CodeStale)
	}
	exec1(t, open(t, s.ProxyDSN(second.Addr, stack.RoleApp, "app"), tagged("order:1", lease.Token())...), "INSERT INTO t VALUES (2)")
}

// While etcd is away, claimed sessions go on and new claims fail in time.
func TestServe_EtcdAway(t *testing.T) {
	s := stack.New(t, "app")
	p := serveOn(t, s)
	lease := hold(t, s.Client, "order:1")
	conn := open(t, s.ProxyDSN(p.Addr, stack.RoleApp, "app"), tagged("order:1", lease.Token())...)
	exec1(t, conn, "CREATE TABLE t (i int)")
	s.Etcd.Close()
	exec1(t, conn, "INSERT INTO t VALUES (1)")
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	other := open(t, s.ProxyDSN(p.Addr, stack.RoleApp, "app"))
	exec1(t, other, "SET fence.key = 'order:2'")
	_, err := other.Exec(ctx, "SET fence.token = 5")
	if err == nil {
		_, err = other.Exec(ctx, "INSERT INTO t VALUES (2)")
	}
	if code(err) != string(fencing.CodeUnverified) {
		t.Errorf("new claim: got %v, want %s within 3 s", err, fencing.CodeUnverified)
	}
}

func TestServe_StartErrors(t *testing.T) {
	s := stack.New(t, "app")
	if err := s.CreateDatabase(context.Background(), "bare"); err != nil {
		t.Fatal(err)
	}
	breakSchema(t, s, "broken")
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	upstream, etcd := s.DSN(stack.RoleFence, "app"), s.Etcd.Endpoint()
	for name, c := range map[string]struct {
		args []string
		want []string
	}{
		"no schema":     {[]string{"--upstream", s.DSN(stack.RoleFence, "bare"), "--etcd", etcd}, []string{"schema fence", "fenceproxy init", "bare"}},
		"damaged":       {[]string{"--upstream", s.DSN(stack.RoleFence, "broken"), "--etcd", etcd}, []string{"database broken", "damaged: table fence.mark is missing", "DROP SCHEMA fence CASCADE", "fenceproxy init"}},
		"no rights":     {[]string{"--upstream", s.DSN(stack.RoleApp, "app"), "--etcd", etcd}, []string{"GRANT"}},
		"etcd away":     {[]string{"--upstream", upstream, "--etcd", "http://127.0.0.1:1"}, []string{"http://127.0.0.1:1", "refused", "--etcd"}},
		"port taken":    {[]string{"--upstream", upstream, "--etcd", etcd, "--listen", taken.Addr().String()}, []string{"--listen", "in use"}},
		"admin taken":   {[]string{"--upstream", upstream, "--etcd", etcd, "--listen", "127.0.0.1:0", "--admin-listen", taken.Addr().String()}, []string{"--admin-listen", "in use"}},
		"etcd's taken":  {[]string{"--upstream", upstream, "--embed-etcd", t.TempDir(), "--etcd-listen", taken.Addr().String()}, []string{"--etcd-listen", taken.Addr().String(), "stop what listens there"}},
		"etcd's folder": {[]string{"--upstream", upstream, "--embed-etcd", "/dev/null", "--etcd-listen", "127.0.0.1:0"}, []string{"--embed-etcd: ", "/dev/null"}},
	} {
		t.Run(name, func(t *testing.T) {
			code, stdout, stderr := program(t, nil, append([]string{"serve"}, c.args...)...)
			if code != 1 || stdout != "" {
				t.Errorf("got exit %d, stdout %q, want 1 and nothing", code, stdout)
			}
			for _, want := range c.want {
				if !strings.Contains(stderr, want) {
					t.Errorf("got %q, want %q in it", stderr, want)
				}
			}
			if strings.Contains(stderr, "hunter2") || strings.Count(stderr, "\n") != 1 {
				t.Errorf("got %q, want one line without the password", stderr)
			}
		})
	}
}

// What is wrong is said before an etcd is started, which leaves a folder.
func TestServe_LooksFirst(t *testing.T) {
	s := stack.New(t, "app")
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	ca := certs.New(t)
	cert, key := ca.Files(ca.Leaf("proxy"))
	broken := filepath.Join(t.TempDir(), "userlist.txt")
	if err := os.WriteFile(broken, []byte("nonsense\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	encrypted := []string{"--client-tls", "allow", "--client-tls-cert", cert, "--client-tls-key", key, "--auth-file"}
	for name, c := range map[string]struct {
		flags []string
		want  string
	}{
		"port":          {[]string{"--listen", taken.Addr().String()}, "--listen " + taken.Addr().String() + ": address already in use"},
		"admin port":    {[]string{"--admin-listen", taken.Addr().String()}, "--admin-listen " + taken.Addr().String() + ": address already in use"},
		"etcd's port":   {[]string{"--etcd-listen", taken.Addr().String()}, "--etcd-listen: start embedded etcd: address is taken"},
		"no auth file":  {append(encrypted[:len(encrypted):len(encrypted)], broken+".away"), "--auth-file: open " + broken + ".away: no such file"},
		"bad auth file": {append(encrypted[:len(encrypted):len(encrypted)], broken), "--auth-file " + broken + ": "},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "etcd")
			code, _, stderr := program(t, []string{"FENCEPROXY_UPSTREAM=" + s.DSN(stack.RoleFence, "app")}, append([]string{"serve", "--embed-etcd", dir,
				"--etcd-listen", "127.0.0.1:0", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"}, c.flags...)...)
			if code != 1 || !strings.Contains(stderr, c.want) || strings.Count(stderr, "\n") != 1 {
				t.Errorf("got exit %d, %q, want 1 and one line with %q", code, stderr, c.want)
			}
			if _, err := os.Stat(dir); err == nil {
				t.Error("etcd's folder was made")
			}
		})
	}
}

// A message about two settings names what set them; each fault has a line.
func TestServe_NamesOrigins(t *testing.T) {
	config := filepath.Join(t.TempDir(), "fence.yaml")
	if err := os.WriteFile(config, []byte("upstream: postgres://u@127.0.0.1/app\nevict_after: 9s\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for want, env := range map[string][]string{
		"FENCEPROXY_ETCD and --embed-etcd exclude each other":                       {"FENCEPROXY_ETCD=http://127.0.0.1:1"},
		config + ":2: evict_after (9s) must be below FENCEPROXY_CLAIM_TIMEOUT (1s)": {"FENCEPROXY_CLAIM_TIMEOUT=1s"},
	} {
		code, _, stderr := program(t, env, "serve", "--config", config, "--embed-etcd", filepath.Join(t.TempDir(), "etcd"))
		if code != 2 || !strings.Contains(stderr, "fenceproxy: "+want+"\n") {
			t.Errorf("got exit %d, %q, want 2 and %q", code, stderr, want)
		}
	}
}

func TestServe_EmbeddedEtcd(t *testing.T) {
	s := stack.New(t, "app")
	dir := filepath.Join(t.TempDir(), "etcd")
	config := filepath.Join(t.TempDir(), "fence.yaml")
	text := "listen: 127.0.0.1:0\nadmin_listen: 127.0.0.1:0\nlog_format: json\netcd_listen: 127.0.0.1:0\nembed_etcd: " + dir + "\n"
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	p := start(t, []string{"FENCEPROXY_UPSTREAM=" + s.DSN(stack.RoleFence, "app")}, "serve", "--config", config)
	poll.Until(t, "ready", func() bool { return strings.Contains(p.stderr.String(), `"msg":"ready"`) || p.ended() })
	// Who is given the proxy's settings asks the etcd in its process.
	etcd := regexp.MustCompile(`"url":"http://(127\.0\.0\.1:\d+)"`).FindStringSubmatch(p.stderr.String())
	if etcd == nil {
		t.Fatalf("got %s, want the address of etcd", p.stderr.String())
	}
	if err := os.WriteFile(config, []byte(strings.Replace(text, "etcd_listen: 127.0.0.1:0", "etcd_listen: "+etcd[1], 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	env := []string{"FENCEPROXY_UPSTREAM=" + s.DSN(stack.RoleFence, "app")}
	for command, args := range map[string][]string{
		"lock": {"k", "--", "true"}, "status": {}, "doctor": {}, "adopt-lineage": {},
	} {
		code, stdout, stderr := program(t, env, append([]string{command, "--config", config}, args...)...)
		// doctor minds that this PostgreSQL has fsync off.
		if code != 0 && command != "doctor" || (command == "status" || command == "doctor") && !strings.Contains(stdout, "locks held: 0") {
			t.Errorf("%s: got exit %d, %q, %q, want an answer of etcd", command, code, stdout, stderr)
		}
	}
	p.signal(syscall.SIGTERM)
	if code := p.wait(); code != 0 {
		t.Errorf("got exit %d: %s", code, p.stderr.String())
	}
	if strings.Contains(p.stderr.String(), "password") || strings.Contains(p.stderr.String(), s.DSN(stack.RoleFence, "app")) {
		t.Errorf("the log has the password: %s", p.stderr.String())
	}
}

// What cron would do: a lock around plain psql, through the proxy.
func TestServe_LockAroundPsql(t *testing.T) {
	s := stack.New(t, "app")
	p := serveOn(t, s)
	psql, err := exec.LookPath("psql")
	if err != nil {
		psql = s.Postgres.Program("psql")
	}
	dsn := s.ProxyDSN(p.Addr, stack.RoleApp, "app")
	key := `a job/of \ 'mine'`
	args := []string{"lock", key, "--etcd", s.Etcd.Endpoint(), "--", psql, dsn, "-XAtq", "-v", "ON_ERROR_STOP=1",
		"-c", "CREATE TABLE t (i int)", "-c", "SHOW fence.key"}
	code, stdout, stderr := program(t, nil, args...)
	if code != 0 || strings.TrimSpace(stdout) != key {
		t.Fatalf("got exit %d, %q, %q, want 0 and the key", code, stdout, stderr)
	}
	admin := open(t, s.DSN(postgres.Superuser, "app"))
	var token int64
	if err := admin.QueryRow(context.Background(), "SELECT token FROM fence.mark WHERE resource_key = $1", key).Scan(&token); err != nil || token < 2 {
		t.Errorf("got mark %d, %v, want one for the key", token, err)
	}

	stale := "PGOPTIONS=" + tagOptions("", key, fencing.Token(token-1))
	cmd := exec.Command(psql, dsn, "-XAtq", "-v", "VERBOSITY=verbose", "-c", "INSERT INTO t VALUES (1)")
	cmd.Env = append(os.Environ(), stale)
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "LF001") {
		t.Errorf("stale psql: got %v, %s, want LF001", err, out)
	}
	if left := holderKeys(t, s.Client, key); len(left) > 0 {
		t.Errorf("got %v left in etcd under %s", left, leases.DefaultPrefix)
	}
}

// The upstream may be a Unix socket.
func TestServe_UnixSocket(t *testing.T) {
	s := stack.New(t, "app")
	fence, err := pgx.ParseConfig(s.DSN(stack.RoleFence, "app"))
	if err != nil {
		t.Fatal(err)
	}
	dsn := fmt.Sprintf("host=%s port=%d user=%s password=%s dbname=app", s.Postgres.SocketDir(), s.Postgres.Port(), fence.User, fence.Password)
	p := serveOn(t, s, "--upstream", dsn)
	lease := hold(t, s.Client, "order:1")
	exec1(t, open(t, s.ProxyDSN(p.Addr, stack.RoleApp, "app"), tagged("order:1", lease.Token())...), "CREATE TABLE t (i int)")
	if !strings.Contains(p.Log(), s.Postgres.SocketDir()) || strings.Contains(p.Log(), fence.Password) {
		t.Errorf("got log %s, want the socket named and no password", p.Log())
	}
}
