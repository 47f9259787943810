package dashboard

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"log/slog"
	"math"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// A Gate says who may see what is on the admin port.
//
// Without a token and without certificates the port is on loopback, and whoever is on
// this machine may: then a request must also be addressed to loopback, or a page
// that a browser has from elsewhere could have its own name lead here.
type Gate struct {
	// Token returns what requests must show, by "Authorization: Bearer" or by having
	// signed in. nil: there is none. While it can't be read nobody gets in by it.
	Token func() (string, error)
	// Certificates says that the port verifies certificates of clients: who has shown
	// one may.
	Certificates bool
	Logger       *slog.Logger
	Now          func() time.Time

	tries tries
	// own vouches for what this process has said itself, see proof.
	own []byte
}

// NewGate returns one that is for a port on loopback.
func NewGate() *Gate {
	return &Gate{Logger: slog.New(slog.DiscardHandler), Now: time.Now, own: []byte(rand.Text())}
}

// A verdict is what a Gate thinks of a request.
type verdict uint8

const (
	admitted verdict = iota
	// foreign: a page from elsewhere has the browser ask.
	foreign
	// misdirected: it is addressed to another host than loopback.
	misdirected
	// unknown: it shows neither the token nor a certificate.
	unknown
	// heldOff: too many wrong tokens came from its address, and what it shows isn't
	// looked at.
	heldOff
	// unsure: what it shows can't be compared, for the token can't be read now.
	unsure
)

func (v verdict) String() string {
	return [...]string{"admitted", "foreign", "misdirected", "unknown", "held off", "unsure"}[v]
}

// Protect lets only requests through that may see everything.
func (g *Gate) Protect(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		harden(w.Header())
		if v := g.judge(r); v != admitted {
			g.refuse(w, r, v)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// ProtectProbe is for what says nothing that is secret: no token is needed, but no page
// from elsewhere may have a browser ask for it again and again.
func (g *Gate) ProtectProbe(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		harden(w.Header())
		if fromElsewhere(r) {
			g.refuse(w, r, foreign)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// Admits reports whether a request may see everything.
func (g *Gate) Admits(r *http.Request) bool { return g.judge(r) == admitted }

func (g *Gate) judge(r *http.Request) verdict {
	switch {
	case fromElsewhere(r):
		return foreign
	case g.Token == nil && !g.Certificates:
		if !toLoopback(r.Host) {
			return misdirected
		}
		return admitted
	case g.Certificates && r.TLS != nil && len(r.TLS.VerifiedChains) > 0:
		return admitted
	}
	return g.judgeToken(r)
}

// judgeToken compares what a request shows with the token. Who shows nothing is never
// held off, nor who has signed in since the proxy started: whoever else tries tokens
// at the same address keeps nobody out who is in.
func (g *Gate) judgeToken(r *http.Request) verdict {
	shown, cookie := bearer(r), signInCookie(r)
	if shown == "" && cookie == "" {
		return unknown
	}
	if g.holdFor(r) > 0 && !g.proven(cookie) {
		return heldOff
	}
	token, ok := g.token()
	if !ok {
		return unsure
	}
	right, current := g.signedIn(cookie, token)
	if equal(shown, token) || right && current {
		return admitted
	}
	if shown != "" {
		g.wrong(r)
	}
	if cookie != "" && !right {
		g.wrong(r)
	}
	return unknown
}

// holdFor is how much longer no token is looked at from where a request comes.
func (g *Gate) holdFor(r *http.Request) time.Duration {
	return g.tries.holdFor(network(r.RemoteAddr), g.Now())
}

// wrong counts a wrong token.
func (g *Gate) wrong(r *http.Request) {
	if g.tries.wrong(network(r.RemoteAddr), g.Now()) {
		g.Logger.Warn("wrong admin tokens: the address is held off", "remote", r.RemoteAddr)
	}
}

// token is the secret, and whether there is one.
func (g *Gate) token() (string, bool) {
	if g.Token == nil {
		return "", false
	}
	token, err := g.Token()
	if err != nil {
		g.Logger.Error("admin token can't be read: nobody is let in by it", "error", err)
		return "", false
	}
	return token, token != ""
}

// bearer is the token that a request shows in its header; "" if it shows none.
func bearer(r *http.Request) string {
	scheme, shown, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(shown)
}

// equal takes the same time whatever the difference, lengths included.
func equal(a, b string) bool {
	x, y := sha256.Sum256([]byte(a)), sha256.Sum256([]byte(b))
	return subtle.ConstantTimeCompare(x[:], y[:]) == 1
}

func (g *Gate) refuse(w http.ResponseWriter, r *http.Request, v verdict) {
	switch v {
	case foreign:
		http.Error(w, "A page from elsewhere may not ask for this.", http.StatusForbidden)
	case misdirected:
		http.Error(w, fmt.Sprintf("This is asked for as %q. Without an admin token only names of loopback are answered: "+
			"ask for 127.0.0.1 or localhost, or set admin_token_file.", r.Host), http.StatusMisdirectedRequest)
	case heldOff:
		g.retryLater(w, r)
		http.Error(w, "Too many wrong admin tokens came from your address: none is looked at for a moment.", http.StatusTooManyRequests)
	default:
		if v == unknown {
			forgetCookie(w, r)
		}
		w.Header().Set("WWW-Authenticate", `Bearer realm="fenceproxy admin port"`)
		http.Error(w, "The admin token is missing or wrong: send it as \"Authorization: Bearer …\", or sign in at /sign-in.", http.StatusUnauthorized)
	}
}

// retryLater says when a token is looked at again.
func (g *Gate) retryLater(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Retry-After", strconv.Itoa(g.holdSeconds(r)))
}

// waitWords says the same to people.
func (g *Gate) waitWords(r *http.Request) string {
	return fmt.Sprintf("Too many wrong tokens came from your address: it is held off for %s. Wait a moment, and try again.", counted(g.holdSeconds(r), "second"))
}

func (g *Gate) holdSeconds(r *http.Request) int { return int(math.Ceil(g.holdFor(r).Seconds())) }

// fromElsewhere reports whether a browser asks on behalf of another origin's page. That
// somebody has followed a link from there is not meant by it.
func fromElsewhere(r *http.Request) bool {
	switch r.Header.Get("Sec-Fetch-Site") {
	case "", "same-origin", "none":
	default:
		followed := r.Method == http.MethodGet && r.Header.Get("Sec-Fetch-Mode") == "navigate" && r.Header.Get("Sec-Fetch-Dest") == "document"
		if !followed {
			return true
		}
	}
	origin := r.Header.Get("Origin")
	if origin == "" {
		return false
	}
	from, err := url.Parse(origin)
	return err != nil || !strings.EqualFold(from.Host, r.Host)
}

// toLoopback reports whether a Host header names this machine as only this machine
// can. Browsers always send one; what sends none is none.
func toLoopback(host string) bool {
	name := host
	if h, _, err := net.SplitHostPort(host); err == nil {
		name = h
	}
	name = strings.ToLower(strings.Trim(name, "[]"))
	if ip := net.ParseIP(name); ip != nil {
		return ip.IsLoopback()
	}
	return name == "" || name == "localhost" || strings.HasSuffix(name, ".localhost")
}

// harden sets the headers that every answer has.
func harden(h http.Header) {
	h.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "+
		"form-action 'self'; base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
}
