package dashboard

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// signedInFor is how long a browser stays signed in.
const signedInFor = 12 * time.Hour

// maxForm bounds what somebody who is yet to sign in can send.
const maxForm = 4 << 10

// signInPath is where the page is that asks for the token.
const signInPath = "/sign-in"

// A signed-in browser has a cookie of when that ends, a code that only who knows the
// token can make, and this process' proof that it has made both. So it outlives a
// restart of the proxy, and ends when the token is another one; nothing is kept here.

// sign is the code of a purpose.
func sign(secret []byte, purpose string) string {
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte("fenceproxy admin port: " + purpose))
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// cookieName has the port in it: browsers don't tell the ports of a host apart, and
// there may be several proxies on one. It hasn't anything of the token in it, so that
// one request can try one.
func cookieName(r *http.Request) string {
	name := "fenceproxy"
	if _, port, err := net.SplitHostPort(r.Host); err == nil && digits(port) {
		name += "-" + port
	}
	if r.TLS != nil {
		return "__Host-" + name
	}
	return name
}

func digits(s string) bool { return strings.Trim(s, "0123456789") == "" && s != "" }

// signInCookie is what a browser shows that has signed in; "" if there is none.
func signInCookie(r *http.Request) string {
	cookie, err := r.Cookie(cookieName(r))
	if err != nil {
		return ""
	}
	return cookie.Value
}

func cookieValue(token string, until time.Time) string {
	end := strconv.FormatInt(until.Unix(), 10)
	return end + "." + sign([]byte(token), "signed in until "+end)
}

// setCookie gives a browser a cookie, or with a negative age takes it.
func setCookie(w http.ResponseWriter, r *http.Request, value string, age time.Duration) {
	http.SetCookie(w, &http.Cookie{
		Name: cookieName(r), Value: value, Path: "/", MaxAge: int(age / time.Second),
		HttpOnly: true, Secure: r.TLS != nil, SameSite: http.SameSiteStrictMode,
	})
}

// forgetCookie has a browser show no longer what is of no use: it would count as a
// wrong token each time.
func forgetCookie(w http.ResponseWriter, r *http.Request) {
	if signInCookie(r) != "" {
		setCookie(w, r, "", -time.Second)
	}
}

// signedIn reports whether a cookie is right, and whether it still counts.
func (g *Gate) signedIn(cookie, token string) (right, current bool) {
	value, _ := cutProof(cookie)
	text, _, _ := strings.Cut(value, ".")
	end, err := strconv.ParseInt(text, 10, 64)
	until := time.Unix(end, 0)
	right = err == nil && equal(value, cookieValue(token, until))
	return right, g.Now().Before(until)
}

// cutProof takes the proof from a cookie.
func cutProof(cookie string) (value, proof string) {
	if at := strings.LastIndexByte(cookie, '.'); at >= 0 {
		return cookie[:at], cookie[at+1:]
	}
	return cookie, ""
}

// proof is what only this process can add to a cookie.
func (g *Gate) proof(value string) string { return sign(g.own, "proof of "+value) }

// proven reports whether this process has made a cookie: then it is no try.
func (g *Gate) proven(cookie string) bool {
	value, proof := cutProof(cookie)
	return equal(proof, g.proof(value))
}

// signIns adds the page that asks for the token, and what it sends.
func (d *Dashboard) signIns(mux *http.ServeMux) {
	guard := http.NewCrossOriginProtection()
	mux.HandleFunc("GET "+signInPath, d.askForToken)
	mux.Handle("POST "+signInPath, guard.Handler(http.HandlerFunc(d.signIn)))
	mux.Handle("POST /sign-out", guard.Handler(http.HandlerFunc(d.signOut)))
}

func (d *Dashboard) askForToken(w http.ResponseWriter, r *http.Request) {
	switch v := d.Gate.judge(r); {
	case v == admitted:
		http.Redirect(w, r, "/", http.StatusSeeOther)
	case v == heldOff && d.Gate.Token != nil:
		d.form(w, http.StatusOK, d.Gate.waitWords(r))
	case v != unknown && v != unsure:
		d.Gate.refuse(w, r, v)
	case d.Gate.Token == nil:
		http.Error(w, "A certificate that this proxy knows is needed, and there is no token to sign in with.", http.StatusUnauthorized)
	default:
		if v == unknown {
			forgetCookie(w, r) // the form looks again and again whether it still asks
		}
		d.form(w, http.StatusOK, "")
	}
}

func (d *Dashboard) signIn(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	if d.Gate.holdFor(r) > 0 {
		d.Gate.retryLater(w, r)
		d.form(w, http.StatusTooManyRequests, d.Gate.waitWords(r))
		return
	}
	token, ok := d.Gate.token()
	if !ok || !equal(strings.TrimSpace(r.PostFormValue("token")), token) {
		d.Gate.Logger.Warn("sign-in refused on the admin port", "remote", r.RemoteAddr)
		if ok {
			d.Gate.wrong(r)
		}
		d.form(w, http.StatusUnauthorized, "That isn't the token of this proxy.")
		return
	}
	d.Gate.Logger.Info("signed in on the admin port", "remote", r.RemoteAddr)
	value := cookieValue(token, d.Gate.Now().Add(signedInFor))
	setCookie(w, r, value+"."+d.Gate.proof(value), signedInFor)
	http.Redirect(w, r, "/", http.StatusSeeOther)
}

// form is the page that asks for the token, once more if what was sent is no good: why.
func (d *Dashboard) form(w http.ResponseWriter, status int, why string) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_ = d.signInForm.Execute(w, struct{ Why string }{why}) // to a browser that may have gone
}

func (d *Dashboard) signOut(w http.ResponseWriter, r *http.Request) {
	setCookie(w, r, "", -time.Second)
	http.Redirect(w, r, signInPath, http.StatusSeeOther)
}
