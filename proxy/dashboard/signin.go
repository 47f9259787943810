package dashboard

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
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

// A signed-in browser has a cookie of when that ends and a code that only who knows
// the token can make. So it outlives a restart of the proxy, and ends when the token
// is another one; nothing is kept here.

// sign is the code of a purpose.
func sign(token, purpose string) []byte {
	mac := hmac.New(sha256.New, []byte(token))
	mac.Write([]byte("fenceproxy admin port: " + purpose))
	return mac.Sum(nil)
}

// cookieName differs from one token to another: browsers don't tell the ports of a
// host apart, and there may be several proxies on one.
func cookieName(r *http.Request, token string) string {
	name := "fenceproxy-" + hex.EncodeToString(sign(token, "name")[:4])
	if r.TLS != nil {
		return "__Host-" + name
	}
	return name
}

func cookieValue(token string, until time.Time) string {
	end := strconv.FormatInt(until.Unix(), 10)
	return end + "." + base64.RawURLEncoding.EncodeToString(sign(token, "signed in until "+end))
}

// signedIn reports whether the request is a browser's that has signed in with the
// token, and not too long ago.
func (g *Gate) signedIn(r *http.Request, token string) bool {
	cookie, err := r.Cookie(cookieName(r, token))
	if err != nil {
		return false
	}
	text, _, _ := strings.Cut(cookie.Value, ".")
	end, err := strconv.ParseInt(text, 10, 64)
	until := time.Unix(end, 0)
	return err == nil && equal(cookie.Value, cookieValue(token, until)) && g.Now().Before(until)
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
	case v != unknown:
		d.Gate.refuse(w, r, v)
	case d.Gate.Token == nil:
		http.Error(w, "A certificate that this proxy knows is needed, and there is no token to sign in with.", http.StatusUnauthorized)
	default:
		d.form(w, http.StatusOK, false)
	}
}

func (d *Dashboard) signIn(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	token, ok := d.Gate.token()
	if !ok || !equal(strings.TrimSpace(r.PostFormValue("token")), token) {
		d.Gate.Logger.Warn("sign-in refused on the admin port", "remote", r.RemoteAddr)
		d.form(w, http.StatusUnauthorized, true)
		return
	}
	d.Gate.Logger.Info("signed in on the admin port", "remote", r.RemoteAddr)
	http.SetCookie(w, &http.Cookie{
		Name: cookieName(r, token), Value: cookieValue(token, d.Gate.Now().Add(signedInFor)), Path: "/",
		MaxAge: int(signedInFor / time.Second), HttpOnly: true, Secure: r.TLS != nil, SameSite: http.SameSiteStrictMode,
	})
	http.Redirect(w, r, "/", http.StatusSeeOther)
}

// form is the page that asks for the token, once more if what was sent is wrong.
func (d *Dashboard) form(w http.ResponseWriter, status int, wrong bool) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_ = d.signInForm.Execute(w, struct{ Wrong bool }{wrong}) // to a browser that may have gone
}

func (d *Dashboard) signOut(w http.ResponseWriter, r *http.Request) {
	if token, ok := d.Gate.token(); ok {
		http.SetCookie(w, &http.Cookie{
			Name: cookieName(r, token), Path: "/", MaxAge: -1, HttpOnly: true, Secure: r.TLS != nil, SameSite: http.SameSiteStrictMode,
		})
	}
	http.Redirect(w, r, signInPath, http.StatusSeeOther)
}
