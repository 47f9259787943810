package dashboard_test

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/proxy/dashboard"
)

// canary is the token of these tests.
const canary = "canary-of-the-gate-0123456789"

func secured() *dashboard.Gate {
	g := dashboard.NewGate()
	g.Token = func() (string, error) { return canary, nil }
	return g
}

// asked is a GET with headers, names and values by turns; Host is one of them.
func asked(headers ...string) *http.Request {
	r := httptest.NewRequest(http.MethodGet, "/metrics", nil)
	r.Host = "127.0.0.1:6434"
	for i := 0; i+1 < len(headers); i += 2 {
		if headers[i] == "Host" {
			r.Host = headers[i+1]
			continue
		}
		r.Header.Set(headers[i], headers[i+1])
	}
	return r
}

func TestGate_Protect(t *testing.T) {
	open, certificates := dashboard.NewGate(), dashboard.NewGate()
	certificates.Certificates = true
	unreadable, empty := secured(), secured()
	unreadable.Token = func() (string, error) { return "", errors.New("gone") }
	empty.Token = func() (string, error) { return "", nil }
	shown := asked("Host", "proxy.example:6434")
	shown.TLS = &tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{{}}}}
	encrypted := asked()
	encrypted.TLS = &tls.ConnectionState{}
	for name, c := range map[string]struct {
		gate *dashboard.Gate
		r    *http.Request
		want int
	}{
		"loopback":                              {open, asked(), 200},
		"its name":                              {open, asked("Host", "localhost:9999"), 200},
		"a name below it":                       {open, asked("Host", "fence.localhost"), 200},
		"IPv6":                                  {open, asked("Host", "[::1]:6434"), 200},
		"no host, as in HTTP 1.0":               {open, asked("Host", ""), 200},
		"a name that leads here":                {open, asked("Host", "evil.example:6434"), 421},
		"a name that looks like it":             {open, asked("Host", "localhost.evil.example"), 421},
		"an address that isn't it":              {open, asked("Host", "192.0.2.1:6434"), 421},
		"another site's page":                   {open, asked("Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "no-cors"), 403},
		"another port's page":                   {open, asked("Sec-Fetch-Site", "same-site", "Sec-Fetch-Mode", "cors"), 403},
		"a frame":                               {open, asked("Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "iframe"), 403},
		"a link":                                {open, asked("Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "document"), 200},
		"its own page":                          {open, asked("Sec-Fetch-Site", "same-origin", "Origin", "http://127.0.0.1:6434"), 200},
		"an old browser's":                      {open, asked("Origin", "http://evil.example"), 403},
		"a page without an origin":              {open, asked("Origin", "null"), 403},
		"no token":                              {secured(), asked(), 401},
		"the token":                             {secured(), asked("Authorization", "Bearer "+canary, "Host", "proxy.example"), 200},
		"the token, small":                      {secured(), asked("Authorization", "bearer "+canary), 200},
		"a part of it":                          {secured(), asked("Authorization", "Bearer "+canary[:20]), 401},
		"more than it":                          {secured(), asked("Authorization", "Bearer "+canary+"0"), 401},
		"no scheme":                             {secured(), asked("Authorization", canary), 401},
		"another scheme":                        {secured(), asked("Authorization", "Basic "+canary), 401},
		"an empty one":                          {secured(), asked("Authorization", "Bearer "), 401},
		"an empty one that is right":            {empty, asked("Authorization", "Bearer "), 401},
		"one that can't be read":                {unreadable, asked("Authorization", "Bearer "), 401},
		"a certificate":                         {certificates, shown, 200},
		"none":                                  {certificates, encrypted, 401},
		"none, not even encrypted":              {certificates, asked(), 401},
		"a certificate that counts for nothing": {secured(), shown, 401},
	} {
		t.Run(name, func(t *testing.T) {
			w := httptest.NewRecorder()
			c.gate.Protect(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(200) })).ServeHTTP(w, c.r)
			if w.Code != c.want {
				t.Errorf("got %d %s, want %d", w.Code, w.Body, c.want)
			}
			if w.Code != 200 && !strings.Contains(w.Header().Get("Content-Security-Policy"), "default-src 'none'") {
				t.Error("a refusal lacks the policy")
			}
			if (w.Code == 401) != strings.HasPrefix(w.Header().Get("WWW-Authenticate"), "Bearer") {
				t.Errorf("got %d and WWW-Authenticate %q", w.Code, w.Header().Get("WWW-Authenticate"))
			}
			if strings.Contains(w.Body.String(), canary) {
				t.Error("the token is told")
			}
		})
	}
}

// Probes ask for no token and no host, but don't answer pages from elsewhere.
func TestGate_ProtectProbe(t *testing.T) {
	for want, r := range map[int]*http.Request{200: asked("Host", "10.0.0.7:6434"), 403: asked("Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "no-cors")} {
		w := httptest.NewRecorder()
		secured().ProtectProbe(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(200) })).ServeHTTP(w, r)
		if w.Code != want {
			t.Errorf("got %d, want %d", w.Code, want)
		}
	}
}

// form sends what the page to sign in sends.
func form(h http.Handler, token string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, "/sign-in", strings.NewReader(url.Values{"token": {token}}.Encode()))
	r.Host = "localhost:6434"
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// get asks a handler for a path, with a cookie if there is one.
func get(h http.Handler, path string, cookies ...*http.Cookie) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodGet, path, nil)
	r.Host = "localhost:6434"
	for _, c := range cookies {
		r.AddCookie(c)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func TestDashboard_SignIn(t *testing.T) {
	token, now := canary, time.Now()
	d := newDashboard()
	d.Gate.Token = func() (string, error) { return token, nil }
	d.Gate.Now = func() time.Time { return now }
	h := d.Handler()
	if w := get(h, "/"); w.Code != 303 || w.Header().Get("Location") != "/sign-in" {
		t.Errorf("got %d to %q, want the form", w.Code, w.Header().Get("Location"))
	}
	if w := get(h, "/sign-in"); w.Code != 200 || strings.Contains(w.Body.String(), "the token of this proxy") {
		t.Errorf("the form: got %d %s", w.Code, w.Body)
	}
	for _, path := range []string{"/api/state", "/api/events", "/page/app.js"} {
		if w := get(h, path); w.Code != 401 {
			t.Errorf("%s: got %d, want 401", path, w.Code)
		}
	}
	if w := get(h, "/page/style.css"); w.Code != 200 {
		t.Errorf("how the form looks: got %d, want 200", w.Code)
	}
	for _, wrong := range []string{"", "wrong", strings.Repeat("x", 1<<20)} {
		if w := form(h, wrong); w.Code != 401 || len(w.Result().Cookies()) > 0 || !strings.Contains(w.Body.String(), "the token of this proxy") {
			t.Errorf("%.10s: got %d, %v", wrong, w.Code, w.Result().Cookies())
		}
	}
	if w := form(h, canary, "Sec-Fetch-Site", "cross-site"); w.Code != 403 || len(w.Result().Cookies()) > 0 {
		t.Errorf("from another site: got %d, want 403", w.Code)
	}
	w := form(h, canary)
	if w.Code != 303 || len(w.Result().Cookies()) != 1 {
		t.Fatalf("got %d, %v, want a cookie", w.Code, w.Result().Cookies())
	}
	cookie := w.Result().Cookies()[0]
	if !cookie.HttpOnly || cookie.SameSite != http.SameSiteStrictMode || strings.Contains(cookie.String(), canary) {
		t.Errorf("got %v", cookie)
	}
	if w := get(h, "/", cookie); w.Code != 200 || !strings.Contains(w.Body.String(), "app.js") {
		t.Errorf("signed in: got %d", w.Code)
	}
	if w := get(h, "/sign-in", cookie); w.Code != 303 {
		t.Errorf("the form for who is signed in: got %d, want 303", w.Code)
	}
	later := *cookie
	end, code, _ := strings.Cut(cookie.Value, ".")
	later.Value = end + "0." + code
	bare := *cookie
	bare.Value = end
	for name, forged := range map[string]*http.Cookie{"a later end": &later, "no code": &bare} {
		if w := get(h, "/api/state", forged); w.Code != 401 {
			t.Errorf("%s: got %d, want 401", name, w.Code)
		}
	}
	now = now.Add(13 * time.Hour)
	if w := get(h, "/api/state", cookie); w.Code != 401 {
		t.Errorf("the next day: got %d, want 401", w.Code)
	}
	now, token = now.Add(-13*time.Hour), "another-token-0123456789"
	if w := get(h, "/api/state", cookie); w.Code != 401 {
		t.Errorf("another token: got %d, want 401", w.Code)
	}
	if w := get(h, "/sign-in", cookie); w.Code != 200 || len(w.Result().Cookies()) != 1 || w.Result().Cookies()[0].MaxAge >= 0 {
		t.Errorf("the form for an old cookie: got %d and %v, want it taken", w.Code, w.Result().Cookies())
	}
}

// Who has signed in is asked to sign in while the token can't be read, and is let in
// again when it can.
func TestDashboard_SignInUnreadable(t *testing.T) {
	d := newDashboard()
	var failed error
	d.Gate.Token = func() (string, error) { return canary, failed }
	cookie := form(d.Handler(), canary).Result().Cookies()[0]
	failed = errors.New("it is being written")
	for path, want := range map[string]int{"/": 303, "/sign-in": 200, "/api/state": 401} {
		if w := get(d.Handler(), path, cookie); w.Code != want || len(w.Result().Cookies()) > 0 {
			t.Errorf("%s: got %d and %v, want %d and the cookie left", path, w.Code, w.Result().Cookies(), want)
		}
	}
	failed = nil
	if w := get(d.Handler(), "/api/state", cookie); w.Code != 200 {
		t.Errorf("got %d, want 200", w.Code)
	}
}

// A cookie that was made over TLS goes over TLS only, and to this host only.
func TestDashboard_SignInOverTLS(t *testing.T) {
	d := newDashboard()
	d.Gate.Token = func() (string, error) { return canary, nil }
	r := httptest.NewRequest(http.MethodPost, "https://proxy.example/sign-in", strings.NewReader("token="+canary))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	w := httptest.NewRecorder()
	d.Handler().ServeHTTP(w, r)
	if c := w.Result().Cookies(); len(c) != 1 || !c[0].Secure || !strings.HasPrefix(c[0].Name, "__Host-") || c[0].Path != "/" || c[0].Domain != "" {
		t.Errorf("got %v", c)
	}
	out := httptest.NewRecorder()
	d.Handler().ServeHTTP(out, httptest.NewRequest(http.MethodPost, "https://proxy.example/sign-out", nil))
	if c := out.Result().Cookies(); len(c) != 1 || c[0].MaxAge >= 0 || c[0].Name != w.Result().Cookies()[0].Name {
		t.Errorf("signed out: got %v", c)
	}
}
