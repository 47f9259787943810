package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"

	"github.com/fenceproxy/fenceproxy/leases"
	"github.com/fenceproxy/fenceproxy/testharness/certs"
	"github.com/fenceproxy/fenceproxy/testharness/stack"
)

// canary is a secret of these tests: wherever it is printed, something leaks.
const canary = "canary-hunter2"

func TestSecret_IsNeverPrinted(t *testing.T) {
	text := canary
	s := secret{&text}
	var d dsn
	if err := d.Set("postgres://u:" + canary + "@h/app"); err != nil {
		t.Fatal(err)
	}
	in := struct {
		S secret
		P *password
		F passwordFlags
		D dsn
		C upstreamFlags
	}{s, &password{s}, passwordFlags{text: password{s}}, d, upstreamFlags{dsn: d, password: passwordFlags{text: password{s}}}}
	var out bytes.Buffer
	for _, format := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		fmt.Fprintf(&out, format, in)
		fmt.Fprintf(&out, format, s)
	}
	inJSON, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	out.Write(inJSON)
	for _, h := range []slog.Handler{slog.NewTextHandler(&out, nil), slog.NewJSONHandler(&out, nil)} {
		slog.New(h).Info("secret", "s", s, "in", in)
	}
	if strings.Contains(out.String(), canary) || strings.Contains(out.String(), fmt.Sprintf("%x", canary)) {
		t.Errorf("got %s, want nothing of the secret", out.String())
	}
}

// passwordFile writes a file with a password.
func passwordFile(t testing.TB, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// No command's error shows a password, wherever it came from and whatever is wrong.
func TestRun_HidesSecrets(t *testing.T) {
	s := stack.New(t, "app")
	nowhere, good := "postgres://fence@127.0.0.1:1/app", s.DSN(stack.RoleFence, "app")
	file := passwordFile(t, canary+"\n")
	wrong := strings.Replace(good, url.UserPassword(stack.RoleFence, password0(t, good)).String(), stack.RoleFence, 1)
	config := passwordFile(t, "upstream: "+nowhere+"\nupstream_password: "+canary+"\netcd_password: "+canary+"\nclaim_timeout: soon\n")
	for name, c := range map[string]struct {
		env  []string
		args []string
		want string // in the error
	}{
		"on the command line": {nil, []string{"serve", "--etcd-password", canary}, "--etcd-password: bad value: "},
		"in a DSN":            {nil, []string{"serve", "--upstream", "postgres://u:" + canary + "@127.0.0.1:1/app", "--etcd", "http://127.0.0.1:1", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"}, "connect to PostgreSQL"},
		"two passwords":       {[]string{"FENCEPROXY_UPSTREAM_PASSWORD=" + canary}, []string{"init", "--upstream", nowhere, "--upstream-password-file", file}, "exclude each other"},
		"a wrong one":         {[]string{"FENCEPROXY_UPSTREAM_PASSWORD=" + canary}, []string{"init", "--upstream", wrong}, "28P01"},
		"a wrong one, file":   {nil, []string{"status", "--upstream", wrong, "--upstream-password-file", file, "--etcd", s.Etcd.Endpoint()}, "28P01"},
		"whose, variable":     {[]string{"FENCEPROXY_UPSTREAM_PASSWORD=" + canary}, []string{"init", "--upstream", wrong}, "; mend FENCEPROXY_UPSTREAM_PASSWORD or"},
		"whose, file":         {nil, []string{"init", "--upstream", wrong, "--upstream-password-file", file}, "; mend --upstream-password-file or"},
		"whose, libpq's":      {[]string{"PGPASSWORD=" + canary}, []string{"init", "--upstream", wrong}, "; mend PGPASSWORD or"},
		"whose, the DSN's":    {[]string{"PGPASSWORD=x"}, []string{"init", "--upstream", strings.Replace(wrong, "@", ":"+canary+"@", 1)}, "; mend the DSN of --upstream or"},
		"an empty file":       {nil, []string{"init", "--upstream", wrong, "--upstream-password-file", passwordFile(t, "")}, "one line with the password"},
		"lines":               {nil, []string{"init", "--upstream", wrong, "--upstream-password-file", passwordFile(t, canary+"\n"+canary)}, "one line with the password"},
		"no user":             {[]string{"FENCEPROXY_ETCD_PASSWORD=" + canary}, []string{"lock", "k", "--etcd", "http://127.0.0.1:1", "--", "true"}, "needs --etcd-user"},
		"etcd away":           {[]string{"FENCEPROXY_ETCD_PASSWORD=" + canary}, []string{"lock", "k", "--etcd", "http://127.0.0.1:1", "--etcd-user", "u", "--", "true"}, "--etcd: "},
		"in a file":           {nil, []string{"serve", "--check-config", "--config", config}, "claim_timeout: bad value"},
		"an argument":         {nil, []string{"serve", "postgres://u:" + canary + "@h/app"}, "unexpected argument (hidden)"},
		"an argument, words":  {nil, []string{"init", "host=h password=" + canary}, "unexpected argument (hidden)"},
		"a command":           {nil, []string{"postgres://u:" + canary + "@h/app"}, "unknown command (hidden)"},
		"before --":           {nil, []string{"lock", "k", "postgres://u:" + canary + "@h/app"}, "lock: unexpected argument (hidden)"},
		"a variable's name":   {[]string{"FENCEPROXY_ETCD_PASWORD=" + canary}, []string{"serve", "--check-config"}, "did you mean FENCEPROXY_ETCD_PASSWORD?"},
	} {
		t.Run(name, func(t *testing.T) {
			code, stdout, stderr := program(t, c.env, c.args...)
			if code == 0 || !strings.Contains(stdout+stderr, c.want) {
				t.Errorf("got %d %q, want an error with %q", code, stderr, c.want)
			}
			if strings.Contains(stdout+stderr, canary) {
				t.Errorf("the password is shown: %s%s", stdout, stderr)
			}
		})
	}
	code, stdout, stderr := program(t, []string{"FENCEPROXY_UPSTREAM_PASSWORD=" + canary}, "serve", "--check-config",
		"--upstream", "postgres://u:"+canary+"@h/app", "--etcd", "http://127.0.0.1:1", "--claim-timeout", "3s")
	if code != 0 || !strings.Contains(stdout, "claim_timeout: 3s  # --claim-timeout\n") || strings.Contains(stdout+stderr, canary) {
		t.Errorf("check-config: got %d %s%s, want the settings without secrets", code, stdout, stderr)
	}
}

// The password of the DSN's role comes by a file, which is read for each connection, or
// by a variable, and everything that asks PostgreSQL uses it.
func TestServe_UpstreamPassword(t *testing.T) {
	s := stack.New(t, "app")
	good := s.DSN(stack.RoleFence, "app")
	first := password0(t, good)
	bare := strings.Replace(good, url.UserPassword(stack.RoleFence, first).String(), stack.RoleFence, 1)
	t.Setenv(asProgram, "1")
	t.Setenv("PGPASSWORD", "another")
	file := passwordFile(t, first+"\n")
	byFile := launch(t, s, bare, "--upstream-password-file", file)
	t.Setenv("FENCEPROXY_UPSTREAM_PASSWORD", first)
	byVariable := launch(t, s, bare)
	for i, p := range []*stack.Process{byFile, byVariable} {
		key := fmt.Sprintf("password:%d", i)
		exec1(t, open(t, s.ProxyDSN(p.Addr, stack.RoleApp, "app"), tagged(key, hold(t, s.Client, key).Token())...),
			fmt.Sprintf("CREATE TABLE t%d (i int)", i))
	}

	root := open(t, s.DSN("postgres", "app"))
	exec1(t, root, "ALTER ROLE fence PASSWORD '"+canary+"'")
	if err := os.WriteFile(file, []byte(canary+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	exec1(t, root, "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE usename = 'fence'")
	exec1(t, open(t, s.ProxyDSN(byFile.Addr, stack.RoleApp, "app"), tagged("password:2", hold(t, s.Client, "password:2").Token())...),
		"CREATE TABLE t2 (i int)")
	if status, body := get(t, byFile, "/readyz"); status != http.StatusOK {
		t.Errorf("got %d %s, want a proxy that uses the new password", status, body)
	}
	for _, p := range []*stack.Process{byFile, byVariable} {
		if strings.Contains(p.Log(), first) || strings.Contains(p.Log(), canary) {
			t.Errorf("a password is in the log: %s", p.Log())
		}
	}
}

// launch starts serve with another DSN than the stack's.
func launch(t testing.TB, s *stack.Stack, upstream string, flags ...string) *stack.Process {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	p, err := s.Launch(ctx, stack.Way{Upstream: upstream, Etcd: []string{s.Etcd.Endpoint()}}, []string{os.Args[0]}, flags...)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// password0 is the password in a DSN.
func password0(t testing.TB, dsn string) string {
	t.Helper()
	config, err := pgx.ParseConfig(dsn)
	if err != nil {
		t.Fatal(err)
	}
	return config.Password
}

// securedEtcd is an etcd that asks for certificates and users: the flags that a
// user with the canary for a password needs, and a client of its own.
func securedEtcd(t testing.TB) (flags []string, client *clientv3.Client) {
	t.Helper()
	ca := certs.New(t)
	authorities, _ := ca.Files(ca.Certificate())
	cert, key := ca.Files(ca.Leaf("etcd"))
	free, err := url.Parse("https://127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	peer := url.URL{Scheme: "http", Host: "127.0.0.1:0"}
	c := embed.NewConfig()
	c.Dir, c.LogLevel, c.LogOutputs, c.UnsafeNoFsync = t.TempDir(), "fatal", []string{"stderr"}, true
	c.BcryptCost = 4 // the least
	c.ListenClientUrls, c.AdvertiseClientUrls = []url.URL{*free}, []url.URL{*free}
	c.ListenPeerUrls, c.AdvertisePeerUrls = []url.URL{peer}, []url.URL{peer}
	c.InitialCluster = c.InitialClusterFromName(c.Name)
	c.ClientTLSInfo.CertFile, c.ClientTLSInfo.KeyFile = cert, key
	c.ClientTLSInfo.TrustedCAFile, c.ClientTLSInfo.ClientCertAuth = authorities, true
	etcd, err := embed.StartEtcd(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(etcd.Close)
	<-etcd.Server.ReadyNotify()

	e := etcdFlags{prefix: leases.DefaultPrefix, endpoints: endpoints{"https://" + etcd.Clients[0].Addr().String()}, user: "fenceproxy"}
	mine, mineKey := ca.Files(ca.Leaf("client"))
	e.files = etcdFiles{ca: authorities, cert: mine, key: mineKey}
	e.password.file = passwordFile(t, canary+"\n")
	grant(t, e)
	client, err = e.client()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return []string{"--etcd", e.endpoints.String(), "--etcd-ca", authorities, "--etcd-cert", mine, "--etcd-key", mineKey,
		"--etcd-user", e.user, "--etcd-password-file", e.password.file}, client
}

// grant gives a user the right to the locks, and has etcd ask for users.
func grant(t testing.TB, e etcdFlags) {
	t.Helper()
	config, err := e.files.config()
	if err != nil {
		t.Fatal(err)
	}
	root, err := leases.NewClient(e.endpoints, config)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	ctx := context.Background()
	for _, step := range []func() error{
		func() error { _, err := root.RoleAdd(ctx, "root"); return err },
		func() error { _, err := root.UserAdd(ctx, "root", "root"); return err },
		func() error { _, err := root.UserGrantRole(ctx, "root", "root"); return err },
		func() error { _, err := root.RoleAdd(ctx, "locks"); return err },
		func() error {
			_, err := root.RoleGrantPermission(ctx, "locks", e.prefix, clientv3.GetPrefixRangeEnd(e.prefix), clientv3.PermissionType(clientv3.PermReadWrite))
			return err
		},
		func() error { _, err := root.UserAdd(ctx, e.user, canary); return err },
		func() error { _, err := root.UserGrantRole(ctx, e.user, "locks"); return err },
		func() error { _, err := root.AuthEnable(ctx); return err },
	} {
		if err := step(); err != nil {
			t.Fatal(err)
		}
	}
}

// Locks are taken and verified in an etcd that asks for certificates and users,
// and one that isn't let in is told.
func TestServe_SecuredEtcd(t *testing.T) {
	s := stack.New(t, "app")
	flags, client := securedEtcd(t)
	lease := hold(t, client, "order:1")
	p := serveOn(t, s, append(flags, "--fencing", "live", "--log-level", "debug")...)
	conn := open(t, s.ProxyDSN(p.Addr, stack.RoleApp, "app"), tagged("order:1", lease.Token())...)
	exec1(t, conn, "CREATE TABLE t (i int)")
	if _, body := get(t, p, "/metrics"); strings.Contains(body, canary) || strings.Contains(p.Log(), canary) {
		t.Error("the password is in the log or the metrics")
	}
	code, stdout, stderr := program(t, nil, append(append([]string{"lock", "order:2"}, flags...), "--", "sh", "-c", "echo $FENCE_KEY")...)
	if code != 0 || strings.TrimSpace(stdout) != "order:2" {
		t.Errorf("lock: got %d %q %q, want the lock", code, stdout, stderr)
	}
	wrong := append(append([]string{"lock", "order:2"}, flags...), "--etcd-password-file", passwordFile(t, "wrong"), "--", "true")
	if code, _, stderr := program(t, nil, wrong...); code != 1 || !strings.Contains(stderr, "--etcd: ") || !strings.Contains(stderr, "authentication failed") {
		t.Errorf("a wrong password: got %d %q, want 1 and what etcd said", code, stderr)
	}
	bare := []string{"lock", "order:2", "--etcd", flags[1], "--", "true"}
	if code, _, stderr := program(t, nil, bare...); code != 1 || !strings.Contains(stderr, "certificate") {
		t.Errorf("no certificates: got %d %q, want 1 and a word about certificates", code, stderr)
	}
}
