package dashboard_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/proxy/dashboard"
)

// A guarded is a gate with a token and a clock of the test's.
type guarded struct {
	*dashboard.Gate
	now  time.Time
	page http.Handler
}

func newGuarded() *guarded {
	d := newDashboard()
	g := &guarded{Gate: d.Gate, now: time.Now(), page: d.Handler()}
	g.Token = func() (string, error) { return canary, nil }
	g.Now = func() time.Time { return g.now }
	return g
}

// ask is what a client at an address gets that shows something: "" is nothing.
func (g *guarded) ask(from, shown string) *httptest.ResponseRecorder {
	r := asked()
	r.RemoteAddr = from
	if shown != "" {
		r.Header.Set("Authorization", "Bearer "+shown)
	}
	w := httptest.NewRecorder()
	g.Protect(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(200) })).ServeHTTP(w, r)
	return w
}

// wrong has a client be wrong so often that it is held off.
func (g *guarded) wrong(t *testing.T, from string) {
	t.Helper()
	for i := range 10 {
		if w := g.ask(from, fmt.Sprint("guess-", i)); w.Code != 401 {
			t.Fatalf("%s, try %d: got %d, want 401", from, i, w.Code)
		}
	}
}

const stranger, operator = "192.0.2.1:40001", "192.0.2.2:40001"

func TestGate_WrongTokens(t *testing.T) {
	g := newGuarded()
	g.wrong(t, stranger)
	for name, c := range map[string]struct {
		from, shown string
		want        int
	}{
		"one more":                {stranger, "guess", 429},
		"the token, untold":       {stranger, canary, 429},
		"from another port":       {"192.0.2.1:40002", canary, 429},
		"mapped to IPv6":          {"[::ffff:192.0.2.1]:40002", canary, 429},
		"nothing shown":           {stranger, "", 401},
		"the operator, elsewhere": {operator, canary, 200},
	} {
		w := g.ask(c.from, c.shown)
		if w.Code != c.want {
			t.Errorf("%s: got %d, want %d", name, w.Code, c.want)
		}
		if wait, err := strconv.Atoi(w.Header().Get("Retry-After")); (c.want == 429) != (err == nil && wait == 1) {
			t.Errorf("%s: got %d and Retry-After %q", name, w.Code, w.Header().Get("Retry-After"))
		}
	}
	g.now = g.now.Add(time.Second)
	if w := g.ask(stranger, "guess"); w.Code != 401 {
		t.Errorf("a second later: got %d, want one try", w.Code)
	}
	if w := g.ask(stranger, "guess"); w.Code != 429 {
		t.Errorf("and one more: got %d, want 429", w.Code)
	}
	g.now = g.now.Add(time.Second)
	for range 20 { // the right one uses nothing up
		if w := g.ask(stranger, canary); w.Code != 200 {
			t.Fatalf("the token a second later: got %d, want 200", w.Code)
		}
	}
}

// Tokens that are sent all at once count all, and hold an address off for a minute at most.
func TestGate_WrongTokensTogether(t *testing.T) {
	g := newGuarded()
	const together = 300
	var arrived, answered sync.WaitGroup
	arrived.Add(together)
	g.Token = func() (string, error) {
		arrived.Done()
		arrived.Wait()
		return canary, nil
	}
	for range together {
		answered.Go(func() { g.ask(stranger, "guess") })
	}
	answered.Wait()
	g.Token = func() (string, error) { return canary, nil }
	for _, c := range []struct {
		later time.Duration
		want  int
	}{{0, 429}, {59 * time.Second, 429}, {3 * time.Second, 200}} {
		g.now = g.now.Add(c.later)
		if w := g.ask(stranger, canary); w.Code != c.want {
			t.Errorf("%v later: got %d, want %d", c.later, w.Code, c.want)
		}
	}
}

func TestGate_WrongTokensAddresses(t *testing.T) {
	for name, c := range map[string]struct {
		wrong, other string
		want         int
	}{
		"loopback is one":              {"127.0.0.1:1", "127.8.9.10:1", 429},
		"whatever the family":          {"127.0.0.1:1", "[::1]:1", 429},
		"64 bits of IPv6 are one":      {"[2001:db8::1]:1", "[2001:db8::ffff:1]:1", 429},
		"with a zone":                  {"[fe80::1%eth0]:1", "[fe80::2%eth1]:1", 429},
		"sockets without addresses":    {"@", "", 429},
		"another network of IPv6":      {"[2001:db8::1]:1", "[2001:db8:0:1::1]:1", 200},
		"another address of IPv4":      {"192.0.2.1:1", "192.0.2.3:1", 200},
		"a socket isn't on loopback":   {"@", "127.0.0.1:1", 200},
		"loopback isn't all addresses": {"127.0.0.1:1", "[::2]:1", 200},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGuarded()
			g.wrong(t, c.wrong)
			if w := g.ask(c.other, canary); w.Code != c.want {
				t.Errorf("got %d, want %d", w.Code, c.want)
			}
		})
	}
}

// What is remembered is bounded, and a stranger with many addresses keeps nobody out.
func TestGate_WrongTokensManyAddresses(t *testing.T) {
	g := newGuarded()
	g.wrong(t, stranger)
	for i := range 1024 {
		g.ask(fmt.Sprintf("10.0.%d.%d:1", i/256, i%256), "guess")
	}
	for _, from := range []string{operator, stranger} {
		if w := g.ask(from, canary); w.Code != 200 {
			t.Errorf("%s: got %d, want 200", from, w.Code)
		}
	}
}

// A sign-in outlives a restart of the proxy; only that it is no try isn't known any more.
func TestDashboard_SignInRestarted(t *testing.T) {
	cookie := form(newGuarded().page, canary).Result().Cookies()[0]
	g := newGuarded()
	if w := get(g.page, "/api/state", cookie); w.Code != 200 {
		t.Errorf("got %d, want 200", w.Code)
	}
	for range 10 {
		form(g.page, "guess")
	}
	if w := get(g.page, "/api/state", cookie); w.Code != 429 {
		t.Errorf("held off: got %d, want 429", w.Code)
	}
}

// Who has signed in stays in, whoever is wrong at the same address; who hasn't is told
// to wait, and a cookie that was made up is a wrong token, too.
func TestDashboard_SignInWrong(t *testing.T) {
	g := newGuarded()
	cookie := form(g.page, canary).Result().Cookies()[0]
	end, _, _ := strings.Cut(cookie.Value, ".")
	forged := &http.Cookie{Name: cookie.Name, Value: end + ".guess.guess"}
	for range 5 {
		if w := form(g.page, "guess"); w.Code != 401 {
			t.Fatalf("a wrong token: got %d, want 401", w.Code)
		}
		w := get(g.page, "/api/state", forged)
		if w.Code != 401 {
			t.Fatalf("a cookie that was made up: got %d, want 401", w.Code)
		}
		if taken := w.Result().Cookies(); len(taken) != 1 || taken[0].Name != cookie.Name || taken[0].MaxAge >= 0 {
			t.Errorf("got %v, want it taken", taken)
		}
	}
	if w := form(g.page, canary); w.Code != 429 || !strings.Contains(w.Body.String(), "held off for 1 second. Wait a moment") || w.Header().Get("Retry-After") != "1" {
		t.Errorf("the form: got %d %s, want 429", w.Code, w.Body)
	}
	if w := get(g.page, "/sign-in"); w.Code != 200 {
		t.Errorf("the form itself: got %d, want 200", w.Code)
	}
	if w := get(g.page, "/sign-in", forged); w.Code != 200 || !strings.Contains(w.Body.String(), "held off for 1 second") {
		t.Errorf("the form for who is held off: got %d, want 200 and why", w.Code)
	}
	if w := get(g.page, "/api/state", forged); w.Code != 429 {
		t.Errorf("a cookie that was made up: got %d, want 429", w.Code)
	}
	if w := get(g.page, "/", forged); w.Code != 303 {
		t.Errorf("the page: got %d, want the form", w.Code)
	}
	if w := get(g.page, "/api/state", cookie); w.Code != 200 {
		t.Errorf("signed in before: got %d, want 200", w.Code)
	}
	// The cookie's name has nothing of the token: one request can't try several.
	many := []*http.Cookie{forged}
	for i := range 5 {
		many = append(many, &http.Cookie{Name: fmt.Sprint(cookie.Name, i), Value: cookie.Value})
	}
	if w := get(g.page, "/api/state", many...); w.Code != 429 {
		t.Errorf("many cookies: got %d, want 429", w.Code)
	}
	g.now = g.now.Add(time.Second)
	if w := form(g.page, canary); w.Code != 303 {
		t.Errorf("a second later: got %d, want signed in", w.Code)
	}
}
