package main

import (
	"crypto/tls"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/fenceproxy/fenceproxy/testharness/certs"
	"github.com/fenceproxy/fenceproxy/testharness/poll"
	"github.com/fenceproxy/fenceproxy/testharness/stack"
)

// Elsewhere than on loopback the admin port asks for a token or for certificates, and
// what is wrong is said with what to do.
func TestServe_AdminSettings(t *testing.T) {
	ca := certs.New(t)
	authorities, _ := ca.Files(ca.Certificate())
	cert, key := ca.Files(ca.Leaf("proxy"))
	good := passwordFile(t, canary+"-and-more\n")
	const unguarded = "give it a token (--admin-token-file FILE, or FENCEPROXY_ADMIN_TOKEN), or ask for certificates of clients"
	for name, c := range map[string]struct {
		env  []string
		args []string
		want string // "" is that all is well
	}{
		"loopback":             {nil, nil, ""},
		"its name":             {nil, []string{"--admin-listen", "localhost:6434"}, ""},
		"IPv6":                 {nil, []string{"--admin-listen", "[::1]:6434"}, ""},
		"all addresses":        {nil, []string{"--admin-listen", "0.0.0.0:6434"}, "--admin-listen: other machines reach 0.0.0.0:6434"},
		"the same, from where": {[]string{"FENCEPROXY_ADMIN_LISTEN=:6434"}, nil, "FENCEPROXY_ADMIN_LISTEN: other machines reach :6434"},
		"what to do":           {nil, []string{"--admin-listen", "10.0.0.1:6434"}, unguarded},
		"encrypted only":       {nil, []string{"--admin-listen", ":6434", "--admin-tls-cert", cert, "--admin-tls-key", key}, unguarded},
		"a token":              {nil, []string{"--admin-listen", ":6434", "--admin-token-file", good}, ""},
		"a token's variable":   {[]string{"FENCEPROXY_ADMIN_TOKEN=" + canary + "-and-more"}, []string{"--admin-listen", ":6434"}, ""},
		"certificates":         {nil, []string{"--admin-listen", ":6434", "--admin-tls-cert", cert, "--admin-tls-key", key, "--admin-tls-ca", authorities}, ""},
		"a short token":        {nil, []string{"--admin-token-file", passwordFile(t, canary)}, "a token has 16 characters at least"},
		"its variable":         {[]string{"FENCEPROXY_ADMIN_TOKEN=" + canary}, nil, "FENCEPROXY_ADMIN_TOKEN: a token has 16 characters at least"},
		"two tokens":           {[]string{"FENCEPROXY_ADMIN_TOKEN=" + canary}, []string{"--admin-token-file", good}, "exclude each other"},
		"no such file":         {nil, []string{"--admin-token-file", "/nowhere"}, "--admin-token-file: open /nowhere"},
		"half of TLS":          {nil, []string{"--admin-tls-cert", cert}, "the first two go together"},
		"authorities alone":    {nil, []string{"--admin-listen", ":6434", "--admin-tls-ca", authorities}, "the third needs them"},
		"no certificate":       {nil, []string{"--admin-tls-cert", good, "--admin-tls-key", key}, "--admin-tls-cert, --admin-tls-key: "},
		"on the command line":  {nil, []string{"--admin-token", canary}, "on the command line everybody could read it"},
	} {
		t.Run(name, func(t *testing.T) {
			args := append([]string{"serve", "--check-config", "--upstream", "postgres://u@h/app", "--etcd", "http://127.0.0.1:1"}, c.args...)
			code, stdout, stderr := program(t, c.env, args...)
			if want := map[bool]int{true: 0, false: 2}[c.want == ""]; code != want || !strings.Contains(stderr, c.want) {
				t.Errorf("got %d %s, want %d with %q", code, stderr, want, c.want)
			}
			if strings.Contains(stdout+stderr, canary) {
				t.Errorf("the token is shown: %s%s", stdout, stderr)
			}
		})
	}
}

// A socket that a service manager has opened is looked at as well.
func TestAdminFlags_CheckPort(t *testing.T) {
	for at, want := range map[string]bool{"127.0.0.1:0": true, "0.0.0.0:0": false} {
		ln, err := net.Listen("tcp", at)
		if err != nil {
			t.Fatal(err)
		}
		defer ln.Close()
		open, asking := newAdminFlags(), newAdminFlags()
		asking.token.file = "token"
		if err := open.checkPort(ln); (err == nil) != want {
			t.Errorf("%s: got %v", at, err)
		}
		if err := asking.checkPort(ln); err != nil {
			t.Errorf("%s with a token: got %v", at, err)
		}
	}
}

// fetch asks for a URL, with a token if there is one.
func fetch(t testing.TB, client *http.Client, url, token string) (status int, body string) {
	t.Helper()
	r, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := client.Do(r)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

func TestServe_AdminToken(t *testing.T) {
	s := stack.New(t, "app")
	const token = canary + "-and-more"
	file := passwordFile(t, token+"\n")
	p := serveOn(t, s, "--admin-token-file", file)
	at := "http://" + p.Admin
	for path, want := range map[string]int{"/metrics": 401, "/api/state": 401, "/": 200, "/healthz": 200, "/readyz": 200} {
		if status, body := fetch(t, http.DefaultClient, at+path, ""); status != want || strings.Contains(body, "fenceproxy_sessions") {
			t.Errorf("%s without the token: got %d %.80s, want %d", path, status, body, want)
		}
	}
	if status, body := fetch(t, http.DefaultClient, at+"/metrics", token); status != 200 || !strings.Contains(body, "fenceproxy_sessions") {
		t.Errorf("with the token: got %d %.80s", status, body)
	}
	status := []string{"status", "--upstream", s.DSN(stack.RoleFence, "app"), "--admin", p.Admin}
	if code, out, _ := program(t, nil, status...); code != 1 || !strings.Contains(out, "asks for its token") {
		t.Errorf("status without it: got %d %s", code, out)
	}
	if code, out, _ := program(t, nil, append(status, "--admin-token-file", file)...); code != 0 || !strings.Contains(out, ": ready, sessions: 0") {
		t.Errorf("status with it: got %d %s", code, out)
	}
	s.Etcd.Close()
	if status, body := fetch(t, http.DefaultClient, at+"/readyz", ""); status != 503 || strings.TrimSpace(body) != "etcd doesn't answer" {
		t.Errorf("etcd away, without the token: got %d %q, want no addresses", status, body)
	}
	if status, body := fetch(t, http.DefaultClient, at+"/readyz", token); status != 503 || !strings.Contains(body, "http://127.0.0.1:") {
		t.Errorf("etcd away, with the token: got %d %q, want why", status, body)
	}
	const next = "another-token-of-this-test"
	if err := os.WriteFile(file, []byte(next), 0o600); err != nil {
		t.Fatal(err)
	}
	for token, want := range map[string]int{token: 401, next: 200} {
		if status, _ := fetch(t, http.DefaultClient, at+"/metrics", token); status != want {
			t.Errorf("the file has changed: got %d, want %d", status, want)
		}
	}
	poll.Until(t, "status is held off", func() bool { // a token a second is looked at
		for range 12 {
			if got, _ := fetch(t, http.DefaultClient, at+"/metrics", canary); got != 401 && got != 429 {
				t.Errorf("a wrong token: got %d", got)
			}
		}
		code, out, _ := program(t, nil, append(status, "--admin-token-file", file)...)
		return code == 1 && strings.Contains(out, "too many wrong tokens")
	})
	aLine(t, p, "wrong admin tokens: the address is held off", logLine{"level": "WARN"})
	if status, body := fetch(t, http.DefaultClient, at+"/healthz", ""); status != 200 {
		t.Errorf("a probe, held off: got %d %s, want 200", status, body)
	}
	if strings.Contains(p.Log(), canary) || strings.Contains(p.Log(), next) {
		t.Error("the log has a token")
	}
}

func TestServe_AdminTLS(t *testing.T) {
	s := stack.New(t, "app")
	ca := certs.New(t)
	authorities, _ := ca.Files(ca.Certificate())
	cert, key := ca.Files(ca.Leaf("proxy"))
	other, _ := ca.Files(ca.Leaf("other"))
	p := serveOn(t, s, "--admin-listen", "0.0.0.0:0", "--admin-tls-cert", cert, "--admin-tls-key", key, "--admin-tls-ca", authorities)
	_, port, err := net.SplitHostPort(p.Admin)
	if err != nil {
		t.Fatal(err)
	}
	at := "https://127.0.0.1:" + port
	browser := func(shown ...tls.Certificate) *http.Client {
		return &http.Client{Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: ca.Pool, Certificates: shown}}}
	}
	if status, body := fetch(t, browser(ca.Leaf("prometheus")), at+"/metrics", ""); status != 200 {
		t.Errorf("with a certificate: got %d %s", status, body)
	}
	for path, want := range map[string]int{"/metrics": 401, "/sign-in": 401, "/healthz": 200, "/readyz": 200} {
		if status, body := fetch(t, browser(), at+path, ""); status != want {
			t.Errorf("%s without a certificate: got %d %s, want %d", path, status, body, want)
		}
	}
	if status, body := fetch(t, browser(certs.New(t).Leaf("stranger")), at+"/metrics", ""); status == 200 {
		t.Errorf("with a stranger's certificate: got %d %s", status, body)
	}
	if status, _ := fetch(t, http.DefaultClient, "http://127.0.0.1:"+port+"/healthz", ""); status == 200 {
		t.Error("without TLS: got an answer")
	}
	health := []string{"health", "--ready", "--admin-listen", "0.0.0.0:" + port, "--admin-tls-cert"}
	if code, _, stderr := program(t, nil, append(health, cert)...); code != 0 {
		t.Errorf("health: got %d %s", code, stderr)
	}
	if code, _, stderr := program(t, nil, append(health, other)...); code != 1 || !strings.Contains(stderr, "not the one of --admin-tls-cert") {
		t.Errorf("health, another certificate: got %d %s", code, stderr)
	}
}

// Whatever is asked for, no browser takes the answer for something else, keeps it, or
// shows it in a page from elsewhere.
func TestServe_AdminHeaders(t *testing.T) {
	s := stack.New(t, "app")
	p := serveOn(t, s)
	for _, path := range []string{"/", "/metrics", "/healthz", "/readyz", "/api/state", "/page/app.js", "/nothing"} {
		resp, err := http.Get("http://" + p.Admin + path)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		for name, want := range map[string]string{
			"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store", "X-Frame-Options": "DENY", "Cross-Origin-Resource-Policy": "same-origin",
		} {
			if got := resp.Header.Get(name); got != want {
				t.Errorf("%s: got %s: %q, want %q", path, name, got, want)
			}
		}
	}
}

// The dashboard tells of a real lock: who holds it, for how long, and its claim.
func TestServe_Dashboard(t *testing.T) {
	s := stack.New(t, "app")
	p := serveOn(t, s)
	lease := hold(t, s.Client, "order:1")
	exec1(t, open(t, s.ProxyDSN(p.Addr, stack.RoleApp, "app"), tagged("order:1", lease.Token())...), "CREATE TABLE t (i int)")
	if status, body := get(t, p, "/"); status != 200 || !strings.Contains(body, "/page/app.js") {
		t.Errorf("the page: got %d %s", status, body)
	}
	for _, name := range []string{"app.js", "rows.js", "stream.js", "happenings.js", "timeline.js", "standing.js", "text.js", "style.css", "icon.svg"} {
		if status, _ := get(t, p, "/page/"+name); status != 200 {
			t.Errorf("%s: got %d", name, status)
		}
	}
	var said struct {
		Marks, Locks string
		Keys         []struct {
			Key, Token, Mark, Holder, Standing string
			Left                               int64
		}
		Counters struct{ Opened, Claims int }
	}
	poll.Until(t, "the claim is counted", func() bool {
		_, body := get(t, p, "/api/state")
		return json.Unmarshal([]byte(body), &said) == nil && said.Counters.Claims == 1
	})
	token := lease.Token().String()
	if len(said.Keys) != 1 || said.Keys[0].Standing != "holder" || said.Keys[0].Mark != token || said.Keys[0].Holder != token || said.Keys[0].Left <= 0 {
		t.Errorf("got %+v, want the holder with some of its lease", said)
	}
	if status, body := get(t, p, "/nothing"); status != 404 {
		t.Errorf("what isn't there: got %d %s", status, body)
	}
}
